import math
import re

import jaxtyping
import numpy as np
import pytest
import torch

from gaussify import BinomialLikelihood, LogisticLikelihood, PoissonLikelihood, SoftmaxLikelihood
from gaussify.exceptions import GaussifyError, InvalidArgumentError

NAN, INF = math.nan, math.inf
SOFTMAX, LOGISTIC, POISSON, BINOMIAL = (
    SoftmaxLikelihood(3),
    LogisticLikelihood(),
    PoissonLikelihood(),
    BinomialLikelihood(),
)
MEAN, VARIANCE = torch.zeros(2, 3), torch.ones(2, 3)
ONE_MEAN, ONE_VARIANCE = torch.zeros(2, 1), torch.ones(2, 1)


def check_refused(call, *expected: str) -> None:
    """Each part of the message must be there, in this order: which argument, of whom, what is allowed, what came."""
    with pytest.raises(InvalidArgumentError, match=".*".join(re.escape(part) for part in expected)):
        call()


# --- parameters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [SoftmaxLikelihood, LogisticLikelihood, PoissonLikelihood, BinomialLikelihood])
@pytest.mark.parametrize(
    ("alpha_eps", "message"),
    [
        (-0.1, "must be positive; got -0.1"),
        (0, "must be positive; got 0"),
        (NAN, "must be finite; got nan"),
        (INF, "must be finite; got inf"),
        ([0.1, 0.1], "must be a number"),
        ("large", "must be numbers; got 'large'"),
        (None, "must be numbers; got None"),
    ],
    ids=["negative", "zero", "nan", "inf", "wrong-length", "text", "none"],
)
def test_alpha_eps_is_checked(family, alpha_eps, message):
    arguments = (3, alpha_eps) if family is SoftmaxLikelihood else (alpha_eps,)
    check_refused(lambda: family(*arguments), "'alpha_eps'", family.__name__, message)


@pytest.mark.parametrize("family", [LogisticLikelihood, BinomialLikelihood])
@pytest.mark.parametrize("beta_eps", [-0.1, 0.0], ids=["negative", "zero"])
def test_beta_eps_must_be_positive(family, beta_eps):
    check_refused(lambda: family(0.1, beta_eps), "'beta_eps'", family.__name__, f"must be positive; got {beta_eps:g}")


def test_beta_eps_of_poisson_may_be_zero_but_not_negative():
    check_refused(lambda: PoissonLikelihood(0.1, -1.0), "'beta_eps'", "PoissonLikelihood", "must be at least 0; got -1")


def test_wrong_length_alpha_eps_names_the_length():
    check_refused(lambda: SoftmaxLikelihood(3, [0.1, 0.1]), "a vector of length 3; got shape (2,)")


def test_one_bad_alpha_eps_of_several_is_located():
    check_refused(lambda: SoftmaxLikelihood(3, [0.1, -0.2, 0.1]), "'alpha_eps'", "positive; got -0.2 at index 1")


@pytest.mark.parametrize("n_classes", [1, 0, -3, True])
def test_n_classes_must_be_an_integer_of_at_least_two(n_classes):
    check_refused(
        lambda: SoftmaxLikelihood(n_classes),
        "'n_classes'",
        "SoftmaxLikelihood",
        f"must be an integer of at least 2; got {n_classes!r}",
    )


@pytest.mark.parametrize("family", [SoftmaxLikelihood, LogisticLikelihood, PoissonLikelihood, BinomialLikelihood])
@pytest.mark.parametrize("label_variance", [0.0, -1.0, NAN], ids=["zero", "negative", "nan"])
def test_label_variance_must_be_positive(family, label_variance):
    arguments = (3,) if family is SoftmaxLikelihood else ()
    check_refused(
        lambda: family(*arguments, method="gauss", label_variance=label_variance), "'label_variance'", "must be"
    )


@pytest.mark.parametrize("family", [SoftmaxLikelihood, LogisticLikelihood, PoissonLikelihood, BinomialLikelihood])
@pytest.mark.parametrize("method", ["laplce", ""])
def test_an_unknown_method_lists_the_allowed(family, method):
    arguments = (3,) if family is SoftmaxLikelihood else ()
    check_refused(
        lambda: family(*arguments, method=method),
        "'method'",
        family.__name__,
        "'laplace', 'variational', 'moment', ",
        f"got {method!r}",
    )


