"""Names of options, as editors complete them, are those that the enums accept."""

from typing import get_args

import pytest

from gaussify.datasets._generators import Drift, DriftName
from gaussify.datasets._load import DatasetName, DatasetOption
from gaussify.likelihoods import LikelihoodMethod, LikelihoodMethodName, PredictiveMethod, PredictiveName
from gaussify.matching import MatchMethod, MethodName
from gaussify.metrics._calibration import BinConfidence, BinConfidenceName
from gaussify.metrics._ood import OODScore, OODScoreName

PAIRS = [
    (MatchMethod, MethodName),
    (LikelihoodMethod, LikelihoodMethodName),
    (PredictiveMethod, PredictiveName),
    (BinConfidence, BinConfidenceName),
    (OODScore, OODScoreName),
    (Drift, DriftName),
    (DatasetName, DatasetOption),
]


@pytest.mark.parametrize(("options", "names"), PAIRS, ids=[options.__name__ for options, _ in PAIRS])
def test_literal_names_are_those_of_the_enum(options, names):
    assert set(get_args(names)) == {option.value for option in options}
