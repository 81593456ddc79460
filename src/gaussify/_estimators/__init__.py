"""Base classes of all estimators: checks of rows and labels, streaming, and model files.

Read ``_streaming.py`` first: it checks rows, labels and classes, and restores the state after an error.
"""

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
from gaussify._estimators._model_file import (
    Packed,
    expect,
    expect_numbers,
    pack_classes,
    plain,
    unpack_classes,
    unpack_statistics,
    unpacking,
    whole,
)
from gaussify._estimators._streaming import (
    CheckedClassifier,
    StreamingClassifier,
    check_other_model,
    unchanged_on_error,
)
from gaussify._estimators._weight_space import ClassTargets, WeightFeatures, WeightSpace

__all__ = [
    "CheckedClassifier",
    "ClassTargets",
    "DistinctRows",
    "Floats",
    "Indices",
    "Keys",
    "Packed",
    "StreamingClassifier",
    "WeightFeatures",
    "WeightSpace",
    "check_other_model",
    "distinct_rows",
    "expect",
    "expect_numbers",
    "mix",
    "multipliers",
    "pack_classes",
    "plain",
    "row_sums",
    "unchanged_on_error",
    "unpack_classes",
    "unpack_statistics",
    "unpacking",
    "whole",
]
