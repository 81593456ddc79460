"""Fit a model to a table: hold rows out, choose the kind of model, and compare with other models.

``fit_table`` comes first; ``fit_like`` fits a model that can be merged with an existing one.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gaussify import metrics
from gaussify._estimators import Floats, Indices
from gaussify._validation import check_option
from gaussify.exceptions import TableError
from gaussify.gp import GPClassifier
from gaussify.gp._parameters import ScalingName
from gaussify.linear import BayesianLogisticRegression
from gaussify.tables._columns import find_numbers
from gaussify.tables._encoder import TableEncoder, as_table
from gaussify.tables._model import Classifier, LabelledRows, LearntRows, TableModel, take_labelled
from gaussify.tables._options import FitOptions, ModelKind

_MOST_COMPARED = 5000  # rows to fit, and rows to score, when kinds of models are compared
_BRIEF = 30  # iterations of a comparison
_LEAST_ROWS = 10
_CLASS_SHARE = 0.5  # largest number of classes, as a share of the rows
_MOST_FRACTIONS = 20  # more different numbers with fractions than this are a quantity; fewer may be grades
_MOST_WHOLE, _FEW_ROWS = 50, 10  # more whole numbers than 50 are classes only with 10 rows each
_FEW_HELD_OUT = 30

Report = Callable[[str, float], None]
"""Function that is called with the name of the current step and the share of it that is done."""


def _ignore(step: str, share: float) -> None:
    """Report nothing."""


class Score(NamedTuple):
    """Scores of a model on held-out rows.

    Examples
    --------
    >>> Score.of("coin", [[0.5, 0.5], [0.5, 0.5]], [0, 1]).nll
    0.69
    """

    name: str
    accuracy: float
    nll: float
    ece: float
    brier: float
    seconds: float | None = None

    @classmethod
    def of(cls, name: str, probs: ArrayLike, labels: ArrayLike, seconds: float | None = None) -> "Score":
        """Return the scores of probabilities (n, c) of classes 0, 1, ...

        Examples
        --------
        >>> Score.of("coin", [[0.5, 0.5], [0.5, 0.5]], [0, 1])
        Score(name='coin', accuracy=0.5, nll=0.69, ece=0.0, brier=0.5, seconds=None)
        """
        scores = (metrics.accuracy, metrics.nll, metrics.ece, metrics.brier)
        accuracy, nll, ece, brier = (float(score(probs, labels)) for score in scores)
        return cls(name, accuracy, nll, ece, brier, seconds)


def tabulate_scores(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """Return scores as rows of a table for people, rounded to six digits.

    Examples
    --------
    >>> tabulate_scores([Score("coin", 0.5, 0.69, 0.0, 0.5)])
    [{'model': 'coin', 'accuracy': 0.5, 'NLL': 0.69, 'ECE': 0.0, 'Brier': 0.5}]
    """
    rows = [
        {
            "model": score.name,
            "accuracy": _rounded(score.accuracy),
            "NLL": _rounded(score.nll),
            "ECE": _rounded(score.ece),
            "Brier": _rounded(score.brier),
            "seconds to fit": score.seconds,
        }
        for score in scores
    ]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def _rounded(score: float) -> float:
    return round(score, 6) + 0.0  # turns -0.0 into 0.0


class HeldOut(NamedTuple):
    """Rows that took no part in training, and their predicted probabilities.

    Examples
    --------
    >>> HeldOut(pa.table({"x": [1.5]}), np.array([0]), np.array([[0.9, 0.1]]), np.array([7])).rows.num_rows
    1
    """

    rows: pa.Table
    labels: Int[np.ndarray, " n"]
    probs: Float[np.ndarray, "n c"]
    numbers: Int[np.ndarray, " n"]
    """Row numbers in the table, from 1."""


class FittedTable(NamedTuple):
    """A fitted model with its held-out rows, scores and facts for the report.

    Examples
    --------
    >>> FittedTable._fields[:3]
    ('model', 'scores', 'held_out')
    """

    model: TableModel
    scores: list[Score]
    """Scores of the model, then of the models it is compared with."""
    held_out: HeldOut
    n_train: int
    counts: dict[str, int]
    """Number of rows of each class."""
    n_unlabelled: int
    compared: dict[str, float]
    """NLL of each kind of model, if kinds were compared."""
    relevance: dict[str, float]
    """Relevance of each column, see ``measure_relevance``."""

    @property
    def learnt_all(self) -> bool:
        """True if the model has also learnt the held-out rows, after it predicted them."""
        return self.model.n_rows > self.n_train

    @property
    def caution(self) -> str:
        """A warning if there are too few held-out rows for precise scores, else an empty text."""
        labels, classes = self.held_out.labels, self.model.classes
        absent = [f"{str(label)!r}" for place, label in enumerate(classes) if place not in labels]
        reasons = [f"only {len(labels)} rows are held out"] if len(labels) < _FEW_HELD_OUT else []
        if absent:
            more = f" and {len(absent) - 3} more classes" if len(absent) > 3 else ""
            reasons.append(f"no row of {', '.join(absent[:3])}{more} is held out")
        return f"These scores are imprecise: {', and '.join(reasons)}." if reasons else ""


def fit_table(
    table: Any,
    target: str,
    options: FitOptions = FitOptions(),  # noqa: B008, it is immutable
    *,
    source: str = "",
    report: Report | None = None,
) -> FittedTable:
    """Fit a model that predicts a column, and score it on held-out rows.

    Parameters
    ----------
    table : frame of pandas or polars, or Arrow table
        All rows. Kinds and scales of columns are learnt from all of them, including the held-out rows; their labels are
        not used for that.
    target : str
        Column that holds the labels.
    options : FitOptions
        Options of the fit.
    source : str
        Where the rows come from, for the model's history.
    report : callable, optional
        Function of the current step's name and the share of it that is done.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> frame = load_iris(as_frame=True).frame
    >>> fitted = fit_table(pa.table(frame), "target", FitOptions(model="linear"))
    >>> [score.name for score in fitted.scores], len(fitted.held_out.labels)
    (['gaussify', 'gradient boosting', 'logistic regression', 'majority class'], 30)
    """
    report = report or _ignore
    kind, table = check_option(options.model, ModelKind, name="model", owner="FitOptions"), as_table(table)
    if target in options.ignored:
        raise TableError(f"The column {target!r} is both the target and ignored; it cannot be both.")
    found = take_labelled(table, target)
    _check_labels(found.labels, target, are_names=target in options.categories)
    report("columns", 0.0)
    categories = [name for name in options.categories if name != target]
    encoder = TableEncoder(categories, options.ignored).fit(found.rows)

    def fit(X: Floats, labels: NDArray) -> _Fit:
        chosen, compared = _choose(X, labels, options, report) if kind is ModelKind.AUTO else (kind, {})
        start = time.perf_counter()
        return _Fit(_fit(chosen, X, labels, options, report, "fit"), compared, time.perf_counter() - start)

    n_unlabelled = table.num_rows - found.rows.num_rows
    return _fit_and_judge(found, n_unlabelled, target, encoder, np.unique(found.labels), fit, options, source, report)


def fit_like(
    model: TableModel,
    table: Any,
    options: FitOptions = FitOptions(),  # noqa: B008, it is immutable
    *,
    source: str = "",
    report: Report | None = None,
) -> FittedTable:
    """Fit a model to other rows with the columns, kernel and inducing points of an existing one, so that both merge.

    Parameters
    ----------
    model : TableModel
        Existing model. Its rows are not learnt.
    table : frame of pandas or polars, or Arrow table
        Rows that the existing model has not learnt. Some classes may have no rows.
    options : FitOptions
        Options of the fit, of which ``test_share``, ``seed``, ``compare`` and ``use_all`` count. The existing model
        sets the others.
    source, report
        See :func:`fit_table`.

    Examples
    --------
    >>> table = pa.table({"x": [1.5 * i for i in range(20)], "y": ["low"] * 10 + ["high"] * 10})
    >>> options = FitOptions(model="linear", compare=False, use_all=True)
    >>> model = fit_table(table, "y", options).model
    >>> other = pa.table({"x": [0.7 + 1.5 * i for i in range(20)], "y": ["low"] * 10 + ["high"] * 10})
    >>> model.merge(fit_like(model, other, options).model).n_rows
    40
    """
    report, table = report or _ignore, as_table(table)
    found = take_labelled(table, model.target)
    _check_number(found.labels, model.target)
    classes = np.union1d(model.classes, found.labels)

    def fit(X: Floats, labels: NDArray) -> _Fit:
        report("fit", 0.0)
        start = time.perf_counter()
        if isinstance(model.classifier, GPClassifier):
            classifier: Classifier = model.classifier.blank_copy().partial_fit(X, labels, classes=classes)
        else:
            classifier = BayesianLogisticRegression(**model.classifier.get_params())
            classifier.partial_fit(X, labels, classes=classes).tune(report=partial(report, "fit"))
        return _Fit(classifier, {}, time.perf_counter() - start)

    n_unlabelled = table.num_rows - found.rows.num_rows
    return _fit_and_judge(found, n_unlabelled, model.target, model.encoder, classes, fit, options, source, report)


class _Fit(NamedTuple):
    """A fitted classifier, the NLL of the kinds compared, and the time of the fit."""

    classifier: Classifier
    compared: dict[str, float]
    seconds: float


def _fit_and_judge(
    found: LabelledRows,
    n_unlabelled: int,
    target: str,
    encoder: TableEncoder,
    classes: NDArray,
    fit: Callable[[Floats, NDArray], _Fit],
    options: FitOptions,
    source: str,
    report: Report,
) -> FittedTable:
    """Hold rows out, fit to the others, and score the model and those it is compared with."""
    rows, labels, numbers = found
    y = np.searchsorted(classes, labels)
    train, test = split_rows(y, options.test_share, options.seed)
    X = encoder.transform(rows.take(train))
    held_out = rows.take(test)
    X_test = encoder.transform(held_out)
    classifier, compared, seconds = fit(X, labels[train])
    report("predict", 0.0)
    probs = np.zeros((len(test), len(classes)))
    probs[:, np.searchsorted(classes, classifier.classes_)] = classifier.predict_proba(X_test)
    scores = [Score.of("gaussify", probs, y[test], round(seconds, 2))]
    if options.compare:
        scores += _others(X, y[train], X_test, y[test], len(classes), options.seed, report)
    if options.use_all:
        classifier.partial_fit(X_test, labels[test])
    model = TableModel(encoder, classifier, target, [LearntRows.of(source, int(classifier.n_rows_seen_))])
    model.scores = {score.name: score._asdict() for score in scores} | {"n_held_out": len(test)}
    return FittedTable(
        model,
        scores,
        HeldOut(held_out, y[test], probs, numbers[test]),
        len(train),
        dict(zip(classes.tolist(), np.bincount(y, minlength=len(classes)).tolist(), strict=True)),
        n_unlabelled,
        compared,
        measure_relevance(model, X.std(0)),
    )


def measure_relevance(model: TableModel, spread: Float[np.ndarray, " f"]) -> dict[str, float]:
    r"""Return how strongly the logits depend on each column, relative to the most relevant one.

    For a Gaussian process it is :math:`\sqrt{\sum_j 1/\ell_j^2}` over the features j of the column, with the kernel's
    lengthscales in standard deviations of the feature. For a linear model it is
    :math:`\sqrt{\sum_j s_j^2 \overline{w_j^2}}`, with the standard deviations ``spread`` and the weights averaged over
    logits, after the part that all logits share is removed.
    """
    classifier = model.classifier
    if isinstance(classifier, GPClassifier):
        kernel = classifier.kernel_
        relevance = 1.0 / kernel.base_kernel.lengthscale.detach().numpy()[0]
    else:
        weights = classifier.coef_ if len(classifier.coef_) == 1 else classifier.coef_ - classifier.coef_.mean(0)
        relevance = spread * np.sqrt(np.square(weights).mean(0))
    found, start = {}, 0
    for column in model.encoder.columns_:
        n_features = len(column.features())
        if n_features:
            found[column.name] = float(np.sqrt(np.square(relevance[start : start + n_features]).sum()))
        start += n_features
    largest = max(found.values()) or 1.0
    return dict(sorted(((name, value / largest) for name, value in found.items()), key=lambda item: -item[1]))


def split_rows(
    y: Int[np.ndarray, " n"], test_share: float, seed: int
) -> tuple[Int[np.ndarray, " a"], Int[np.ndarray, " b"]]:
    """Return training rows and held-out rows, with the same share of each class; each class keeps a training row.

    Examples
    --------
    >>> train, test = split_rows(np.array([0] * 10 + [1] * 5 + [2]), 0.2, 0)
    >>> len(train), np.sort(test // 10 * 1.0)
    (13, array([0., 0., 1.]))
    """
    rng = np.random.default_rng(seed)
    test: list[int] = []
    for label in range(int(y.max()) + 1):
        of_class = rng.permutation(np.flatnonzero(y == label))
        n_held_out = min(round(test_share * len(of_class)), len(of_class) - 1)
        test += of_class[:n_held_out].tolist()
    if not test:
        test = [int(rng.permutation(np.flatnonzero(y == np.bincount(y).argmax()))[0])]
    held_out = np.sort(np.array(test, dtype=np.int64))
    return np.setdiff1d(np.arange(len(y)), held_out), held_out


def _check_number(labels: NDArray, target: str) -> None:
    if len(labels) < _LEAST_ROWS:
        raise TableError(f"Column {target!r} has labels in {len(labels)} rows; a fit needs at least {_LEAST_ROWS}.")


def _check_labels(labels: NDArray, target: str, *, are_names: bool) -> None:
    _check_number(labels, target)
    classes, n_rows = np.unique(labels), len(labels)
    if len(classes) == 1:
        raise TableError(f"Column {target!r} must hold at least two classes; got {str(classes[0])!r} in all rows.")
    if not are_names and _is_quantity(classes, n_rows):
        raise TableError(
            f"Column {target!r} has {len(classes):,} different numbers in {n_rows:,} rows: a quantity, not classes. "
            f"Replace it by classes such as low and high, or add --category {target!r} if its numbers are names."
        )
    if len(classes) > _CLASS_SHARE * n_rows:
        raise TableError(
            f"Column {target!r} has {len(classes):,} different values in {n_rows:,} rows: row ids or names, not "
            "classes. Choose another column."
        )


def _is_quantity(classes: NDArray, n_rows: int) -> bool:
    """Return whether labels are too many numbers to be classes: with fractions, or whole with few rows each."""
    read = find_numbers(pa.array(classes.tolist()))
    if read is None:
        return False
    numbers = read.numbers[~np.isnan(read.numbers)]
    if (numbers != np.round(numbers)).any():
        return len(numbers) > _MOST_FRACTIONS
    return len(numbers) > _MOST_WHOLE and n_rows < _FEW_ROWS * len(numbers)


def _fit(
    kind: ModelKind, X: Floats, labels: NDArray, options: FitOptions, report: Report, step: str, *, brief: bool = False
) -> Classifier:
    report(step, 0.0)
    if kind is ModelKind.LINEAR:
        linear = BayesianLogisticRegression(method="auto", random_state=options.seed).partial_fit(X, labels)
        return linear.tune(report=partial(report, step))
    max_iter = min(_BRIEF, options.max_iter) if brief else options.max_iter
    return GPClassifier(
        n_inducing=min(options.n_inducing, len(X)),
        max_iter=max_iter,
        scaling=_scaling(X),
        random_state=options.seed,
        verbose=lambda title, iteration, value: report(step, min(iteration / max(max_iter, 1), 1.0)),
    ).fit(X, labels)


def _scaling(X: Float[np.ndarray, "n f"]) -> ScalingName:
    """Return "quantile" if a column has values so far out that standard scaling would crush the others."""
    spread = np.quantile(X, [0.01, 0.99], axis=0)
    width = np.maximum(spread[1] - spread[0], 1e-12)
    far = np.maximum(X.max(0) - spread[1], spread[0] - X.min(0)) / width
    is_number = np.array([len(np.unique(column)) > 10 for column in X.T])
    return "quantile" if (far[is_number] > 10.0).any() else "standard"


def _choose(X: Floats, labels: NDArray, options: FitOptions, report: Report) -> tuple[ModelKind, dict[str, float]]:
    """Return the kind of model that predicts training rows set aside best, and the NLL of each kind."""
    y = np.unique(labels, return_inverse=True)[1]
    fitted, judged = split_rows(y, 0.25, options.seed)
    rng = np.random.default_rng(options.seed)
    fitted, judged = (np.sort(rng.permutation(rows)[:_MOST_COMPARED]) for rows in (fitted, judged))
    known = np.unique(y[fitted])
    judged = judged[np.isin(y[judged], known)]
    nll: dict[str, float] = {}
    for kind in (ModelKind.LINEAR, ModelKind.GP):
        model = _fit(kind, X[fitted], y[fitted], options, report, f"compare: {kind}", brief=True)
        nll[str(kind)] = metrics.nll(model.predict_proba(X[judged]), np.searchsorted(known, y[judged]))
    return ModelKind(min(nll, key=lambda name: nll[name])), nll


def _others(
    X: Floats, y: Indices, X_test: Floats, y_test: Indices, n_classes: int, seed: int, report: Report
) -> list[Score]:
    """Return the scores of scikit-learn's models with default settings, from the same features."""
    # early stopping sets rows of each class aside, so each class needs two
    stops_early = "auto" if np.unique(y, return_counts=True)[1].min() > 1 else False
    others: dict[str, Callable[[], Any]] = {
        "gradient boosting": partial(HistGradientBoostingClassifier, random_state=seed, early_stopping=stops_early),
        "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "majority class": partial(DummyClassifier, strategy="prior"),
    }
    scores = []
    for name, make in others.items():
        report(name, 0.0)
        start = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about searches that have not converged
                model = make().fit(X, y)
        except ValueError as error:
            warnings.warn(f"{name} is left out of the comparison: {error}", stacklevel=2)
            continue
        seconds = time.perf_counter() - start
        probs = np.zeros((len(y_test), n_classes))
        probs[:, model.classes_] = model.predict_proba(X_test)
        scores.append(Score.of(name, probs, y_test, round(seconds, 2)))
    return scores
