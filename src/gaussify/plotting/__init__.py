"""Displays: the numbers are stored first and drawn later, on any axes.

Drawing needs matplotlib: ``pip install "gaussify[plot]"``.
"""

from gaussify.plotting._reliability import ReliabilityDisplay
from gaussify.plotting._style import METHOD_COLOURS, SERIES_COLOURS, figure_file, plain_log_ticks

__all__ = ["METHOD_COLOURS", "SERIES_COLOURS", "ReliabilityDisplay", "figure_file", "plain_log_ticks"]
