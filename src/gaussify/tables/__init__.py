"""Tables with a column of labels: read a file, fit a model, write a report and predictions.

The commands ``gaussify fit``, ``predict``, ``update``, ``evaluate``, ``merge`` and ``info`` call this package. It needs
pyarrow and matplotlib: ``pip install "gaussify[table]"``. Read ``_training.py`` first; ``_columns.py`` turns cells into
numbers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gaussify.tables._options import FitOptions, ModelKind

if TYPE_CHECKING:
    from gaussify.tables._columns import Column, ColumnKind, learn_column
    from gaussify.tables._encoder import TableEncoder, as_table, require_column
    from gaussify.tables._files import STANDARD_STREAM, TableReader, open_table, read_table, write_rows
    from gaussify.tables._model import MODEL_FILE, REPORT_FILE, LabelledRows, LearntRows, TableModel, take_labelled
    from gaussify.tables._predicting import evaluate_rows, predict_rows, split_batches
    from gaussify.tables._report import describe, report_html, save_fitted
    from gaussify.tables._training import FittedTable, HeldOut, Score, fit_like, fit_table, tabulate_scores

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
    "split_batches",
    "tabulate_scores",
    "take_labelled",
    "write_rows",
]

_HOMES = ("_columns", "_encoder", "_files", "_model", "_predicting", "_report", "_training")


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that the command line starts quickly; only options load at once."""
    if name in __all__:
        for home in _HOMES:
            module = import_module(f"gaussify.tables.{home}")
            if name in vars(module):
                return vars(module)[name]
    raise AttributeError(f"module 'gaussify.tables' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
