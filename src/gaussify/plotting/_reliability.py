"""The reliability diagram."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from gaussify._optional import import_optional
from gaussify.metrics import Reliability, reliability

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

_BLUE, _RED, _PALE_RED = "#2f6ca8", "#c8443c", "#f6d0cc"


class ReliabilityDisplay:
    r"""Reliability diagram: accuracy against confidence, above a histogram of confidence.

    In every bin the thick line is the accuracy :math:`a_b`, and the hatched bar extends from it to the mean confidence
    :math:`c_b`. With :math:`n_b` of all :math:`n` rows in bin b, the weighted mean of hatched heights is the error in
    the legend,

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} |a_b - c_b|.

    Parameters
    ----------
    reliability : Reliability
        Numbers to draw, from :func:`gaussify.metrics.reliability`.
    name : str, optional
        Title of the diagram, for instance the model's name.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        Axes of the diagram, set by ``plot``.
    ax_counts_ : matplotlib.axes.Axes
        Axes of the histogram below it.
    figure_ : matplotlib.figure.Figure or SubFigure
        Figure that holds both.

    Examples
    --------
    >>> from gaussify.metrics import reliability
    >>> from matplotlib.figure import Figure
    >>> bins = reliability([[0.7, 0.3], [0.2, 0.8], [0.9, 0.1]], [0, 0, 0], n_bins=5)
    >>> display = ReliabilityDisplay(bins, name="three rows").plot(Figure().subplots())
    >>> display.ax_.get_title()
    'three rows'
    >>> display.ax_.get_legend().get_title().get_text()
    'ECE = 0.200'
    """

    ax_: "matplotlib.axes.Axes"
    ax_counts_: "matplotlib.axes.Axes"
    figure_: "matplotlib.figure.Figure | matplotlib.figure.SubFigure"

    def __init__(self, reliability: Reliability, *, name: str | None = None) -> None:
        self.reliability = reliability
        self.name = name

    @classmethod
    def from_predictions(
        cls,
        probs: ArrayLike | Tensor,
        y: ArrayLike | Tensor,
        n_bins: int = 15,
        *,
        ax: "matplotlib.axes.Axes | None" = None,
        name: str | None = None,
    ) -> "ReliabilityDisplay":
        """Return the display of predictions, already drawn.

        Parameters
        ----------
        probs : array-like or tensor of shape (n, n_classes)
            Class probabilities, each row summing to one.
        y : array-like or tensor of shape (n,)
            True class indices, from 0 to ``n_classes - 1``.
        n_bins : int, default=15
            Number of bins that divide [0, 1].
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; a new figure by default.
        name : str, optional
            Title of the diagram.

        Returns
        -------
        ReliabilityDisplay
            The display, with ``ax_``, ``ax_counts_`` and ``figure_``.

        Examples
        --------
        >>> from matplotlib.figure import Figure
        >>> ax = Figure().subplots()
        >>> display = ReliabilityDisplay.from_predictions([[0.7, 0.3], [0.2, 0.8]], [0, 1], n_bins=5, ax=ax)
        >>> display.reliability.count
        array([0, 0, 0, 2, 0])
        """
        return cls(reliability(probs, y, n_bins), name=name).plot(ax)

    def plot(self, ax: "matplotlib.axes.Axes | None" = None) -> "ReliabilityDisplay":
        """Draw the diagram, with its histogram in the lower part of the axes.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; a new figure by default.

        Returns
        -------
        ReliabilityDisplay
            This display, with ``ax_``, ``ax_counts_`` and ``figure_``.
        """
        if ax is None:
            pyplot = import_optional("matplotlib.pyplot", extra="plot", needed_by="gaussify.plotting")
            _, ax = pyplot.subplots(figsize=(4.8, 5.4), layout="constrained")
        self.ax_, self.ax_counts_ = _split(ax)
        self.figure_ = ax.figure
        self._draw_diagram()
        self._draw_counts()
        self.figure_.align_ylabels([self.ax_, self.ax_counts_])
        return self

    def _draw_diagram(self) -> None:
        bins, ax = self.reliability, self.ax_
        left, right = bins.bin_edges[:-1], bins.bin_edges[1:]
        ax.bar(left, bins.accuracy, right - left, align="edge", color=_BLUE, alpha=0.55, edgecolor="white")
        ax.hlines(bins.accuracy, left, right, color=_BLUE, linewidth=2.5, zorder=3, label="accuracy")
        ax.bar(
            left,
            bins.mean_confidence - bins.accuracy,
            right - left,
            bottom=bins.accuracy,
            align="edge",
            facecolor=_PALE_RED,  # opaque, so that it looks the same above the accuracy and below it
            edgecolor=_RED,
            linewidth=0.6,
            hatch="////",
            label="gap to mean confidence",
        )
        ax.plot([0, 1], [0, 1], linestyle="--", color="0.25", linewidth=1, label="perfect calibration")
        ax.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy", title=self.name)
        ax.tick_params(labelbottom=False)
        ax.legend(title=f"ECE = {bins.ece():.3f}", loc="upper left", alignment="left", fontsize="small", frameon=True)

    def _draw_counts(self) -> None:
        bins, ax = self.reliability, self.ax_counts_
        left, width = bins.bin_edges[:-1], np.diff(bins.bin_edges)
        ax.bar(left, bins.count / bins.count.sum(), width, align="edge", color="0.6", edgecolor="white")
        ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g}%")
        ax.set(xlabel="confidence", ylabel="rows")


def _split(ax: "matplotlib.axes.Axes") -> tuple["matplotlib.axes.Axes", "matplotlib.axes.Axes"]:
    """Return ``ax``, shrunk to the upper part of its area, and new axes in the lower part."""
    spec = ax.get_subplotspec()
    if spec is None:  # axes placed by hand belong to no grid
        grid = import_optional("mpl_toolkits.axes_grid1", extra="plot", needed_by="gaussify.plotting")
        return ax, grid.make_axes_locatable(ax).append_axes("bottom", size="28%", pad=0.1, sharex=ax)
    rows = spec.subgridspec(2, 1, height_ratios=(3.5, 1), hspace=0.08)
    ax.set_subplotspec(rows[0])
    return ax, ax.figure.add_subplot(rows[1], sharex=ax)
