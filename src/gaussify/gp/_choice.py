"""How labels become Gaussians: method, alpha_eps and temperature, by how well rows are predicted."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gaussify._estimators import (
    FIRST_ALPHA,
    Criterion,
    LabelParameters,
    as_alpha,
    best_label_choice,
    best_temperature,
    mean_nll,
)
from gaussify.gp._models import Latents
from gaussify.likelihoods import ClassLikelihood, LikelihoodMethod, PseudoTargets

# Kernels learnt with small values make more of many rows, but of few rows are too sure of themselves. With the other
# methods they explain labels as noise.
_SHARP_ALPHA = {LikelihoodMethod.VARIATIONAL: 0.02, LikelihoodMethod.MOMENT_ORI: 0.001}


class LabelChoice(NamedTuple):
    """The numbers in use."""

    method: LikelihoodMethod
    alpha_eps: Float[Tensor, "*c"]
    temperature: float
    score: float | None
    """Mean log-likelihood of a row by the criterion, where it was computed."""


def choose_label(
    judge: Callable[[PseudoTargets, bool], Latents],
    labels: Int[Tensor, " n"],
    weight: Float[Tensor, " n"],
    given: LabelParameters,
    n_classes: int,
    *,
    are_held_out: bool,
) -> LabelChoice:
    """Return the best numbers where they are not given; ``judge`` gives the latents of rows for a target table.

    Rows that a flexible kernel was learnt from are predicted ever better by a smaller alpha_eps, which therefore has a
    prior, unless rows are held out of the search and left out of the posterior.
    """
    attempt = partial(_attempt, judge, labels, weight, given, n_classes)
    methods, alpha_eps = given.methods(n_classes), given.alpha_eps
    method = methods[0]
    if alpha_eps is None or len(methods) > 1:
        is_fair = are_held_out and given.criterion is Criterion.LEAVE_ONE_OUT
        prior_weight = 0.0 if is_fair or alpha_eps is not None else 1.0 / float(weight.sum())

        def score(choice: LabelChoice) -> float:
            return _score(choice) + prior_weight * float(log_prior_of_alpha(choice.alpha_eps.log()))

        best = best_label_choice(partial(attempt, rough=True), score, methods, alpha_eps)
        method, alpha_eps = best.method, best.alpha_eps
    return attempt(method, alpha_eps)


def first_choice(given: LabelParameters, n_classes: int, *, many_rows: bool) -> LabelChoice:
    """Return what hyperparameters are learnt with, before there is anything to choose by."""
    method = given.methods(n_classes)[0]
    alpha = _SHARP_ALPHA.get(method, FIRST_ALPHA) if many_rows else FIRST_ALPHA
    temperature = 1.0 if given.temperature is None else given.temperature
    return LabelChoice(method, as_alpha(alpha) if given.alpha_eps is None else given.alpha_eps, temperature, None)


def have_other_targets(a: LabelChoice, b: LabelChoice) -> bool:
    """Return whether two choices turn labels into different Gaussians."""
    return a.method is not b.method or not torch.equal(a.alpha_eps, b.alpha_eps)


def is_better(a: LabelChoice, b: LabelChoice) -> bool:
    """Return whether the first of two choices that were judged by the same rows predicts them better."""
    return _score(a) > _score(b)


def make_table(given: LabelParameters, n_classes: int, choice: LabelChoice) -> tuple[ClassLikelihood, PseudoTargets]:
    """Return the likelihood of a choice, and its target table in float64."""
    likelihood = given.likelihood(n_classes, choice.method, choice.alpha_eps)
    return likelihood, PseudoTargets(*(part.double() for part in likelihood.target_table()))


def _attempt(
    judge: Callable[[PseudoTargets, bool], Latents],
    labels: Int[Tensor, " n"],
    weight: Float[Tensor, " n"],
    given: LabelParameters,
    n_classes: int,
    method: LikelihoodMethod,
    alpha_eps: Float[Tensor, "*c"],
    *,
    rough: bool = False,
) -> LabelChoice:
    choice = LabelChoice(method, alpha_eps, 1.0 if given.temperature is None else given.temperature, None)
    likelihood, table = make_table(given, n_classes, choice)
    mean, variance = judge(table, given.criterion is Criterion.LEAVE_ONE_OUT)
    if given.temperature is None:
        choice = choice._replace(temperature=best_temperature(likelihood, mean, variance, labels, weight, rough=rough))
    with torch.no_grad():
        return choice._replace(score=-mean_nll(likelihood, mean, variance, labels, weight, choice.temperature))


def log_prior_of_alpha(log_alpha: Float[Tensor, "*c"], scale: float = 1.0) -> Float[Tensor, ""]:
    """Return the log-density, but for a constant, of a log-normal prior of alpha_eps around 0.1.

    Examples
    --------
    >>> log_prior_of_alpha(torch.tensor([0.1, 1.0]).log())
    tensor(-2.6509)
    """
    return -0.5 * ((log_alpha - math.log(FIRST_ALPHA)) / scale).square().sum()


def _score(choice: LabelChoice) -> float:
    assert choice.score is not None
    return choice.score
