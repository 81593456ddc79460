"""Tables with a column of labels: from a file to a model with probabilities, a report, and back to files.

Needs pyarrow and matplotlib: ``pip install "gaussify[table]"``. The commands ``gaussify fit``, ``predict``, ``update``,
``evaluate``, ``merge`` and ``info`` are shells around this.
"""

from gaussify.tables._columns import Column, ColumnKind, learn_column
from gaussify.tables._encoder import TableEncoder, as_table, require_column
from gaussify.tables._files import (
    STANDARD_STREAM,
    TableReader,
    open_table,
    read_table,
    write_rows,
)
from gaussify.tables._model import MODEL_FILE, REPORT_FILE, LabelledRows, LearntRows, TableModel, take_labelled
from gaussify.tables._predicting import evaluate_rows, predict_rows
from gaussify.tables._report import describe, report_html, save_fitted
from gaussify.tables._training import (
    FitOptions,
    FittedTable,
    HeldOut,
    ModelKind,
    Score,
    fit_like,
    fit_table,
    tabulate_scores,
)

__all__ = [
    "MODEL_FILE",
    "REPORT_FILE",
    "STANDARD_STREAM",
    "Column",
    "ColumnKind",
    "FitOptions",
    "FittedTable",
    "HeldOut",
    "LabelledRows",
    "LearntRows",
    "ModelKind",
    "Score",
    "TableEncoder",
    "TableModel",
    "TableReader",
    "as_table",
    "describe",
    "evaluate_rows",
    "fit_like",
    "fit_table",
    "learn_column",
    "open_table",
    "predict_rows",
    "read_table",
    "report_html",
    "require_column",
    "save_fitted",
    "tabulate_scores",
    "take_labelled",
    "write_rows",
]
