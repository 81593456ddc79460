"""What match accepts, what it refuses, and which rule it takes."""

import math
import re

import jaxtyping
import pytest
import torch
from torch.distributions import (
    Bernoulli,
    Beta,
    Cauchy,
    Chi2,
    Dirichlet,
    Exponential,
    FisherSnedecor,
    Gamma,
    HalfCauchy,
    Independent,
    InverseGamma,
    Kumaraswamy,
    MultivariateNormal,
    Normal,
    Poisson,
    Uniform,
)

from gaussify.exceptions import GaussifyError, InvalidArgumentError, NumericalError, UnsupportedMatchError
from gaussify.matching import MatchMethod, _registry, match, register_match, to_basis

METHODS = [method.value for method in MatchMethod]


@pytest.fixture(autouse=True)
def _private_registry(monkeypatch):
    """Rules that a test registers vanish with it."""
    monkeypatch.setattr(_registry, "_RULES", dict(_registry._RULES))


@pytest.fixture
def _no_type_checks(monkeypatch):
    """As for users: the tests' check of annotations would refuse an argument before gaussify does."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def gamma(dtype: torch.dtype = torch.float64) -> Gamma:
    return Gamma(torch.tensor([0.5, 3.0], dtype=dtype), torch.tensor([2.0, 1.0], dtype=dtype))


# ---------------------------------------------------------------------------------------------------------------------
# Rules


def test_rule_of_a_subclass_wins_over_that_of_its_parent():
    class Special(Gamma):
        pass

    @register_match(Special, "moment")
    def _special(distribution: Special) -> Normal:
        return Normal(torch.tensor(7.0), torch.tensor(1.0))

    assert match(Special(torch.tensor(1.0), torch.tensor(1.0)), "moment").mean.item() == 7.0


def test_subclass_without_a_rule_takes_that_of_its_parent():
    class Plain(Gamma):
        pass

    one = torch.tensor(1.0)
    assert match(Plain(one, one), "laplace").mean == match(Gamma(one, one), "laplace").mean


def test_rule_wins_over_numerical_matching():
    @register_match(Kumaraswamy, "laplace")
    def _kumaraswamy(distribution: Kumaraswamy) -> Normal:
        return Normal(torch.tensor(-3.0), torch.tensor(1.0))

    kumaraswamy = Kumaraswamy(torch.tensor(2.0), torch.tensor(2.0))
    assert match(kumaraswamy, "laplace").mean.item() == -3.0
    assert match(kumaraswamy, "moment").mean.item() != -3.0


def test_register_match_returns_the_rule():
    def rule(distribution: Kumaraswamy) -> Normal:
        return Normal(0.0, 1.0)

    assert register_match(Kumaraswamy, "moment")(rule) is rule


@pytest.mark.parametrize("method", METHODS)
def test_enum_and_string_name_the_same_method(method):
    by_name, by_member = match(gamma(), method), match(gamma(), MatchMethod(method))
    assert torch.equal(by_name.mean, by_member.mean)
    assert torch.equal(by_name.variance, by_member.variance)


def test_variational_is_the_default():
    assert torch.equal(match(gamma()).mean, match(gamma(), "variational").mean)


# ---------------------------------------------------------------------------------------------------------------------
# Shapes, dtypes, devices


@pytest.mark.parametrize("method", METHODS)
def test_independent_stays_independent(method):
    rate = torch.tensor([[0.5, 1.0, 2.0], [3.0, 4.0, 5.0]])
    q = match(Independent(Exponential(rate), 1), method)
    assert isinstance(q, Independent)
    assert (q.batch_shape, q.event_shape) == ((2,), (3,))
    assert torch.equal(q.mean, match(Exponential(rate), method).mean)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", [Gamma, Beta, InverseGamma, FisherSnedecor], ids=lambda family: family.__name__)
def test_batch_shapes_broadcast(family, method):
    if (family, method) == (Beta, "moment-ori"):
        pytest.skip("not defined")
    a, b = torch.tensor([[3.0], [4.0]]), torch.tensor([5.0, 6.0, 7.0])
    q = match(family(a, b), method)
    assert q.batch_shape == (2, 3)
    entry = match(family(a[1, 0], b[2]), method)
    assert entry.batch_shape == ()
    torch.testing.assert_close(q.mean[1, 2], entry.mean)
    torch.testing.assert_close(q.variance[1, 2], entry.variance)


@pytest.mark.parametrize("method", METHODS)
def test_empty_batches_give_empty_normals(method):
    empty = torch.ones(0)
    assert match(Gamma(empty, empty), method).batch_shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda x: Gamma(x, x), id="Gamma"),
        pytest.param(lambda x: Chi2(x), id="Chi2"),
        pytest.param(lambda x: Exponential(x), id="Exponential"),
        pytest.param(lambda x: InverseGamma(x, x), id="InverseGamma"),
        pytest.param(lambda x: Beta(x, x), id="Beta"),
        pytest.param(lambda x: Dirichlet(x), id="Dirichlet"),
        pytest.param(lambda x: torch.distributions.Weibull(x, x), id="Weibull"),
        pytest.param(lambda x: torch.distributions.HalfNormal(x), id="HalfNormal"),
        pytest.param(lambda x: torch.distributions.LogNormal(x, x), id="LogNormal"),
        pytest.param(lambda x: FisherSnedecor(x, x), id="FisherSnedecor"),
    ],
)
def test_dtype_and_device_are_kept(build, method, dtype):
    x = torch.tensor([5.0, 6.0], dtype=dtype)
    if isinstance(build(x), Beta) and method == "moment-ori":
        pytest.skip("not defined")
    q = match(build(x), method)
    assert q.mean.dtype == q.variance.dtype == dtype
    assert q.mean.device == x.device


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("family", [Gamma, Beta, FisherSnedecor], ids=lambda family: family.__name__)
def test_device_is_kept_on_a_gpu(family):
    x = torch.tensor([5.0, 6.0], device="cuda")
    assert match(family(x, x)).mean.device == x.device


def test_matching_leaves_the_distribution_as_it_was():
    distribution = FisherSnedecor(torch.tensor(3.0), torch.tensor(4.0), validate_args=True)
    match(distribution, "moment")
    with pytest.raises(ValueError, match="support"):
        distribution.log_prob(torch.tensor(-1.0))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", [Gamma, Beta, FisherSnedecor], ids=lambda family: family.__name__)
def test_result_has_a_graph_only_if_a_parameter_has(family, method):
    if (family, method) == (Beta, "moment-ori"):
        pytest.skip("not defined")
    a, b = torch.tensor(5.0), torch.tensor(6.0)
    assert not match(family(a, b), method).mean.requires_grad
    assert match(family(a.clone().requires_grad_(), b), method).mean.requires_grad


def test_to_basis_of_independent_keeps_its_event():
    basis = to_basis(Independent(Exponential(torch.ones(2, 3)), 1))
    assert (basis.batch_shape, basis.event_shape) == ((2,), (3,))


# ---------------------------------------------------------------------------------------------------------------------
# Errors


def test_unknown_method_is_refused_with_the_choices():
    message = (
        "'method' parameter of match must be one of 'laplace', 'variational', 'moment', 'moment-ori'; got 'laplce'"
    )
    with pytest.raises(InvalidArgumentError, match=message):
        match(gamma(), "laplce")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param(-1.0, r"must satisfy GreaterThan\(lower_bound=0.0\); got -1 at index 1", id="negative"),
        pytest.param(0.0, r"must satisfy GreaterThan\(lower_bound=0.0\); got 0 at index 1", id="zero"),
        pytest.param(math.nan, "must be finite; got nan at index 1", id="nan"),
        pytest.param(math.inf, "must be finite; got inf at index 1", id="inf"),
    ],
)
def test_invalid_concentration_is_refused_with_its_value(value, message):
    concentration = torch.tensor([1.0, value])
    distribution = Gamma(concentration, torch.ones(2), validate_args=False)
    with pytest.raises(
        InvalidArgumentError, match="The 'concentration' parameter of Gamma, given to match, " + message
    ):
        match(distribution)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda x: Beta(x, torch.ones(2), validate_args=False), id="Beta-first"),
        pytest.param(lambda x: Beta(torch.ones(2), x, validate_args=False), id="Beta-second"),
        pytest.param(lambda x: Dirichlet(x, validate_args=False), id="Dirichlet"),
        pytest.param(lambda x: InverseGamma(x, torch.ones(2), validate_args=False), id="InverseGamma"),
        pytest.param(lambda x: Chi2(x, validate_args=False), id="Chi2"),
        pytest.param(lambda x: Kumaraswamy(x, torch.ones(2), validate_args=False), id="Kumaraswamy"),
        pytest.param(lambda x: Independent(Gamma(x, torch.ones(2), validate_args=False), 1), id="Independent"),
    ],
)
def test_invalid_parameters_are_refused_for_every_family(build, value):
    with pytest.raises(InvalidArgumentError, match=r"must (be finite|satisfy)"):
        match(build(torch.tensor([1.0, value])))


@pytest.mark.usefixtures("_no_type_checks")
@pytest.mark.parametrize("thing", [1.0, torch.ones(2), Gamma], ids=["number", "tensor", "class"])
def test_things_that_are_no_distributions_are_refused(thing):
    with pytest.raises(InvalidArgumentError, match=r"match takes a torch\.distributions\.Distribution; got"):
        match(thing)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "distribution", [Bernoulli(torch.tensor(0.3)), Poisson(torch.tensor(2.0))], ids=["Bernoulli", "Poisson"]
)
def test_discrete_distributions_are_refused(distribution, method):
    with pytest.raises(UnsupportedMatchError, match=f"{type(distribution).__name__} has no basis on the real line"):
        match(distribution, method)


def test_multivariate_distributions_are_refused():
    distribution = MultivariateNormal(torch.zeros(2), torch.eye(2))
    with pytest.raises(
        UnsupportedMatchError, match="MultivariateNormal is multivariate: only Dirichlet and Independent"
    ):
        match(distribution)


def test_beta_has_no_moments_on_the_positive_reals():
    with pytest.raises(UnsupportedMatchError, match=re.escape("match(Beta, 'moment-ori') is not defined")):
        match(Beta(torch.tensor(2.0), torch.tensor(3.0)), "moment-ori")


@pytest.mark.parametrize("family", [Kumaraswamy, Uniform], ids=lambda family: family.__name__)
def test_bounded_supports_have_no_log_normal(family):
    with pytest.raises(
        UnsupportedMatchError, match=re.escape(f"match({family.__name__}, 'moment-ori') is not defined")
    ):
        match(family(torch.tensor(1.0), torch.tensor(2.0)), "moment-ori")


@pytest.mark.parametrize("concentration", [2.0, 1.5])
def test_inverse_gamma_without_a_variance_has_no_moment_ori(concentration):
    distribution = InverseGamma(torch.tensor([3.0, concentration]), torch.tensor(1.0))
    with pytest.raises(UnsupportedMatchError, match=f"only for a concentration above 2; got {concentration:g}"):
        match(distribution, "moment-ori")


def test_half_cauchy_without_a_mean_has_no_moment_ori():
    with pytest.raises(UnsupportedMatchError, match=re.escape("match(HalfCauchy, 'moment-ori') needs the mean")):
        match(HalfCauchy(torch.tensor(1.0)), "moment-ori")


@pytest.mark.parametrize("method", ["laplace", "variational", "moment"])
def test_cauchy_is_refused_because_its_density_does_not_fall_off(method):
    with pytest.raises(NumericalError, match="no end to the density of Cauchy"):
        match(Cauchy(torch.tensor(0.0), torch.tensor(1.0)), method)


@pytest.mark.usefixtures("_no_type_checks")
@pytest.mark.parametrize("family", [int, "Gamma", gamma()], ids=["int", "string", "instance"])
def test_register_match_takes_classes_of_distributions_only(family):
    with pytest.raises(InvalidArgumentError, match="register_match takes a class of torch distributions; got"):
        register_match(family, "moment")


def test_register_match_refuses_unknown_methods():
    with pytest.raises(InvalidArgumentError, match="'method' parameter of register_match must be one of"):
        register_match(Gamma, "mean")


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (InvalidArgumentError, ValueError),
        (UnsupportedMatchError, NotImplementedError),
        (NumericalError, ArithmeticError),
    ],
    ids=lambda error: error.__name__,
)
def test_errors_are_gaussify_errors_and_built_ins(error, builtin):
    assert issubclass(error, GaussifyError)
    assert issubclass(error, builtin)
