"""The HTML report of a fit: scores, calibration, mistakes, and a description of the model."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from gaussify._atomic import replacing
from gaussify._version import __version__
from gaussify.gp import GPClassifier
from gaussify.metrics import reliability
from gaussify.plotting import (
    Page,
    ReliabilityDisplay,
    figure_html,
    figures_html,
    paragraph_html,
    table_html,
    tiles_html,
)
from gaussify.tables._columns import ColumnKind
from gaussify.tables._model import REPORT_FILE, TableModel
from gaussify.tables._training import FittedTable, HeldOut, tabulate_scores

if TYPE_CHECKING:
    import matplotlib.axes

_CORRECT, _WRONG = "#0072B2", "#D55E00"
_MOST_DRAWN = 30  # classes
_MOST_BARS = 20
_CELL, _LETTER, _MARGIN, _LEAST_MATRIX = 0.32, 0.08, 0.6, 2.2  # inches of a confusion matrix
_HALF_PAGE = 4.6  # inches; a wider figure leaves no room for a table beside it
_MOST_IN_FIGURE = 20  # letters
_N_UNCERTAIN, _N_SHOWN_COLUMNS = 10, 8
_MOST_LETTERS = 40


def report_html(fitted: FittedTable, source: str) -> str:
    """Return the report as one page of HTML that needs no other files.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from sklearn.datasets import load_iris
    >>> from gaussify.tables import FitOptions, fit_table
    >>> frame = load_iris(as_frame=True).frame
    >>> html = report_html(fit_table(pa.table(frame), "target", FitOptions(compare=False)), "iris.csv")
    >>> "Reliability" in html, "https://" in html
    (True, False)
    """
    model = fitted.model
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    page = Page(f"Predicting {model.target} from {source}", f"gaussify {__version__}, {when}")
    _scores(page, fitted)
    _trust(page, fitted.held_out)
    _confusion(page, fitted.held_out, model.classes)
    _uncertain(page, fitted)
    _relevance(page, fitted)
    _learnt(page, fitted, source)
    _columns(page, model)
    return page.html()


def save_fitted(fitted: FittedTable, folder: Path, source: str) -> None:
    """Write the model and then its report into a folder; an older report is removed first.

    Examples
    --------
    >>> import tempfile
    >>> from gaussify.tables import FitOptions, fit_table
    >>> table = {"x": [1.5 * i for i in range(20)], "y": ["low"] * 10 + ["high"] * 10}
    >>> fitted = fit_table(table, "y", FitOptions(model="linear", compare=False))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_fitted(fitted, Path(folder), "heights.csv")
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['model.safetensors', 'report.html']
    """
    page = report_html(fitted, source)
    (folder / REPORT_FILE).unlink(missing_ok=True)  # a report never stands beside another model
    fitted.model.save(folder)
    with replacing(folder / REPORT_FILE) as file:
        file.write(page.encode())


def _scores(page: Page, fitted: FittedTable) -> None:
    score = fitted.scores[0]
    numbers = {
        "accuracy": f"{score.accuracy:.1%}",
        "NLL [nat]": f"{score.nll + 0.0:.3f}",  # turns -0.0 into 0.0
        "calibration error (ECE)": f"{score.ece:.3f}",
        "Brier score": f"{score.brier:.3f}",
        "training rows": f"{fitted.n_train:,}",
        "held-out rows": f"{len(fitted.held_out.labels):,}",
    }
    rows = tabulate_scores(fitted.scores)
    best = int(np.argmin([score.nll for score in fitted.scores]))
    parts = [tiles_html(numbers)]
    if fitted.caution:
        parts.append(paragraph_html(fitted.caution))
    if len(rows) > 1:
        parts += [
            paragraph_html(
                "Comparison with scikit-learn's models with default settings, on the same rows. The model with the "
                "lowest NLL is highlighted.",
                is_pale=True,
            ),
            table_html(rows, best=best),
        ]
    more = " After that, the saved model has also learnt the held-out rows." if fitted.learnt_all else ""
    parts.append(
        paragraph_html(
            f"These scores are those of the model fitted to {fitted.n_train:,} training rows.{more} This report does "
            "not change when 'gaussify update' adds rows; 'gaussify info' counts them.",
            is_pale=True,
        )
    )
    page.section("Scores on held-out rows", *parts)


def _trust(page: Page, held_out: HeldOut) -> None:
    probs, labels = held_out.probs, held_out.labels
    with figure_html("Reliability diagram: accuracy against confidence", height=4.0) as drawn:
        ReliabilityDisplay(reliability(probs, labels), name="Reliability").plot(drawn.axes)
    confidence, is_correct = probs.max(1), probs.argmax(1) == labels
    bins = np.linspace(1.0 / probs.shape[1], 1.0, 21)
    with figure_html("Histogram of the confidence of correct and wrong predictions", height=4.0) as counted:
        parts = [confidence[is_correct], confidence[~is_correct]]
        counted.axes.hist(parts, bins, stacked=True, color=[_CORRECT, _WRONG], label=["correct", "wrong"])
        counted.axes.set(title="Confidence", xlabel="probability of the predicted class", ylabel="rows")
        counted.axes.legend(loc="upper left")
    page.section(
        "Can the probabilities be trusted?",
        paragraph_html(
            "Confidence is the probability of the predicted class. Points on the diagonal are calibrated: of the "
            "predictions with 80 % confidence, 80 % are correct. Points below the diagonal are overconfident, points "
            "above it underconfident.",
            is_pale=True,
        ),
        figures_html(drawn.html, counted.html),
    )


def _confusion(page: Page, held_out: HeldOut, classes: NDArray) -> None:
    K = len(classes)
    counts = np.zeros((K, K), dtype=int)
    np.add.at(counts, (held_out.labels, held_out.probs.argmax(1)), 1)
    wrong = counts - np.diag(counts.diagonal())
    pairs = [(int(wrong[i, j]), i, j) for i, j in zip(*np.nonzero(wrong), strict=True)]
    worst: list[dict[str, object]] = [
        {"label": _short(classes[i]), "predicted": _short(classes[j]), "rows": n}
        for n, i, j in sorted(pairs, key=lambda pair: (-pair[0], pair[1:]))[:10]
    ]
    names = [_short(label, _MOST_IN_FIGURE) for label in classes]
    size = max(_LEAST_MATRIX, _CELL * K) + _LETTER * max(map(len, names)) + _MARGIN  # in inches
    parts = []
    if K <= _MOST_DRAWN:
        with figure_html("Confusion matrix: labels against predictions", width=size, height=size) as drawn:
            _fill_confusion(drawn.axes, counts, names)
        parts.append(drawn.html)
    if worst:
        parts.append(table_html(worst))
    if parts and size <= _HALF_PAGE:
        parts = [figures_html(*parts)]
    page.section("Confusion matrix", *(parts or [paragraph_html("All held-out rows are predicted correctly.")]))


def _fill_confusion(axes: "matplotlib.axes.Axes", counts: Int[np.ndarray, "c c"], names: list[str]) -> None:
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0)
    axes.grid(False)
    places = range(len(names))
    turned = max(map(len, names)) > 3
    axes.set_xticks(places, names, rotation=90 if turned else 0)
    axes.set_yticks(places, names)
    axes.set(xlabel="predicted", ylabel="label")
    if len(names) <= 15:
        for i, j in np.ndindex(*counts.shape):
            if counts[i, j]:
                colour = "white" if share[i, j] > 0.5 else "black"
                axes.text(j, i, str(counts[i, j]), ha="center", va="center", color=colour, fontsize=8)


def _uncertain(page: Page, fitted: FittedTable) -> None:
    held_out, classes = fitted.held_out, fitted.model.classes
    probs, shown = held_out.probs, list(fitted.relevance)[:_N_SHOWN_COLUMNS]
    entropy = -np.where(probs > 0.0, probs * np.log(np.maximum(probs, 1e-300)), 0.0).sum(1)
    rows: list[dict[str, object]] = []
    for place in np.argsort(-entropy, kind="stable")[:_N_UNCERTAIN].tolist():
        first, second = np.argsort(-probs[place], kind="stable")[:2]
        row: dict[str, object] = {
            "row": int(held_out.numbers[place]),
            "label": _short(classes[held_out.labels[place]]),
            "predicted": f"{_short(classes[first], 20)} {probs[place, first]:.0%}",
            "second": f"{_short(classes[second], 20)} {probs[place, second]:.0%}",
        }
        cells = held_out.rows.slice(place, 1).to_pylist()[0]
        row |= {f"{name} ": _short(cells[name]) for name in shown}
        rows.append(row)
    page.section("Least certain rows", table_html(rows))


def _relevance(page: Page, fitted: FittedTable) -> None:
    shown = list(fitted.relevance.items())[:_MOST_BARS][::-1]
    is_gp = isinstance(fitted.model.classifier, GPClassifier)
    measure = "inverse lengthscale" if is_gp else "size of the weights"
    with figure_html(f"Relevance of columns: {measure}", height=0.9 + 0.26 * len(shown)) as drawn:
        drawn.axes.barh(range(len(shown)), [value for _, value in shown], color=_CORRECT)
        drawn.axes.set_yticks(range(len(shown)), [_short(name, _MOST_IN_FIGURE) for name, _ in shown])
        drawn.axes.set(xlabel=f"{measure}, relative to the largest")
        drawn.axes.grid(axis="y", visible=False)
    page.section(
        "Relevance of columns",
        drawn.html,
        paragraph_html(
            "Relevance is how fast the logits change along a column, per standard deviation of the column. Columns "
            "with the same information share it. It does not say what causes the label.",
            is_pale=True,
        ),
    )


def _learnt(page: Page, fitted: FittedTable, source: str) -> None:
    model = fitted.model
    facts: list[dict[str, object]] = [{"": name, " ": value} for name, value in describe(model).items()]
    facts += [{"": "rows with a label", " ": f"{sum(fitted.counts.values()):,} in {source}"}]
    if fitted.n_unlabelled:
        facts += [{"": "rows without a label (left out)", " ": f"{fitted.n_unlabelled:,}"}]
    if fitted.compared:
        scores = ", ".join(f"{name} {nll:.4g}" for name, nll in fitted.compared.items())
        facts += [{"": "NLL of each kind of model, on training rows set aside", " ": scores}]
    counts = [{"class": _short(label), "rows": count} for label, count in list(fitted.counts.items())[:_MOST_DRAWN]]
    if len(fitted.counts) > len(counts):
        counts.append({"class": f"and {len(fitted.counts) - len(counts)} more"})
    page.section("Model", figures_html(table_html(facts), table_html(counts)))


def describe(model: TableModel) -> dict[str, str]:
    """Return the facts about a model that people read, by name.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from gaussify.tables import FitOptions, fit_table
    >>> table = pa.table({"x": [1.5 * i for i in range(20)], "y": ["low"] * 10 + ["high"] * 10})
    >>> describe(fit_table(table, "y", FitOptions(model="linear", compare=False)).model)["predicts"]
    'y (2 classes)'
    """
    classifier = model.classifier
    alpha_eps = np.atleast_1d(classifier.alpha_eps_)
    used = [column for column in model.encoder.columns_ if column.features()]
    facts = {
        "model": "Bayesian logistic regression",
        "predicts": f"{model.target} ({len(model.classes)} classes)",
        "rows learnt": f"{model.n_rows:,}",
        "features": f"{model.encoder.n_features_out_} from {len(used)} columns",
        "matching": f"{classifier.method_}, alpha_eps {', '.join(f'{value:.4g}' for value in alpha_eps[:5])}",
        "temperature": f"{classifier.temperature_:.4g}",
    }
    if isinstance(classifier, GPClassifier):
        facts["model"] = f"sparse Gaussian process, {len(classifier.inducing_points_)} inducing points"
        facts["kernel"] = f"RBF, variance {classifier.kernel_.outputscale.item():.4g}; scaling {classifier.scaling}"
    return facts


def _columns(page: Page, model: TableModel) -> None:
    rows = [
        {
            "column": _short(column.name),
            "holds": str(column.kind),
            "features": len(column.features()),
            "": column.describe(),
        }
        for column in sorted(model.encoder.columns_, key=lambda column: column.kind is ColumnKind.IGNORED)
    ]
    page.section("Columns", table_html(rows))


def _short(value: object, most: int = _MOST_LETTERS) -> str:
    text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"
