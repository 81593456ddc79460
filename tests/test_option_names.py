"""Names of options, as editors complete them, are those that the enums accept."""

from typing import get_args

import pytest

from gaussify._calibration import Criterion, CriterionName, LikelihoodKind, LikelihoodName, MethodOption
from gaussify.active._acquisition import Acquisition, AcquisitionName
from gaussify.datasets._generators import Drift, DriftName
from gaussify.datasets._load import DatasetName, DatasetOption
from gaussify.gp._inducing import InducingInit
from gaussify.gp._kernels import KernelName, KernelOption
from gaussify.gp._parameters import InducingName, Objective, ObjectiveName, ScalingName
from gaussify.gp._scaling import ScalingKind
from gaussify.gp.learning._variational import Optimizer, OptimizerName
from gaussify.likelihoods import LikelihoodMethod, LikelihoodMethodName, PredictiveMethod, PredictiveName
from gaussify.matching import MatchMethod, MethodName
from gaussify.metrics._calibration import BinConfidence, BinConfidenceName
from gaussify.metrics._ood import OODScore, OODScoreName
from gaussify.nn.functional import Reduction, ReductionName
from gaussify.tables._options import ModelKind, ModelName

PAIRS = [
    (Reduction, ReductionName),
    (MatchMethod, MethodName),
    (LikelihoodMethod, LikelihoodMethodName),
    (PredictiveMethod, PredictiveName),
    (BinConfidence, BinConfidenceName),
    (OODScore, OODScoreName),
    (Drift, DriftName),
    (DatasetName, DatasetOption),
    (Criterion, CriterionName),
    (LikelihoodKind, LikelihoodName),
    (Objective, ObjectiveName),
    (InducingInit, InducingName),
    (ScalingKind, ScalingName),
    (Optimizer, OptimizerName),
    (Acquisition, AcquisitionName),
    (ModelKind, ModelName),
]


@pytest.mark.parametrize(("options", "names"), PAIRS, ids=[options.__name__ for options, _ in PAIRS])
def test_literal_names_are_those_of_the_enum(options, names):
    assert set(get_args(names)) == {option.value for option in options}


def test_method_names_of_estimators_add_auto():
    assert set(get_args(MethodOption)) == {*get_args(LikelihoodMethodName), "auto"}


def test_kernel_names_are_those_of_the_enum():
    literals = [get_args(part) for part in get_args(KernelOption) if get_args(part)]
    assert literals == [tuple(name.value for name in KernelName)]