@pytest.mark.parametrize("likelihood", [SOFTMAX, LOGISTIC], ids=["softmax", "logistic"])
def test_an_unknown_predictive_method_lists_the_allowed(likelihood):
    mean = torch.zeros(2, likelihood.n_latents)
    check_refused(
        lambda: likelihood.predict_proba(mean, mean, "exact"),
        "'method'",
        "predict_proba",
        "'quadrature', 'monte-carlo', 'mean-field', 'bridge', 'plug-in'; got 'exact'",
    )


@pytest.mark.parametrize("n_samples", [0, -1])
def test_n_samples_must_be_a_positive_integer(n_samples):
    check_refused(
        lambda: SOFTMAX.predict_proba(MEAN, VARIANCE, "monte-carlo", n_samples=n_samples),
        "'n_samples'",
        f"integer of at least 1; got {n_samples}",
    )


WRONG_TYPES = {
    "SoftmaxLikelihood(2.5)": "'n_classes' parameter of SoftmaxLikelihood must be an integer of at least 2; got 2.5.",
    "SoftmaxLikelihood('3')": "'n_classes' parameter of SoftmaxLikelihood must be an integer of at least 2; got '3'.",
    "SoftmaxLikelihood(None)": "'n_classes' parameter of SoftmaxLikelihood must be an integer of at least 2; got None.",
    "LogisticLikelihood(method=None)": "'laplace', 'variational', 'moment', 'gauss'; got None.",
    "PoissonLikelihood(label_variance='x')": "'label_variance' of PoissonLikelihood must be numbers; got 'x'.",
    "SoftmaxLikelihood(2).predict_proba([[0.0, 0.0]], [[1.0, 1.0]], 3)": "'bridge', 'plug-in'; got 3.",
    "SoftmaxLikelihood(2).predict_proba([[0.0, 0.0]], [[1.0, 1.0]], n_samples=2.5)": "at least 1; got 2.5.",
    "SoftmaxLikelihood(2).predict_proba([[0.0, 0.0]], [[1.0, 1.0]], 'monte-carlo', seed='a')": "'seed' parameter",
    "PoissonLikelihood().predict_proba([[0.0]], [[1.0]], max_count=2.5)": "integer of at least 0; got 2.5.",
    "PoissonLikelihood().predict_proba([[0.0]], [[1.0]], max_count=None)": "integer of at least 0; got None.",
    "SoftmaxLikelihood(np.int64(3))": "nothing was refused",
}


