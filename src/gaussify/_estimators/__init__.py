"""What all estimators have in common: rows and labels checked, label parameters, calibration, model files."""

from gaussify._estimators._calibration import (
    ALPHA_GRID,
    FIRST_ALPHA,
    Criterion,
    LabelledRows,
    as_alpha,
    best_label_choice,
    best_temperature,
    is_usable,
    mean_nll,
    most_rows,
)
from gaussify._estimators._distinct import (
    DistinctRows,
    Floats,
    Indices,
    Keys,
    distinct_rows,
    mix,
    multipliers,
    row_sums,
)
from gaussify._estimators._labels import (
    LabelParameters,
    LikelihoodKind,
    checked_label_parameters,
    checked_positive,
    is_auto,
)
from gaussify._estimators._model_file import Packed, expect, expect_numbers, pack_classes, plain, unpack_classes
from gaussify._estimators._streaming import StreamingClassifier, unchanged_on_error

__all__ = [
    "ALPHA_GRID",
    "FIRST_ALPHA",
    "Criterion",
    "DistinctRows",
    "Floats",
    "Indices",
    "Keys",
    "LabelParameters",
    "LabelledRows",
    "LikelihoodKind",
    "Packed",
    "StreamingClassifier",
    "as_alpha",
    "best_label_choice",
    "best_temperature",
    "checked_label_parameters",
    "checked_positive",
    "distinct_rows",
    "expect",
    "expect_numbers",
    "is_auto",
    "is_usable",
    "mean_nll",
    "mix",
    "most_rows",
    "multipliers",
    "pack_classes",
    "plain",
    "row_sums",
    "unchanged_on_error",
    "unpack_classes",
]
