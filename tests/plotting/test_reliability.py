import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from gaussify.exceptions import MissingDependencyError
from gaussify.metrics import ece, reliability
from gaussify.plotting import ReliabilityDisplay


@pytest.fixture(autouse=True)
def _agg():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    backend = matplotlib.get_backend()
    pyplot.switch_backend("Agg")
    yield
    pyplot.close("all")
    pyplot.switch_backend(backend)


@pytest.fixture
def predictions():
    rng = np.random.default_rng(0)
    return rng.dirichlet(np.full(3, 0.5), size=300), rng.integers(3, size=300)


def heights(ax, container: int) -> np.ndarray:
    return np.array([bar.get_height() for bar in ax.containers[container]])


def test_bars_are_accuracy_gap_and_share_of_rows(predictions):
    bins = reliability(*predictions, n_bins=10)
    display = ReliabilityDisplay(bins).plot()
    filled = bins.count > 0
    np.testing.assert_allclose(heights(display.ax_, 0)[filled], bins.accuracy[filled])
    np.testing.assert_allclose(
        heights(display.ax_, 1)[filled], (bins.mean_confidence - bins.accuracy)[filled], atol=1e-12
    )
    starts = np.array([bar.get_y() for bar in display.ax_.containers[1]])
    np.testing.assert_allclose(starts[filled], bins.accuracy[filled])
    np.testing.assert_allclose(heights(display.ax_counts_, 0), bins.count / 300)
    lefts = [bar.get_x() for bar in display.ax_.containers[0]]
    np.testing.assert_allclose(lefts, bins.bin_edges[:-1])


def test_legend_gives_the_error_and_title_the_name(predictions):
    display = ReliabilityDisplay.from_predictions(*predictions, n_bins=10, name="a model")
    assert display.ax_.get_legend().get_title().get_text() == f"ECE = {ece(*predictions, n_bins=10):.3f}"
    assert display.ax_.get_title() == "a model"


def test_numbers_are_stored_before_anything_is_drawn(predictions):
    display = ReliabilityDisplay(reliability(*predictions))
    assert display.reliability.count.sum() == 300
    assert not hasattr(display, "ax_")
    assert display.plot() is display


@pytest.mark.parametrize("layout", [None, "constrained"])
def test_given_axes_are_shared_with_the_histogram_inside_their_place(predictions, layout):
    figure = Figure(figsize=(8, 5), layout=layout)
    ax, other = figure.subplots(1, 2)
    display = ReliabilityDisplay.from_predictions(*predictions, ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is figure
    figure.draw_without_rendering()
    upper, lower, neighbour = (axes.get_window_extent() for axes in (ax, display.ax_counts_, other))
    assert lower.y1 < upper.y0
    assert (lower.x0, lower.x1) == pytest.approx((upper.x0, upper.x1))
    assert upper.y1 == pytest.approx(neighbour.y1, abs=2)  # pixels
    assert lower.y0 > neighbour.y0 - 2
    assert upper.x1 < neighbour.x0
    drawn = display.ax_counts_.get_tightbbox()
    assert drawn.x0 >= 0
    assert drawn.y0 >= 0


def test_axes_placed_by_hand_work_too(predictions):
    figure = Figure()
    ax = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    display = ReliabilityDisplay.from_predictions(*predictions, ax=ax)
    figure.draw_without_rendering()
    upper, lower = ax.get_window_extent(), display.ax_counts_.get_window_extent()
    height = figure.bbox.height
    assert (lower.y0, upper.y1) == pytest.approx((0.1 * height, 0.9 * height))
    assert lower.y1 < upper.y0


def test_each_plot_without_axes_opens_its_own_figure(predictions):
    display = ReliabilityDisplay(reliability(*predictions))
    first = display.plot().figure_
    assert display.plot().figure_ is not first


def test_drawing_without_matplotlib_names_the_extra(predictions, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingDependencyError, match=r'gaussify\.plotting needs .* pip install "gaussify\[plot\]"'):
        ReliabilityDisplay(reliability(*predictions)).plot()


def test_bad_predictions_are_refused():
    with pytest.raises(ValueError, match=r"Rows of 'probs' of reliability must sum to one"):
        ReliabilityDisplay.from_predictions([[0.5, 0.2]], [0])
