"""Calibration: which Gaussians stand for labels, chosen by how well left-out rows are predicted.

Every estimator chooses ``method``, ``alpha_eps`` and ``temperature`` here. Read ``_choice.py`` first: an estimator says
how to complete and score one choice, and ``choose`` tries the others.
"""

from gaussify._calibration._choice import (
    ALPHA_GRID,
    FIRST_ALPHA,
    Choice,
    choose,
    choose_by_latents,
    log_prior_of_alpha,
    make_table,
    with_temperature,
)
from gaussify._calibration._criteria import (
    Criterion,
    LabelledRows,
    best_temperature,
    is_usable,
    mean_nll,
    most_rows,
)
from gaussify._calibration._labels import (
    LEAST_ALPHA,
    PER_CLASS,
    AlphaOption,
    CriterionName,
    LabelParameters,
    LikelihoodKind,
    LikelihoodName,
    MethodOption,
    as_alpha,
    checked_label_parameters,
    checked_positive,
    checked_positive_or_auto,
    is_auto,
)
from gaussify._calibration._offsets import best_calibration, spread_offset
from gaussify._calibration._packing import pack_choice, unpack_choice

__all__ = [
    "ALPHA_GRID",
    "FIRST_ALPHA",
    "LEAST_ALPHA",
    "PER_CLASS",
    "AlphaOption",
    "Choice",
    "Criterion",
    "CriterionName",
    "LabelParameters",
    "LabelledRows",
    "LikelihoodKind",
    "LikelihoodName",
    "MethodOption",
    "as_alpha",
    "best_calibration",
    "best_temperature",
    "checked_label_parameters",
    "checked_positive",
    "checked_positive_or_auto",
    "choose",
    "choose_by_latents",
    "is_auto",
    "is_usable",
    "log_prior_of_alpha",
    "make_table",
    "mean_nll",
    "most_rows",
    "pack_choice",
    "spread_offset",
    "unpack_choice",
    "with_temperature",
]