@pytest.mark.parametrize("expression", WRONG_TYPES)
def test_arguments_of_the_wrong_type_are_checked(expression, monkeypatch):
    """As for users, whose types nothing checks before gaussify does."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    try:
        eval(expression)
    except InvalidArgumentError as error:
        message = str(error)
    else:
        message = "nothing was refused"
    assert WRONG_TYPES[expression] in message


def test_every_refusal_is_a_value_error_and_a_gaussify_error():
    assert issubclass(InvalidArgumentError, ValueError)
    assert issubclass(InvalidArgumentError, GaussifyError)


# --- labels ------------------------------------------------------------------------------------------------------

BAD_LABELS = [
    pytest.param([0, 3], "integers from 0 to 2; got 3 at index 1", id="out-of-range"),
    pytest.param([0, -1], "integers from 0 to 2; got -1 at index 1", id="negative"),
    pytest.param([0.5, 1.0], "integers from 0 to 2; got 0.5 at index 0", id="fractional"),
    pytest.param([0.0, NAN], "got nan at index 1", id="nan"),
    pytest.param(["cat", "dog"], "must be numbers; got ['cat', 'dog']", id="text"),
    pytest.param([[1.0, 0.0], [0.0, 1.0]], "must have 3 columns (its last dimension); got shape (2, 2)", id="columns"),
    pytest.param(np.zeros((2, 3, 3)), "labels of shape (n,) or counts of shape (n, 3); got shape (2, 3, 3)", id="3-d"),
    pytest.param(1, "labels of shape (n,) or counts of shape (n, 3); got shape ()", id="scalar"),
    pytest.param(
        [[1.0, -1.0, 0.0], [1.0, 0.0, 0.0]], "must be at least 0; got -1 at index (0, 1)", id="negative-count"
    ),
    pytest.param([[1.0, NAN, 0.0], [1.0, 0.0, 0.0]], "must be finite; got nan at index (0, 1)", id="nan-count"),
]


@pytest.mark.parametrize("function", ["encode", "log_prob", "expected_log_prob"])
@pytest.mark.parametrize(("y", "message"), BAD_LABELS)
def test_labels_are_checked(function, y, message):
    before = {"encode": (), "log_prob": (MEAN,), "expected_log_prob": (MEAN, VARIANCE)}[function]
    check_refused(lambda: getattr(SOFTMAX, function)(*before, y), f"SoftmaxLikelihood.{function}", message)


@pytest.mark.parametrize("as_given", [list, np.array, torch.tensor], ids=["list", "numpy", "tensor"])
@pytest.mark.parametrize("bad", [2, -1, 0.5, NAN, INF])
def test_binary_labels_are_checked_in_every_container(as_given, bad):
    check_refused(lambda: LOGISTIC.encode(as_given([0.0, bad])), "LogisticLikelihood.encode", f"got {bad:g} at index 1")


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int8", "int64", "bool", "float32"])
def test_labels_of_every_number_type_are_taken(dtype):
    assert torch.equal(SOFTMAX.encode(np.array([0, 1], dtype=dtype)).mean, SOFTMAX.encode([0, 1]).mean)


def test_ragged_counts_are_refused():
    check_refused(lambda: SOFTMAX.encode([[1.0, 0.0, 0.0], [1.0]]), "SoftmaxLikelihood.encode")


def test_gauss_refuses_a_row_without_counts():
    likelihood = SoftmaxLikelihood(3, method="gauss")
    check_refused(
        lambda: likelihood.encode([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), "'gauss' needs at least one count", "row 1"
    )


# --- latents -----------------------------------------------------------------------------------------------------

GAUSSIAN_FUNCTIONS = {
    "softmax-predict_proba": (SOFTMAX, lambda m, v: SOFTMAX.predict_proba(m, v)),
    "softmax-predict_uncertainty": (SOFTMAX, lambda m, v: SOFTMAX.predict_uncertainty(m, v)),
    "softmax-expected_log_prob": (SOFTMAX, lambda m, v: SOFTMAX.expected_log_prob(m, v, [0, 1])),
    "logistic-predict_proba": (LOGISTIC, lambda m, v: LOGISTIC.predict_proba(m, v)),
    "logistic-predict_uncertainty": (LOGISTIC, lambda m, v: LOGISTIC.predict_uncertainty(m, v)),
    "logistic-expected_log_prob": (LOGISTIC, lambda m, v: LOGISTIC.expected_log_prob(m, v, [0, 1])),
    "poisson-predict_proba": (POISSON, lambda m, v: POISSON.predict_proba(m, v, max_count=2)),
    "poisson-predict_mean": (POISSON, lambda m, v: POISSON.predict_mean(m, v)),
    "poisson-predict_log_prob": (POISSON, lambda m, v: POISSON.predict_log_prob(m, v, [0, 1])),
    "poisson-expected_log_prob": (POISSON, lambda m, v: POISSON.expected_log_prob(m, v, [0, 1])),
    "binomial-predict_proba": (BINOMIAL, lambda m, v: BINOMIAL.predict_proba(m, v, n_trials=2)),
    "binomial-predict_mean": (BINOMIAL, lambda m, v: BINOMIAL.predict_mean(m, v, 2)),
    "binomial-predict_log_prob": (BINOMIAL, lambda m, v: BINOMIAL.predict_log_prob(m, v, [0, 1], 2)),
    "binomial-expected_log_prob": (BINOMIAL, lambda m, v: BINOMIAL.expected_log_prob(m, v, [0, 1], 2)),
}
gaussian_functions = pytest.mark.parametrize("name", GAUSSIAN_FUNCTIONS)


def gaussian_call(name: str):
    likelihood, call = GAUSSIAN_FUNCTIONS[name]
    owner = f"{type(likelihood).__name__}.{name.split('-')[1]}"
    return call, owner, likelihood.n_latents


@gaussian_functions
def test_latents_with_the_wrong_number_of_columns_are_refused(name):
    call, owner, n_latents = gaussian_call(name)
    wrong = torch.zeros(2, n_latents + 1)
    check_refused(
        lambda: call(wrong, wrong), "'mean'", owner, f"must have {n_latents} column", f"got shape (2, {n_latents + 1})"
    )


@gaussian_functions
def test_latents_in_one_dimension_are_refused(name):
    call, owner, n_latents = gaussian_call(name)
    check_refused(
        lambda: call(torch.zeros(n_latents), torch.ones(n_latents)),
        "'mean'",
        owner,
        "must have 2 dimensions",
        f"got shape ({n_latents},)",
    )


@gaussian_functions
def test_different_numbers_of_rows_are_refused(name):
    call, owner, n_latents = gaussian_call(name)
    check_refused(
        lambda: call(torch.zeros(2, n_latents), torch.ones(3, n_latents)),
        owner,
        "the same number of rows",
        "got mean: 2, variance: 3",
    )


@gaussian_functions
@pytest.mark.parametrize(
    ("bad", "message"),
    [(-1.0, "must be at least 0; got -1"), (NAN, "must be finite; got nan"), (INF, "must be finite; got inf")],
    ids=["negative", "nan", "inf"],
)
def test_variance_is_checked(name, bad, message):
    call, owner, n_latents = gaussian_call(name)
    variance = torch.ones(2, n_latents)
    variance[1, 0] = bad
    check_refused(lambda: call(torch.zeros(2, n_latents), variance), "'variance'", owner, message, "at index (1, 0)")


@gaussian_functions
def test_a_mean_that_is_not_finite_is_refused(name):
    call, owner, n_latents = gaussian_call(name)
    check_refused(
        lambda: call(torch.full((2, n_latents), NAN), torch.ones(2, n_latents)),
        "'mean'",
        owner,
        "must be finite; got nan",
    )


LOG_PROBS = {
    "softmax": (SOFTMAX, lambda f, y: SOFTMAX.log_prob(f, y)),
    "logistic": (LOGISTIC, lambda f, y: LOGISTIC.log_prob(f, y)),
    "poisson": (POISSON, lambda f, y: POISSON.log_prob(f, y)),
    "binomial": (BINOMIAL, lambda f, y: BINOMIAL.log_prob(f, y, 2)),
}


@pytest.mark.parametrize("name", LOG_PROBS)
def test_log_prob_refuses_latents_with_the_wrong_number_of_columns(name):
    likelihood, log_prob = LOG_PROBS[name]
    wrong = torch.zeros(2, likelihood.n_latents + 1)
    check_refused(lambda: log_prob(wrong, [0, 1]), "'latents'", "log_prob", "column", f"got shape {tuple(wrong.shape)}")


@pytest.mark.parametrize("name", LOG_PROBS)
def test_log_prob_refuses_latents_in_one_dimension(name):
    likelihood, log_prob = LOG_PROBS[name]
    check_refused(lambda: log_prob(torch.zeros(likelihood.n_latents), [0]), "'latents'", "log_prob", "dimension")


@pytest.mark.parametrize("name", LOG_PROBS)
@pytest.mark.parametrize("samples", [(), (7,)], ids=["no-samples", "samples"])
def test_log_prob_refuses_another_number_of_labels(name, samples):
    likelihood, log_prob = LOG_PROBS[name]
    latents = torch.zeros(*samples, 2, likelihood.n_latents)
    check_refused(lambda: log_prob(latents, [0, 1, 1]), "log_prob needs the same number of rows", "latents: 2, y: 3")


# --- counts and their sizes --------------------------------------------------------------------------------------

COUNT_FUNCTIONS = {
    "poisson-encode": lambda y: POISSON.encode(y),
    "poisson-log_prob": lambda y: POISSON.log_prob(ONE_MEAN, y),
    "poisson-expected_log_prob": lambda y: POISSON.expected_log_prob(ONE_MEAN, ONE_VARIANCE, y),
    "poisson-predict_log_prob": lambda y: POISSON.predict_log_prob(ONE_MEAN, ONE_VARIANCE, y),
    "binomial-encode": lambda y: BINOMIAL.encode(y, 5),
    "binomial-log_prob": lambda y: BINOMIAL.log_prob(ONE_MEAN, y, 5),
    "binomial-expected_log_prob": lambda y: BINOMIAL.expected_log_prob(ONE_MEAN, ONE_VARIANCE, y, 5),
    "binomial-predict_log_prob": lambda y: BINOMIAL.predict_log_prob(ONE_MEAN, ONE_VARIANCE, y, 5),
}


@pytest.mark.parametrize("name", COUNT_FUNCTIONS)
@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0.0, 0.5], "must be whole numbers; got 0.5 at index 1"),
        ([0.0, -1.0], "must be at least 0; got -1 at index 1"),
        ([0.0, NAN], "must be finite; got nan at index 1"),
        ([[0.0], [1.0]], "must have 1 dimension; got shape (2, 1)"),
        (["a", "b"], "must be numbers; got ['a', 'b']"),
    ],
    ids=["fractional", "negative", "nan", "2-d", "text"],
)
def test_counts_are_checked(name, y, message):
    check_refused(lambda: COUNT_FUNCTIONS[name](y), "'y'", name.split("-")[1], message)


@pytest.mark.parametrize("name", [name for name in COUNT_FUNCTIONS if "encode" not in name])
def test_another_number_of_counts_than_latents_is_refused(name):
    check_refused(lambda: COUNT_FUNCTIONS[name]([0, 1, 1]), name.split("-")[1], "the same number of rows", ": 2, y: 3")


@pytest.mark.parametrize("name", [name for name in COUNT_FUNCTIONS if "binomial" in name])
def test_more_successes_than_trials_are_refused(name):
    check_refused(
        lambda: COUNT_FUNCTIONS[name]([0, 6]), "'y'", "at most 'n_trials'", "6 successes of 5 trials in row 1"
    )


EXPOSURE_FUNCTIONS = {
    "encode": lambda e: POISSON.encode([0, 1], e),
    "log_prob": lambda e: POISSON.log_prob(ONE_MEAN, [0, 1], e),
    "expected_log_prob": lambda e: POISSON.expected_log_prob(ONE_MEAN, ONE_VARIANCE, [0, 1], e),
    "predict_mean": lambda e: POISSON.predict_mean(ONE_MEAN, ONE_VARIANCE, e),
    "predict_proba": lambda e: POISSON.predict_proba(ONE_MEAN, ONE_VARIANCE, max_count=1, exposure=e),
    "predict_log_prob": lambda e: POISSON.predict_log_prob(ONE_MEAN, ONE_VARIANCE, [0, 1], e),
}


@pytest.mark.parametrize("function", EXPOSURE_FUNCTIONS)
@pytest.mark.parametrize(
    ("exposure", "message"),
    [
        (0.0, "must be positive; got 0"),
        ([1.0, -2.0], "must be positive; got -2"),
        (NAN, "must be finite; got nan"),
        ([1.0, 1.0, 1.0], "must be a number or one per row, 2 of them; got shape (3,)"),
    ],
    ids=["zero", "negative", "nan", "wrong-length"],
)
def test_exposure_is_checked(function, exposure, message):
    check_refused(
        lambda: EXPOSURE_FUNCTIONS[function](exposure), "'exposure'", f"PoissonLikelihood.{function}", message
    )


TRIALS_FUNCTIONS = {
    "encode": lambda n: BINOMIAL.encode([0, 1], n),
    "log_prob": lambda n: BINOMIAL.log_prob(ONE_MEAN, [0, 1], n),
    "expected_log_prob": lambda n: BINOMIAL.expected_log_prob(ONE_MEAN, ONE_VARIANCE, [0, 1], n),
    "predict_mean": lambda n: BINOMIAL.predict_mean(ONE_MEAN, ONE_VARIANCE, n),
    "predict_proba": lambda n: BINOMIAL.predict_proba(ONE_MEAN, ONE_VARIANCE, n_trials=n),
    "predict_log_prob": lambda n: BINOMIAL.predict_log_prob(ONE_MEAN, ONE_VARIANCE, [0, 1], n),
}


@pytest.mark.parametrize("function", TRIALS_FUNCTIONS)
@pytest.mark.parametrize(
    ("n_trials", "message"),
    [
        ([2, 2.5], "must be whole numbers; got 2.5 at index 1"),
        ([2, -1], "must be at least 0; got -1 at index 1"),
        (NAN, "must be finite; got nan"),
        ([1, 1, 1], "must be a number or one per row, 2 of them; got shape (3,)"),
    ],
    ids=["fractional", "negative", "nan", "wrong-length"],
)
def test_n_trials_is_checked(function, n_trials, message):
    check_refused(lambda: TRIALS_FUNCTIONS[function](n_trials), "'n_trials'", f"BinomialLikelihood.{function}", message)


@pytest.mark.parametrize("max_count", [-1, True])
def test_max_count_must_be_a_non_negative_integer(max_count):
    check_refused(
        lambda: POISSON.predict_proba(ONE_MEAN, ONE_VARIANCE, max_count=max_count),
        "'max_count'",
        "PoissonLikelihood.predict_proba",
        f"integer of at least 0; got {max_count}",
    )


def test_max_count_must_be_given():
    with pytest.raises(TypeError, match="max_count"):
        POISSON.predict_proba(ONE_MEAN, ONE_VARIANCE)


# --- one row of tensors, which a stream gives and which is checked in its own way ------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("mean", "variance", "message"),
    [
        ([[0.0, NAN, 0.0]], [[1.0, 1.0, 1.0]], "'mean' of SoftmaxLikelihood.predict_proba must be finite; got nan"),
        ([[0.0, INF, -INF]], [[1.0, 1.0, 1.0]], "must be finite; got inf at index (0, 1)"),
        ([[0.0, 0.0, 0.0]], [[1.0, 1.0, INF]], "'variance' of SoftmaxLikelihood.predict_proba must be finite; got inf"),
        ([[0.0, 0.0, 0.0]], [[NAN, -1.0, 1.0]], "must be finite; got nan at index (0, 0)"),
        ([[0.0, 0.0, 0.0]], [[1.0, -1e-9, 1.0]], "must be at least 0; got -1e-09 at index (0, 1)"),
        ([[0.0, 0.0]], [[1.0, 1.0]], "must have 3 columns (its last dimension); got shape (1, 2)"),
        (
            [[0.0, 0.0, 0.0]],
            [[1.0, 1.0, 1.0]] * 2,
            "needs the same number of rows in each argument; got mean: 1, variance: 2",
        ),
        ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], "must have 2 dimensions; got shape (3,)"),
    ],
    ids=["nan", "infs", "inf-variance", "nan-variance", "negative", "columns", "rows", "1-d"],
)
def test_a_row_of_tensors_is_checked(mean, variance, message, dtype):
    mean, variance = (torch.tensor(x, dtype=dtype) for x in (mean, variance))
    check_refused(lambda: SOFTMAX.predict_proba(mean, variance), message)


def test_a_finite_row_whose_sum_overflows_is_accepted():
    probs = SOFTMAX.predict_proba(*(torch.tensor([[x] * 3], dtype=torch.float64) for x in (1.7e308, 1.7e308)))
    assert probs.tolist() == [pytest.approx([1 / 3] * 3, abs=1e-6)]


def test_a_row_of_two_dtypes_has_the_wider_one():
    mean, variance = torch.zeros(1, 3), torch.zeros(1, 3, dtype=torch.float64)
    assert SOFTMAX.predict_proba(mean, variance).dtype == torch.float64


@pytest.mark.parametrize("method", ["quadratur", "QUADRATURE", ""], ids=repr)
def test_an_unknown_predictive_method_is_refused_for_a_row(method):
    row = torch.zeros(1, 3, dtype=torch.float64)
    check_refused(lambda: SOFTMAX.predict_proba(row, row, method), "'method'", "must be one of 'quadrature'")


# --- nothing in, nothing out -------------------------------------------------------------------------------------

NO_ROWS, NO_ROW = torch.zeros(0, 3), torch.zeros(0, 1)
EMPTY = {
    "softmax-encode": (lambda: SOFTMAX.encode([]).mean, (0, 3)),
    "softmax-encode-counts": (lambda: SOFTMAX.encode(NO_ROWS).variance, (0, 3)),
    "softmax-encode-counts-gauss": (lambda: SoftmaxLikelihood(3, method="gauss").encode(NO_ROWS).variance, (0, 3)),
    "softmax-log_prob": (lambda: SOFTMAX.log_prob(NO_ROWS, []), (0,)),
    "softmax-log_prob-samples": (lambda: SOFTMAX.log_prob(torch.zeros(5, 0, 3), []), (5, 0)),
    "softmax-expected_log_prob": (lambda: SOFTMAX.expected_log_prob(NO_ROWS, NO_ROWS, []), (0,)),
    "logistic-encode": (lambda: LOGISTIC.encode([]).mean, (0, 1)),
    "logistic-encode-counts": (lambda: LOGISTIC.encode(torch.zeros(0, 2)).mean, (0, 1)),
    "logistic-log_prob": (lambda: LOGISTIC.log_prob(NO_ROW, []), (0,)),
    "logistic-expected_log_prob": (lambda: LOGISTIC.expected_log_prob(NO_ROW, NO_ROW, []), (0,)),
    "softmax-uncertainty": (lambda: SOFTMAX.predict_uncertainty(NO_ROWS, NO_ROWS).std, (0, 3)),
    "softmax-entropy": (lambda: SOFTMAX.predict_uncertainty(NO_ROWS, NO_ROWS).epistemic_entropy, (0,)),
    "logistic-uncertainty": (lambda: LOGISTIC.predict_uncertainty(NO_ROW, NO_ROW).std, (0, 2)),
    "poisson-encode": (lambda: POISSON.encode([]).mean, (0, 1)),
    "poisson-log_prob": (lambda: POISSON.log_prob(NO_ROW, []), (0,)),
    "poisson-expected_log_prob": (lambda: POISSON.expected_log_prob(NO_ROW, NO_ROW, []), (0,)),
    "poisson-predict_mean": (lambda: POISSON.predict_mean(NO_ROW, NO_ROW), (0,)),
    "poisson-predict_proba": (lambda: POISSON.predict_proba(NO_ROW, NO_ROW, max_count=4), (0, 5)),
    "poisson-predict_log_prob": (lambda: POISSON.predict_log_prob(NO_ROW, NO_ROW, []), (0,)),
    "binomial-encode": (lambda: BINOMIAL.encode([], 3).mean, (0, 1)),
    "binomial-log_prob": (lambda: BINOMIAL.log_prob(NO_ROW, [], 3), (0,)),
    "binomial-expected_log_prob": (lambda: BINOMIAL.expected_log_prob(NO_ROW, NO_ROW, [], 3), (0,)),
    "binomial-predict_mean": (lambda: BINOMIAL.predict_mean(NO_ROW, NO_ROW, 3), (0,)),
    "binomial-predict_proba": (lambda: BINOMIAL.predict_proba(NO_ROW, NO_ROW, n_trials=3)[:, :1], (0, 1)),
    "binomial-predict_log_prob": (lambda: BINOMIAL.predict_log_prob(NO_ROW, NO_ROW, [], 3), (0,)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_no_rows_give_an_empty_result(name):
    call, shape = EMPTY[name]
    assert call().shape == shape


@pytest.mark.parametrize("method", ["quadrature", "monte-carlo", "mean-field", "bridge", "plug-in"])
@pytest.mark.parametrize("likelihood", [SOFTMAX, LOGISTIC], ids=["softmax", "logistic"])
def test_no_rows_give_no_probabilities(likelihood, method):
    empty = torch.zeros(0, likelihood.n_latents)
    assert likelihood.predict_proba(empty, empty, method).shape == (0, likelihood.n_classes)
