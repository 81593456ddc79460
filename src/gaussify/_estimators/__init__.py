"""What all estimators have in common: rows and labels checked, label parameters, calibration, model files."""

from gaussify._estimators._calibration import (
    ALPHA_GRID,
    FIRST_ALPHA,
    Criterion,
    LabelledRows,
    as_alpha,
    best_temperature,
    climb,
    is_usable,
    mean_nll,
    most_rows,
)
from gaussify._estimators._labels import (
    LabelParameters,
    LikelihoodKind,
    checked_label_parameters,
    checked_positive,
    is_auto,
)
from gaussify._estimators._model_file import Packed, expect, expect_numbers, pack_classes, plain, unpack_classes
from gaussify._estimators._streaming import Floats, Indices, StreamingClassifier, unchanged_on_error

__all__ = [
    "ALPHA_GRID",
    "FIRST_ALPHA",
    "Criterion",
    "Floats",
    "Indices",
    "LabelParameters",
    "LabelledRows",
    "LikelihoodKind",
    "Packed",
    "StreamingClassifier",
    "as_alpha",
    "best_temperature",
    "checked_label_parameters",
    "checked_positive",
    "climb",
    "expect",
    "expect_numbers",
    "is_auto",
    "is_usable",
    "mean_nll",
    "most_rows",
    "pack_classes",
    "plain",
    "unchanged_on_error",
    "unpack_classes",
]
