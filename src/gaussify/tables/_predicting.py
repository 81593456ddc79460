"""Predict and evaluate the rows of a table, a batch at a time."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int

from gaussify import metrics
from gaussify.exceptions import TableError
from gaussify.tables._encoder import as_table
from gaussify.tables._model import TableModel, take_labelled
from gaussify.tables._training import Score

_N_BINS = 15  # of the calibration error, the default of metrics
_PROBABILITIES = 1 << 20  # most probabilities of a part; a batch of short rows may have far more


def split_batches(batches: Iterable[Any], n_classes: int) -> Iterator[pa.Table]:
    """Yield batches in parts with few enough rows that their probabilities fit into memory.

    Examples
    --------
    >>> [part.num_rows for part in split_batches([{"x": [1, 2, 3]}], n_classes=1 << 19)]
    [2, 1]
    """
    size = max(1, _PROBABILITIES // n_classes)
    for table in map(as_table, batches):
        for start in range(0, table.num_rows, size):
            yield table.slice(start, size)


def predict_rows(model: TableModel, batch: Any, kept: Sequence[str] = ()) -> pa.RecordBatch:
    """Return the columns to keep, the predicted label, its probability, the entropies, and all class probabilities.

    Examples
    --------
    >>> from gaussify.tables import FitOptions, fit_table
    >>> table = pa.table({"x": [1.5 * i for i in range(20)], "y": ["low"] * 10 + ["high"] * 10})
    >>> model = fit_table(table, "y", FitOptions(model="linear", compare=False)).model
    >>> predict_rows(model, {"x": [25.0], "id": ["a"]}, kept=["id"]).to_pylist()[0]
    {'id': 'a', 'predicted': 'high', 'probability': ..., 'entropy': ..., 'epistemic': ..., 'P(high)': ..., ...}
    """
    table = as_table(batch)
    probs, _, entropy, _, epistemic = (part.numpy() for part in model.predict_uncertainty(table))
    columns = {
        "predicted": pa.array(model.classes[probs.argmax(1)].astype(object), pa.string()),
        "probability": probs.max(1),
        "entropy": entropy,
        "epistemic": np.maximum(epistemic, 0.0),
        **{f"P({label})": column for label, column in zip(model.classes, probs.T, strict=True)},
    }
    if hidden := [name for name in kept if name in columns]:
        raise TableError(
            f"The column {hidden[0]!r} cannot be kept, because a column of predictions has this name. Rename it."
        )
    return pa.record_batch({name: table.column(name).combine_chunks() for name in kept} | columns)


def evaluate_rows(model: TableModel, batches: Iterable[Any]) -> tuple[Score, int]:
    """Return the scores on the labelled rows of batches, and the number of these rows.

    Examples
    --------
    >>> from gaussify.tables import FitOptions, fit_table
    >>> table = pa.table({"x": [1.5 * i for i in range(20)], "y": ["low"] * 10 + ["high"] * 10})
    >>> model = fit_table(table, "y", FitOptions(model="linear", compare=False)).model
    >>> score, n_rows = evaluate_rows(model, [table])
    >>> score.accuracy > 0.9, n_rows
    (True, 20)
    """
    score = _RunningScore()
    for part in split_batches(batches, len(model.classes)):
        rows, labels, _ = take_labelled(part, model.target)
        if not len(labels):
            continue
        unknown = np.setdiff1d(labels, model.classes)
        if len(unknown):
            raise TableError(
                f"Column {model.target!r} has the label {str(unknown[0])!r}, which the model does not know. Learn it "
                "with 'gaussify update'."
            )
        score.add(model.predict_proba(rows), np.searchsorted(model.classes, labels))
    if not score.n_rows:
        raise TableError(f"No row has a label in column {model.target!r}.")
    return score.total(), score.n_rows


class _RunningScore:
    """Scores of rows that arrive in batches, kept as sums."""

    def __init__(self) -> None:
        self.n_rows, self._sums = 0, np.zeros(3)
        self._bins = np.zeros((3, _N_BINS))  # rows, sum of confidences, number of correct predictions

    def add(self, probs: Float[np.ndarray, "n c"], labels: Int[np.ndarray, " n"]) -> None:
        """Add a batch."""
        n, bins = len(labels), metrics.reliability(probs, labels, n_bins=_N_BINS)
        self.n_rows += n
        self._sums += n * np.array([score(probs, labels) for score in (metrics.accuracy, metrics.nll, metrics.brier)])
        self._bins += np.nan_to_num([bins.count, bins.count * bins.mean_confidence, bins.count * bins.accuracy])

    def total(self) -> Score:
        """Return the scores of all rows."""
        accuracy, nll, brier = (self._sums / self.n_rows).tolist()
        _, confidence, correct = self._bins
        return Score("gaussify", accuracy, nll, float(np.abs(correct - confidence).sum() / self.n_rows), brier)
