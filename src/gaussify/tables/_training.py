"""From a table to a model: rows held out, the kind of model, and what others reach on the same rows."""

import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gaussify import metrics
from gaussify._validation import check_option
from gaussify.exceptions import TableError
from gaussify.gp import GPClassifier
from gaussify.linear import BayesianLogisticRegression
from gaussify.tables._encoder import TableEncoder, as_table
from gaussify.tables._model import Classifier, LearntRows, TableModel, take_labelled
from gaussify.tables._options import FitOptions, ModelKind

_MOST_COMPARED = 5000  # rows that kinds of models are compared with, and as many that they are compared by
_BRIEF = 30  # iterations, to compare
_LEAST_ROWS = 10
_CLASS_SHARE = 0.5  # of the rows, which there may be classes

Report = Callable[[str, float], None]
"""Called with what is being done, and how much of it is done."""


class Score(NamedTuple):
    """How well rows held out are predicted.

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
    def of(cls, name: str, probs: Any, labels: Any, seconds: float | None = None) -> "Score":
        """Of probabilities (n, c) of classes 0, 1, ...

        Examples
        --------
        >>> Score.of("coin", [[0.5, 0.5], [0.5, 0.5]], [0, 1])
        Score(name='coin', accuracy=0.5, nll=0.69, ece=0.0, brier=0.5, seconds=None)
        """
        scores = (metrics.accuracy, metrics.nll, metrics.ece, metrics.brier)
        accuracy, nll, ece, brier = (float(score(probs, labels)) for score in scores)
        return cls(name, accuracy, nll, ece, brier, seconds)


def tabulate_scores(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """Return scores under the names that people read.

    Examples
    --------
    >>> tabulate_scores([Score("coin", 0.5, 0.69, 0.0, 0.5)])
    [{'model': 'coin', 'accuracy': 0.5, 'NLL': 0.69, 'ECE': 0.0, 'Brier': 0.5}]
    """
    rows = [
        {
            "model": score.name,
            "accuracy": score.accuracy,
            "NLL": score.nll,
            "ECE": score.ece,
            "Brier": score.brier,
            "seconds to fit": score.seconds,
        }
        for score in scores
    ]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


class HeldOut(NamedTuple):
    """Rows that took no part in training, and how they were predicted.

    Examples
    --------
    >>> HeldOut(pa.table({"x": [1.5]}), np.array([0]), np.array([[0.9, 0.1]]), np.array([7])).rows.num_rows
    1
    """

    rows: pa.Table
    labels: Int[np.ndarray, " n"]
    probs: Float[np.ndarray, "n c"]
    numbers: Int[np.ndarray, " n"]
    """Of the rows in the table, from 1 on."""


class FittedTable(NamedTuple):
    """What a fit ends with.

    Examples
    --------
    >>> FittedTable._fields[:3]
    ('model', 'scores', 'held_out')
    """

    model: TableModel
    scores: list[Score]
    """Of the model, then of others."""
    held_out: HeldOut
    n_train: int
    counts: dict[str, int]
    """Rows of each class."""
    n_unlabelled: int
    compared: dict[str, float]
    """NLL of each kind of model, where they were compared."""
    relevance: dict[str, float]
    """Of columns."""


def fit_table(
    table: Any,
    target: str,
    options: FitOptions = FitOptions(),  # noqa: B008, it is immutable
    *,
    source: str = "",
    report: Report | None = None,
) -> FittedTable:
    """Fit a model of a column, and predict rows held out.

    Parameters
    ----------
    table : table of pandas, polars or Arrow
        All rows. What its columns hold is seen from all of them, but for their labels.
    target : str
        The column of labels.
    options : FitOptions
        How to fit.
    source : str
        Where the rows come from, for the model's history.
    report : callable, optional
        Hears of the progress.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> frame = load_iris(as_frame=True).frame
    >>> fitted = fit_table(pa.table(frame), "target", FitOptions(ModelKind.LINEAR))
    >>> [score.name for score in fitted.scores], len(fitted.held_out.labels)
    (['gaussify', 'gradient boosting', 'logistic regression', 'majority class'], 30)
    """
    report = report or (lambda what, share: None)
    kind, table = check_option(options.model, ModelKind, name="model", owner="FitOptions"), as_table(table)
    if target in options.ignored:
        raise TableError(f"The column {target!r} cannot be both the target and ignored.")
    rows, labels, numbers = take_labelled(table, target)
    classes, y, counts = np.unique(labels, return_inverse=True, return_counts=True)
    _check_labels(classes, counts, target)
    train, test = split_rows(y, options.test_share, options.seed)
    report("columns", 0.0)
    encoder = TableEncoder(options.categories, options.ignored).fit(rows)
    X = encoder.transform(rows.take(train))
    held_out = rows.take(test)
    X_test = encoder.transform(held_out)
    compared: dict[str, float] = {}
    if kind is ModelKind.AUTO:
        kind, compared = _choose(X, y[train], options, report)
    start = time.perf_counter()
    classifier = _fit(kind, X, labels[train], options, report, "fit")
    seconds = time.perf_counter() - start
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
        dict(zip(classes.tolist(), counts.tolist(), strict=True)),
        table.num_rows - rows.num_rows,
        compared,
        measure_relevance(model, X.std(0)),
    )


def fit_like(model: TableModel, table: Any, *, source: str = "") -> TableModel:
    """Return a model of other rows with the columns, features and hyperparameters of one there is, for merging.

    Examples
    --------
    >>> table = pa.table({"x": [1.5 * i for i in range(20)], "y": ["low"] * 10 + ["high"] * 10})
    >>> model = fit_table(table, "y", FitOptions(ModelKind.LINEAR, compare=False)).model
    >>> shard = fit_like(model, pa.table({"x": [3.5, 14.5], "y": ["low", "high"]}))
    >>> model.merge(shard).n_rows
    18
    """
    rows, labels, _ = take_labelled(as_table(table), model.target)
    if not len(labels):
        raise TableError(f"No row has a label in column {model.target!r}.")
    X = model.encoder.transform(rows)
    if isinstance(model.classifier, GPClassifier):
        classifier: Classifier = model.classifier.blank_copy()
    else:
        classifier = BayesianLogisticRegression(**model.classifier.get_params())
    classifier.partial_fit(X, labels, classes=np.union1d(model.classes, labels))
    return TableModel(model.encoder, classifier, model.target, [LearntRows.of(source, len(labels))])


def measure_relevance(model: TableModel, spread: Float[np.ndarray, " f"]) -> dict[str, float]:
    r"""Return how much the logits depend on each column, the most relevant one having 1.

    Of features of a column j: :math:`\sqrt{\sum_j 1/\ell_j^2}` with the lengthscales of a kernel in standard deviations
    of the feature, or :math:`\sqrt{\sum_j s_j^2 \overline{w_j^2}}` with weights averaged over logits (of which what is
    common to all does not count) and standard deviations ``spread``.
    """
    classifier = model.classifier
    if isinstance(classifier, GPClassifier):
        kernel = classifier.kernel_
        own = 1.0 / kernel.base_kernel.lengthscale.detach().numpy()[0]
    else:
        weights = classifier.coef_ if len(classifier.coef_) == 1 else classifier.coef_ - classifier.coef_.mean(0)
        own = spread * np.sqrt(np.square(weights).mean(0))
    found, start = {}, 0
    for column in model.encoder.columns_:
        n_features = len(column.features())
        if n_features:
            found[column.name] = float(np.sqrt(np.square(own[start : start + n_features]).sum()))
        start += n_features
    largest = max(found.values()) or 1.0
    return dict(sorted(((name, value / largest) for name, value in found.items()), key=lambda item: -item[1]))


def split_rows(
    y: Int[np.ndarray, " n"], test_share: float, seed: int
) -> tuple[Int[np.ndarray, " a"], Int[np.ndarray, " b"]]:
    """Return rows to learn from and rows to hold out, of each class the same share; a class has rows to learn from.

    Examples
    --------
    >>> train, test = split_rows(np.array([0] * 10 + [1] * 5 + [2]), 0.2, 0)
    >>> len(train), np.sort(test // 10 * 1.0)
    (13, array([0., 0., 1.]))
    """
    rng = np.random.default_rng(seed)
    test: list[int] = []
    for label in range(int(y.max()) + 1):
        own = rng.permutation(np.flatnonzero(y == label))
        n_held_out = min(round(test_share * len(own)), len(own) - 1)
        test += own[:n_held_out].tolist()
    if not test:
        test = [int(rng.permutation(np.flatnonzero(y == np.bincount(y).argmax()))[0])]
    held_out = np.sort(np.array(test, dtype=np.int64))
    return np.setdiff1d(np.arange(len(y)), held_out), held_out


def _check_labels(classes: Any, counts: Any, target: str) -> None:
    if counts.sum() < _LEAST_ROWS:
        raise TableError(f"Column {target!r} has labels in {counts.sum()} rows; a model needs at least {_LEAST_ROWS}.")
    if len(classes) == 1:
        raise TableError(
            f"Column {target!r} has one value throughout, {str(classes[0])!r}; a model needs at least two classes."
        )
    if len(classes) > _CLASS_SHARE * counts.sum():
        raise TableError(
            f"Column {target!r} has {len(classes)} different values in {counts.sum()} rows: numbers or names, not "
            "classes. Is another column meant?"
        )


def _fit(
    kind: ModelKind, X: Any, labels: Any, options: FitOptions, report: Report, what: str, *, brief: bool = False
) -> Classifier:
    report(what, 0.0)
    if kind is ModelKind.LINEAR:
        linear = BayesianLogisticRegression(method="auto", random_state=options.seed).partial_fit(X, labels)
        return linear.tune(report=partial(report, what))
    max_iter = min(_BRIEF, options.max_iter) if brief else options.max_iter
    return GPClassifier(
        n_inducing=min(options.n_inducing, len(X)),
        max_iter=max_iter,
        scaling=_scaling(X),
        random_state=options.seed,
        verbose=lambda title, iteration, value: report(what, min(iteration / max(max_iter, 1), 1.0)),
    ).fit(X, labels)


def _scaling(X: Float[np.ndarray, "n f"]) -> str:
    """By rank where a column has cells so far out that the others would be a heap."""
    spread = np.quantile(X, [0.01, 0.99], axis=0)
    width = np.maximum(spread[1] - spread[0], 1e-12)
    far = np.maximum(X.max(0) - spread[1], spread[0] - X.min(0)) / width
    is_number = np.array([len(np.unique(column)) > 10 for column in X.T])
    return "quantile" if (far[is_number] > 10.0).any() else "standard"


def _choose(X: Any, y: Any, options: FitOptions, report: Report) -> tuple[ModelKind, dict[str, float]]:
    """Compare kinds of models by rows of training that they have not seen."""
    fitted, judged = split_rows(y, 0.25, options.seed)
    rng = np.random.default_rng(options.seed)
    fitted, judged = (np.sort(rng.permutation(own)[:_MOST_COMPARED]) for own in (fitted, judged))
    known = np.unique(y[fitted])
    judged = judged[np.isin(y[judged], known)]
    nll: dict[str, float] = {}
    for kind in (ModelKind.LINEAR, ModelKind.GP):
        model = _fit(kind, X[fitted], y[fitted], options, report, f"compare: {kind}", brief=True)
        nll[str(kind)] = metrics.nll(model.predict_proba(X[judged]), np.searchsorted(known, y[judged]))
    return ModelKind(min(nll, key=lambda name: nll[name])), nll


def _others(X: Any, y: Any, X_test: Any, y_test: Any, n_classes: int, seed: int, report: Report) -> list[Score]:
    """What others reach, with their defaults, from the same features."""
    stops_early = "auto" if np.bincount(y).min() > 1 else False  # by rows of each class that it sets aside
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
                warnings.simplefilter("ignore")  # of searches that could have gone on
                model = make().fit(X, y)
        except ValueError as error:
            warnings.warn(f"{name} cannot be fitted to compare with: {error}", stacklevel=2)
            continue
        seconds = time.perf_counter() - start
        probs = np.zeros((len(y_test), n_classes))
        probs[:, model.classes_] = model.predict_proba(X_test)
        scores.append(Score.of(name, probs, y_test, round(seconds, 2)))
    return scores
