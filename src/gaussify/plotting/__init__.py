"""Figures in one style, and pages with tables and figures in a single HTML file.

Read ``_style.py`` first, then ``_reliability.py``, whose display stores its numbers and draws them later on any axes,
and ``_page.py``. Drawing needs matplotlib: ``pip install "gaussify[plot]"``.
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
