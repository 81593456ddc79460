"""Displays: the numbers are stored first and drawn later, on any axes. Pages: tables and figures in one HTML file.

Drawing needs matplotlib: ``pip install "gaussify[plot]"``.
"""

from gaussify.plotting._page import Page, figure_html, figures_html, image_html, paragraph_html, table_html, tiles_html
from gaussify.plotting._reliability import ReliabilityDisplay
from gaussify.plotting._style import METHOD_COLOURS, SERIES_COLOURS, figure_file, plain_log_ticks

__all__ = [
    "METHOD_COLOURS",
    "SERIES_COLOURS",
    "Page",
    "ReliabilityDisplay",
    "figure_file",
    "figure_html",
    "figures_html",
    "image_html",
    "paragraph_html",
    "plain_log_ticks",
    "table_html",
    "tiles_html",
]
