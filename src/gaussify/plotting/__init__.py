"""Displays: the numbers are stored first and drawn later, on any axes.

Drawing needs matplotlib: ``pip install "gaussify[plot]"``.
"""

from gaussify.plotting._reliability import ReliabilityDisplay

__all__ = ["ReliabilityDisplay"]
