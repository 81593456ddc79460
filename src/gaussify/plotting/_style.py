"""The style of all figures: colours of methods, sizes, and how figures are saved."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaussify._optional import import_optional

if TYPE_CHECKING:
    import matplotlib.axis
    import matplotlib.figure

METHOD_COLOURS = {
    "exact": "#000000",
    "gauss": "#999999",
    "moment-ori": "#CC79A7",
    "moment": "#009E73",
    "laplace": "#D55E00",
    "variational": "#0072B2",
    "adf": "#E69F00",
    "sgd": "#56B4E9",
}
"""A colour for each method, from the palette of Okabe and Ito, which colour-blind readers can distinguish."""

SERIES_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colours for curves that are not methods (parameters, data sets), in the order in which they are drawn."""

STYLE = {
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.labelsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
    "lines.linewidth": 1.5,
    "pdf.fonttype": 42,  # TrueType, so that text can be searched and copied
}

DPI = 160  # of PNG files


@contextmanager
def figure_file(
    folder: Path, name: str, n_rows: int, n_columns: int, *, width: float, height: float, **options: Any
) -> Iterator[tuple["matplotlib.figure.Figure", Any]]:
    """Yield a figure in the house style and its (n_rows, n_columns) axes, and save it as PNG and PDF on exit.

    Neither a window system nor the global state of matplotlib is used, and no date is stored, so the same drawing gives
    the same bytes. Sizes are in inches. ``options`` are passed to :meth:`matplotlib.figure.Figure.subplots`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with figure_file(Path(folder), "parabola", 1, 1, width=3.0, height=2.0) as (figure, axes):
    ...         _ = axes[0, 0].plot([-1, 0, 1], [1, 0, 1], color=METHOD_COLOURS["exact"])
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['parabola.pdf', 'parabola.png']
    """
    matplotlib = import_optional("matplotlib", extra="plot", needed_by="gaussify.plotting")
    figures = import_optional("matplotlib.figure", extra="plot", needed_by="gaussify.plotting")
    with matplotlib.rc_context(STYLE):
        figure = figures.Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots(n_rows, n_columns, squeeze=False, **options)
        figure.savefig(folder / f"{name}.png", dpi=DPI, pil_kwargs={"optimize": True})
        figure.set_layout_engine("none")  # the layout is done, and must not change for the PDF
        figure.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None})


def plain_log_ticks(axis: "matplotlib.axis.Axis") -> None:
    """Label a logarithmic axis (``axes.xaxis`` or ``axes.yaxis``) with plain numbers, three in each decade.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> axes = Figure().subplots()
    >>> axes.set(yscale="log", ylim=(1.0, 10.0))
    [...]
    >>> plain_log_ticks(axes.yaxis)
    >>> axes.yaxis.get_major_formatter()(5.0)
    '5'
    """
    ticker = import_optional("matplotlib.ticker", extra="plot", needed_by="gaussify.plotting")
    axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(ticker.NullFormatter())
