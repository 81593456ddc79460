"""From rows to a model: hyperparameters by a search, and how labels become Gaussians by how rows are predicted.

Where rows are many, those that predictions are judged by take no part in any search but for the scales it begins with,
so that searches can be compared by them.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor

from gaussify._estimators import LabelParameters, plain
from gaussify.gp._choice import LabelChoice, choose_label, first_choice, have_other_targets, is_better, make_table
from gaussify.gp._elbo import ExactObjective
from gaussify.gp._expectation import log_predictive, sampled_expectation, tempered
from gaussify.gp._inducing import InducingInit, first_points
from gaussify.gp._kernels import first_scales, make_kernel
from gaussify.gp._learning import (
    LabelFamily,
    Round,
    SearchSettings,
    learn_exact,
    learn_exact_with_labels,
    learn_sparse,
    learn_sparse_with_labels,
    with_more_points,
)
from gaussify.gp._models import ExactModel, InducingFeatures, LatentModel, SparseModel
from gaussify.gp._objective import SortedRows
from gaussify.gp._parameters import Given, Objective
from gaussify.gp._search import SearchReport
from gaussify.likelihoods import LikelihoodMethod

_N_ROUNDS = 4  # of a search, after each of which rows held out may end it
_HELD_OUT_SHARE = 0.25  # of the rows, up to which they are left out of the search

_Start = Sequence[tuple[Kernel, Float[Tensor, "m d"]]]  # kernels and inducing points that a search sets out from


class Found(NamedTuple):
    """What a fit ends with."""

    model: LatentModel
    choice: LabelChoice
    reports: list[SearchReport]
    learnt_by: Objective


class _FoundSparse(NamedTuple):
    features: list[InducingFeatures]
    model: SparseModel
    choice: LabelChoice
    reports: list[SearchReport]
    learnt_by: Objective

    @property
    def start(self) -> _Start:
        """Of a search that goes on from here."""
        return [(own.kernel, own.points) for own in self.features]


def fit_model(given: Given, rows: SortedRows, kernel: Any, *, owner: str) -> Found:
    """Learn hyperparameters and label parameters from rows in scaled units.

    Parameters
    ----------
    given : Given
        The parameters of the estimator, inducing points in scaled units.
    rows : SortedRows
        Distinct rows, in the order of a hash within each class.
    kernel : gpytorch.kernels.Kernel, str or None
        As it was given.
    owner : str
        Name of the estimator, for errors.
    """
    fit = _Fit.of(given, rows, partial(make_kernel, kernel, owner=owner))
    return fit.exact() if given.n_inducing is None else fit.sparse()


class _Fit(NamedTuple):
    given: Given
    rows: SortedRows
    make_kernel: Callable[..., Kernel]  # from first scales
    places: Int[Tensor, " k"]  # of rows that predictions are judged by
    holds_out: bool  # whether these take no part in a search
    settings: SearchSettings

    @classmethod
    def of(cls, given: Given, rows: SortedRows, make_kernel: Callable[..., Kernel]) -> "_Fit":
        # rows are in the order of a hash within each class, so those at regular distances are a sample
        n = len(rows.labels)
        places = torch.linspace(0, n - 1, min(n, given.sample_size), dtype=torch.float64).round().long()
        holds_out = given.n_inducing is not None and len(places) <= _HELD_OUT_SHARE * n
        if holds_out:  # but not all rows of a class
            counts, held_out = (part.bincount(minlength=rows.n_classes) for part in (rows.labels, rows.labels[places]))
            kept = places[(held_out < counts)[rows.labels[places]]]
            holds_out, places = len(kept) > 0, kept if len(kept) > 0 else places
        settings = SearchSettings(given.shared_kernel, given.max_iter, given.tol, given.verbose)
        return cls(given, rows, make_kernel, places, holds_out, settings)

    def exact(self) -> Found:
        given, rows = self.given, self.rows
        if given.objective is Objective.MATCHED:
            model, reports = self.exact_start(self.first_choices()[0])
            return Found(model, self.choose(model, given.label), reports, Objective.MATCHED)
        found = []
        for choice in self.first_choices():
            (kernel,) = self.exact_start(choice)[0].kernels
            settings = self.settings._replace(title=_title(given.objective, choice))
            family = self.family(given.objective, choice)
            found.append((choice.method, *learn_exact_with_labels(rows, family, kernel, settings)))
        method, model, alpha_eps, report = max(found, key=lambda own: own[-1].value)
        return Found(model, self.choose(model, self.label(method, alpha_eps)), [report], given.objective)

    def exact_start(self, first: LabelChoice) -> tuple[ExactModel, list[SearchReport]]:
        """By the evidence, with the first targets."""
        _, table = make_table(self.given.label, self.rows.n_classes, first)
        kernel = self.make_kernel(*first_scales(self.rows, table))
        return learn_exact(self.rows, table, kernel, self.settings)

    def sparse(self) -> Found:
        given = self.given
        searched = self.rows.without(self.places) if self.holds_out else self.rows
        first, *other_methods = self.first_choices()
        start = self.sparse_start(searched, first)
        if given.objective is Objective.MATCHED:
            found = self.search(searched, start, first, given.label)
            if self.holds_out and given.max_iter > 0 and have_other_targets(found.choice, first):
                # other hyperparameters may be better for the targets that were chosen
                again = self.search(searched, found.start, found.choice, given.label, _again_with(found.choice))
                found = again if is_better(again.choice, found.choice) else found
        else:
            found = self.search_with_labels(searched, start, first)
            for other in other_methods:
                own = self.search_with_labels(searched, self.sparse_start(searched, other), other)
                found = own if self.prefers(own, found) else found
        if given.n_inducing_predict is not None:
            features = with_more_points(found.features, given.n_inducing_predict, searched, given.seed)
            chosen = self.label(found.choice.method, found.choice.alpha_eps)
            found = self.judged(features, chosen, found.reports, found.learnt_by)
        return Found(found.model, found.choice, found.reports, found.learnt_by)

    def sparse_start(self, searched: SortedRows, first: LabelChoice) -> _Start:
        """Kernel and inducing points before anything is learnt."""
        given = self.given
        _, table = make_table(given.label, self.rows.n_classes, first)
        kernel, points = self.make_kernel(*first_scales(self.rows, table)), given.inducing
        if isinstance(points, InducingInit):
            assert given.n_inducing is not None
            points = first_points(points, given.n_inducing, searched.features, searched.weight, kernel, given.seed)
        return [(kernel, points)]

    def search(
        self,
        searched: SortedRows,
        start: _Start,
        targets: LabelChoice,
        label: LabelParameters,
        title: str = "",
    ) -> _FoundSparse:
        """By the collapsed bound with these targets; then label parameters that suit what was found."""
        _, table = make_table(self.given.label, self.rows.n_classes, targets)
        settings = self.settings._replace(title=title)
        features, reports = learn_sparse(searched, table, start, settings, learn_points=self.given.learn_inducing)
        return self.judged(features, label, reports, Objective.MATCHED)

    def prefers(self, a: _FoundSparse, b: _FoundSparse) -> bool:
        """Whether the first is better, by rows that no search has seen, or else by the objective."""
        return is_better(a.choice, b.choice) if self.holds_out else a.reports[0].value > b.reports[0].value

    def first_choices(self) -> list[LabelChoice]:
        """Of each method there is to choose from, the default first."""
        label, n_classes = self.given.label, self.rows.n_classes
        each = [label._replace(method=method) for method in label.methods(n_classes)]
        return [first_choice(own, n_classes, many_rows=self.holds_out) for own in each]

    def search_with_labels(self, searched: SortedRows, start: _Start, first: LabelChoice) -> _FoundSparse:
        """By the collapsed bound with the targets of one method, then by the objective, which learns targets along.

        Rows held out end a search before they are predicted worse. As the bound on the exact model may rise while
        predictions get worse, the search then goes on by the log-likelihood of each row given all others.
        """
        given = self.given
        best = self.search(searched, start, first, self.label(first.method, first.alpha_eps))
        best = self.follow(given.objective, searched, best)
        if given.objective is Objective.ELBO and self.holds_out:
            best = self.follow(Objective.LEAVE_ONE_OUT, searched, best)
        if best.learnt_by is not given.objective:
            (end,) = self.rounds(given.objective, searched, best, max_iter=0)
            best = best._replace(reports=[best.reports[0]._replace(value=end.report.value)])
        return best

    def follow(self, objective: Objective, searched: SortedRows, best: _FoundSparse) -> _FoundSparse:
        """What an objective of the exact likelihood leads to from there on, as long as rows held out agree."""
        for features, alpha_eps, report in self.rounds(objective, searched, best, self.given.max_iter):
            own = self.judged([features], self.label(best.choice.method, alpha_eps), [report], objective)
            if self.holds_out and not is_better(own.choice, best.choice):
                break
            best = own
        return best

    def rounds(self, objective: Objective, searched: SortedRows, start: _FoundSparse, max_iter: int) -> Iterator[Round]:
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

    def family(self, objective: Objective, first: LabelChoice) -> LabelFamily:
        """What an objective of the exact likelihood needs to know, to begin with this choice."""
        given, n_classes, method = self.given, self.rows.n_classes, first.method
        likelihood = given.label.likelihood(n_classes, method, first.alpha_eps)
        if objective is Objective.LEAVE_ONE_OUT:  # unlike the bound, predictions have a temperature
            score = tempered(log_predictive(likelihood, given.n_samples, given.seed), given.label.temperature or 1.0)
        elif given.n_samples is None:
            score = likelihood.expected_log_prob
        else:
            score = sampled_expectation(likelihood, given.n_samples, given.seed)
        return LabelFamily(
            lambda alpha_eps: given.label.likelihood(n_classes, method, alpha_eps).target_table(),
            ExactObjective(score, leaves_out=objective is Objective.LEAVE_ONE_OUT),
            first.alpha_eps.expand(n_classes) if given.label.alpha_per_class else first.alpha_eps,
            learns_alpha=given.label.alpha_eps is None,
        )

    def judged(
        self,
        features: list[InducingFeatures],
        label: LabelParameters,
        reports: list[SearchReport],
        learnt_by: Objective,
    ) -> _FoundSparse:
        """All rows in these features, and the label parameters that suit them."""
        model = SparseModel.of_rows(features, self.rows)
        return _FoundSparse(features, model, self.choose(model, label), reports, learnt_by)

    def choose(self, model: LatentModel, label: LabelParameters) -> LabelChoice:
        some = self.rows.take(self.places)
        judge = model.judge(self.rows, self.places)
        n_classes = self.rows.n_classes
        choice = choose_label(judge, some.labels, some.weight, label, n_classes, are_held_out=self.holds_out)
        return choice._replace(alpha_eps=choice.alpha_eps.expand(n_classes)) if label.alpha_per_class else choice

    def label(self, method: LikelihoodMethod, alpha_eps: Float[Tensor, "*c"] | None) -> LabelParameters:
        """Label parameters of which the temperature may be left to choose, and alpha_eps if it is None."""
        return self.given.label._replace(method=method, alpha_eps=alpha_eps)


def _title(objective: Objective, choice: LabelChoice) -> str:
    return f"{objective} with {choice.method}, "


def _again_with(targets: LabelChoice) -> str:
    return f"again with {targets.method}, alpha_eps={plain(targets.alpha_eps)}: "
