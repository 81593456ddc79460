"""What a model says about the rows of a table, a batch at a time."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gaussify.exceptions import TableError
from gaussify.tables._encoder import as_table
from gaussify.tables._model import TableModel, labelled
from gaussify.tables._training import Score


def predicted(model: TableModel, batch: Any, kept: Sequence[str] = ()) -> pa.RecordBatch:
    """Return the label that is predicted, its probability, entropies and all probabilities, beside columns to keep.

    Examples
    --------
    >>> from gaussify.tables import FitOptions, fit_table
    >>> table = pa.table({"x": [float(i) for i in range(20)], "y": ["low"] * 10 + ["high"] * 10})
    >>> model = fit_table(table, "y", FitOptions(model="linear", compare=False)).model
    >>> predicted(model, {"x": [25.0], "id": ["a"]}, kept=["id"]).to_pylist()[0]
    {'id': 'a', 'predicted': 'high', 'probability': ..., 'entropy': ..., 'epistemic': ..., 'P(high)': ..., ...}
    """
    table = as_table(batch)
    probs, _, entropy, _, epistemic = (part.numpy() for part in model.predict_uncertainty(table))
    columns = {
        "predicted": pa.array(model.classes[probs.argmax(1)].astype(object), pa.string()),
        "probability": probs.max(1),
        "entropy": entropy,
        "epistemic": np.maximum(epistemic, 0.0),
        **{f"P({label})": own for label, own in zip(model.classes, probs.T, strict=True)},
    }
    if hidden := [name for name in kept if name in columns]:
        raise TableError(f"The column {hidden[0]!r} cannot be kept: a column of predictions has its name. Rename it.")
    return pa.record_batch({name: table.column(name).combine_chunks() for name in kept} | columns)


def evaluated(model: TableModel, batches: Iterable[Any]) -> tuple[Score, int]:
    """Return how well the labelled rows of batches are predicted, and how many there are.

    Examples
    --------
    >>> from gaussify.tables import FitOptions, fit_table
    >>> table = pa.table({"x": [float(i) for i in range(20)], "y": ["low"] * 10 + ["high"] * 10})
    >>> model = fit_table(table, "y", FitOptions(model="linear", compare=False)).model
    >>> score, n_rows = evaluated(model, [table])
    >>> score.accuracy > 0.9, n_rows
    (True, 20)
    """
    probs, places = [], []
    for batch in batches:
        rows, labels = labelled(as_table(batch), model.target)
        if not len(labels):
            continue
        unknown = np.setdiff1d(labels, model.classes)
        if len(unknown):
            raise TableError(
                f"Column {model.target!r} has the label {str(unknown[0])!r}, which the model does not know; 'gaussify "
                "update' learns it."
            )
        probs.append(model.predict_proba(rows))
        places.append(np.searchsorted(model.classes, labels))
    if not probs:
        raise TableError(f"No row has a label in column {model.target!r} to compare with.")
    y = np.concatenate(places)
    return Score.of("gaussify", np.concatenate(probs), y), len(y)
