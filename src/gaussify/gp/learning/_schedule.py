"""The searches of a fit: which there are, where each starts, and which result is kept.

First hyperparameters are learnt with fixed targets, by the evidence or the collapsed bound. Then leave-one-out chooses
method, ``alpha_eps`` and temperature. A sparse model of many rows holds out the rows on which that choice is scored.
The searches do not see them, so the score also says which search to keep. Depending on ``objective``, further searches
go on from there with the class likelihood.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor

from gaussify._calibration import (
    FIRST_ALPHA,
    Choice,
    LabelledRows,
    LabelParameters,
    as_alpha,
    choose_by_latents,
    make_table,
)
from gaussify._estimators import plain
from gaussify._numerics._optimise import SearchReport
from gaussify._typing import no_type_check
from gaussify.gp._inducing import InducingInit, first_points
from gaussify.gp._kernels import KernelOption, first_scales, make_kernel
from gaussify.gp._models import ExactModel, InducingFeatures, LatentModel, SparseModel
from gaussify.gp._parameters import GPParameters, Objective
from gaussify.gp._rows import SortedRows
from gaussify.gp.learning._hyperparameters import (
    LabelFamily,
    Round,
    SearchSettings,
    learn_exact,
    learn_exact_with_labels,
    learn_sparse,
    learn_sparse_with_labels,
    with_more_points,
)
from gaussify.gp.objectives._expectation import log_predictive, sampled_expectation, tempered
from gaussify.gp.objectives._likelihood import LikelihoodObjective
from gaussify.likelihoods import LikelihoodMethod

_N_ROUNDS = 4  # of a search; after each of them held-out rows may end it
_HELD_OUT_SHARE = 0.25  # rows are held out if that takes at most this share of them

# From many rows, kernels learnt with these small values predict better; from few rows they are overconfident. With the
# other methods they explain labels as noise.
_ALPHA_OF_MANY_ROWS = {LikelihoodMethod.VARIATIONAL: 0.02, LikelihoodMethod.MOMENT_ORI: 0.001}

_Start = Sequence[tuple[Kernel, Float[Tensor, "m d"]]]  # kernels and inducing points from which a search sets out


class FitResult(NamedTuple):
    """A model with learnt hyperparameters, its label parameters, and how the searches went."""

    model: LatentModel
    choice: Choice
    reports: list[SearchReport]
    learnt_by: Objective
    """The objective of the search that was kept."""


class _SparseResult(NamedTuple):
    """A result of which another search can go on."""

    features: list[InducingFeatures]
    model: SparseModel
    choice: Choice
    reports: list[SearchReport]
    learnt_by: Objective

    @property
    def start(self) -> _Start:
        return [(own.kernel, own.points) for own in self.features]


@no_type_check
def fit_model(given: GPParameters, rows: SortedRows, kernel: KernelOption, *, owner: str) -> FitResult:
    """Learn hyperparameters and label parameters from scaled rows.

    Parameters
    ----------
    given : GPParameters
        Parameters of the estimator, with inducing points in scaled units.
    rows : SortedRows
        Distinct rows, in the order of a hash within each class.
    kernel : gpytorch.kernels.Kernel, str or None
        The estimator's ``kernel`` parameter.
    owner : str
        Name of the estimator, for errors.
    """
    fit = _Fit.of(given, rows, partial(make_kernel, kernel, owner=owner))
    return fit.exact() if given.n_inducing is None else fit.sparse()


class _Fit(NamedTuple):
    given: GPParameters
    rows: SortedRows
    make_kernel: Callable[..., Kernel]  # takes the first scales
    scored: Int[Tensor, " k"]  # places of the rows on which choices are scored
    holds_out: bool  # whether searches leave these rows out
    settings: SearchSettings

    @classmethod
    def of(cls, given: GPParameters, rows: SortedRows, make_kernel: Callable[..., Kernel]) -> "_Fit":
        # Rows are in the order of a hash within each class, so rows at regular distances are a random sample.
        n = len(rows.labels)
        scored = torch.linspace(0, n - 1, min(n, given.sample_size), dtype=torch.float64).round().long()
        holds_out = given.n_inducing is not None and len(scored) <= _HELD_OUT_SHARE * n
        if holds_out:  # except all rows of a class: the search needs some
            counts, held_out = (part.bincount(minlength=rows.n_classes) for part in (rows.labels, rows.labels[scored]))
            kept = scored[(held_out < counts)[rows.labels[scored]]]
            holds_out, scored = len(kept) > 0, kept if len(kept) > 0 else scored
        settings = SearchSettings(given.shared_kernel, given.max_iter, given.tol, given.verbose)
        return cls(given, rows, make_kernel, scored, holds_out, settings)

    def exact(self) -> FitResult:
        given, rows = self.given, self.rows
        if given.objective is Objective.MATCHED:
            model, reports = self.exact_by_evidence(self.first_choices()[0])
            return FitResult(model, self.choose(model, given.label), reports, Objective.MATCHED)
        results = []
        for choice in self.first_choices():
            (kernel,) = self.exact_by_evidence(choice)[0].kernels
            settings = self.settings._replace(title=_title(given.objective, choice))
            family = self.family(given.objective, choice)
            results.append((choice.method, *learn_exact_with_labels(rows, family, kernel, settings)))
        method, model, alpha_eps, report = max(results, key=lambda result: result[-1].value)
        return FitResult(model, self.choose(model, self.label(method, alpha_eps)), [report], given.objective)

    def exact_by_evidence(self, targets: Choice) -> tuple[ExactModel, list[SearchReport]]:
        _, table = make_table(self.given.label, self.rows.n_classes, targets)
        kernel = self.make_kernel(*first_scales(self.rows, table))
        return learn_exact(self.rows, table, kernel, self.settings)

    def sparse(self) -> FitResult:
        given = self.given
        searched = self.rows.without(self.scored) if self.holds_out else self.rows
        first, *others = self.first_choices()
        start = self.sparse_start(searched, first)
        if given.objective is Objective.MATCHED:
            best = self.by_collapsed_bound(searched, start, first, given.label)
            if self.holds_out and given.max_iter > 0 and _have_other_targets(best.choice, first):
                # Other hyperparameters may suit the targets that were chosen better.
                again = self.by_collapsed_bound(searched, best.start, best.choice, given.label, _again(best.choice))
                best = again if _is_better(again.choice, best.choice) else best
        else:
            best = self.by_likelihood(searched, start, first)
            for other in others:
                candidate = self.by_likelihood(searched, self.sparse_start(searched, other), other)
                best = candidate if self.prefers(candidate, best) else best
        if given.n_inducing_predict is not None:
            features = with_more_points(best.features, given.n_inducing_predict, searched, given.seed)
            label = self.label(best.choice.method, best.choice.alpha_eps)
            best = self.calibrated(features, label, best.reports, best.learnt_by)
        return FitResult(best.model, best.choice, best.reports, best.learnt_by)

    def sparse_start(self, searched: SortedRows, targets: Choice) -> _Start:
        """Return kernel and inducing points before anything is learnt."""
        given = self.given
        _, table = make_table(given.label, self.rows.n_classes, targets)
        kernel, points = self.make_kernel(*first_scales(self.rows, table)), given.inducing
        if isinstance(points, InducingInit):
            assert given.n_inducing is not None
            points = first_points(points, given.n_inducing, searched.features, searched.weight, kernel, given.seed)
        return [(kernel, points)]

    def by_collapsed_bound(
        self, searched: SortedRows, start: _Start, targets: Choice, label: LabelParameters, title: str = ""
    ) -> _SparseResult:
        """Learn hyperparameters with fixed targets, then choose the label parameters."""
        _, table = make_table(self.given.label, self.rows.n_classes, targets)
        settings = self.settings._replace(title=title)
        features, reports = learn_sparse(searched, table, start, settings, learn_points=self.given.learn_inducing)
        return self.calibrated(features, label, reports, Objective.MATCHED)

    def by_likelihood(self, searched: SortedRows, start: _Start, targets: Choice) -> _SparseResult:
        """Learn hyperparameters with fixed targets, then go on with the objective, which also learns alpha_eps.

        Held-out rows end a search before predictions get worse. The bound may still rise then, so the search goes on
        with leave-one-out.
        """
        given = self.given
        best = self.by_collapsed_bound(searched, start, targets, self.label(targets.method, targets.alpha_eps))
        best = self.follow(given.objective, searched, best)
        if given.objective is Objective.ELBO and self.holds_out:
            best = self.follow(Objective.LEAVE_ONE_OUT, searched, best)
        if best.learnt_by is not given.objective:  # report the value of the objective that was asked for
            (end,) = self.rounds(given.objective, searched, best, max_iter=0)
            best = best._replace(reports=[best.reports[0]._replace(value=end.report.value)])
        return best

    def follow(self, objective: Objective, searched: SortedRows, best: _SparseResult) -> _SparseResult:
        """Go on from a result with an objective, round by round, for as long as held-out rows are predicted better."""
        for features, alpha_eps, report in self.rounds(objective, searched, best, self.given.max_iter):
            label = self.label(best.choice.method, alpha_eps)
            candidate = self.calibrated([features], label, [report], objective)
            if self.holds_out and not _is_better(candidate.choice, best.choice):
                break
            best = candidate
        return best

    def rounds(
        self, objective: Objective, searched: SortedRows, start: _SparseResult, max_iter: int
    ) -> Iterator[Round]:
        ((kernel, points),) = start.start
        return learn_sparse_with_labels(
            searched,
            self.family(objective, start.choice),
            (kernel, points),
            self.settings._replace(title=_title(objective, start.choice), max_iter=max_iter),
            learn_points=self.given.learn_inducing,
            batch_size=self.given.batch_size,
            seed=self.given.seed,
            n_rounds=_N_ROUNDS if self.holds_out else 1,
        )

    def prefers(self, a: _SparseResult, b: _SparseResult) -> bool:
        """Return whether the first result is better: on held-out rows, or by the objective if there are none."""
        return _is_better(a.choice, b.choice) if self.holds_out else a.reports[0].value > b.reports[0].value

    def first_choices(self) -> list[Choice]:
        """Return the targets with which hyperparameters are first learnt, for each method, the default first."""
        label = self.given.label
        temperature = 1.0 if label.temperature is None else label.temperature

        def alpha_of(method: LikelihoodMethod) -> Float[Tensor, "*c"]:
            if label.alpha_eps is not None:
                return label.alpha_eps
            return as_alpha(_ALPHA_OF_MANY_ROWS.get(method, FIRST_ALPHA) if self.holds_out else FIRST_ALPHA)

        methods = label.methods(self.rows.n_classes)
        return [Choice(method, alpha_of(method), temperature, None) for method in methods]

    def family(self, objective: Objective, first: Choice) -> LabelFamily:
        """Return an objective with the class likelihood, and the target tables it may choose from."""
        given, n_classes, method = self.given, self.rows.n_classes, first.method
        likelihood = given.label.likelihood(n_classes, method, first.alpha_eps)
        if objective is Objective.LEAVE_ONE_OUT:  # predictions have a temperature, the bound has none
            score = tempered(log_predictive(likelihood, given.n_samples, given.seed), given.label.temperature or 1.0)
        elif given.n_samples is None:
            score = likelihood.expected_log_prob
        else:
            score = sampled_expectation(likelihood, given.n_samples, given.seed)
        return LabelFamily(
            lambda alpha_eps: given.label.likelihood(n_classes, method, alpha_eps).target_table(),
            LikelihoodObjective(score, leaves_out=objective is Objective.LEAVE_ONE_OUT),
            first.alpha_eps.expand(n_classes) if given.label.alpha_per_class else first.alpha_eps,
            learns_alpha=given.label.alpha_eps is None,
        )

    def calibrated(
        self,
        features: list[InducingFeatures],
        label: LabelParameters,
        reports: list[SearchReport],
        learnt_by: Objective,
    ) -> _SparseResult:
        """Return the model of all rows with these features, and the best label parameters for it."""
        model = SparseModel.of_rows(features, self.rows)
        return _SparseResult(features, model, self.choose(model, label), reports, learnt_by)

    def choose(self, model: LatentModel, label: LabelParameters) -> Choice:
        some, n_classes = self.rows.take(self.scored), self.rows.n_classes
        choice = choose_by_latents(
            model.training_latents(self.rows, self.scored),
            LabelledRows(some.features, some.labels, some.weight),
            label,
            n_classes,
            are_held_out=self.holds_out,
        )
        return choice._replace(alpha_eps=choice.alpha_eps.expand(n_classes)) if label.alpha_per_class else choice

    def label(self, method: LikelihoodMethod, alpha_eps: Float[Tensor, "*c"]) -> LabelParameters:
        """Return label parameters that leave at most the temperature to choose."""
        return self.given.label._replace(method=method, alpha_eps=alpha_eps)


def _have_other_targets(a: Choice, b: Choice) -> bool:
    return a.method is not b.method or not torch.equal(a.alpha_eps, b.alpha_eps)


def _is_better(a: Choice, b: Choice) -> bool:
    """Return whether the first of two choices, scored on the same rows, predicts them better."""
    assert a.score is not None
    assert b.score is not None
    return a.score > b.score


def _title(objective: Objective, choice: Choice) -> str:
    return f"{objective} with {choice.method}, "


def _again(targets: Choice) -> str:
    return f"again with {targets.method}, alpha_eps={plain(targets.alpha_eps)}: "
