"""Learning by the bound with the class likelihood: rounds with other rows, methods by bounds, and when it ends."""

import copy

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

import gaussify.gp.learning._hyperparameters as learning
import gaussify.gp.learning._schedule as schedule
from gaussify import GPClassifier, SoftmaxLikelihood
from gaussify._calibration._choice import Choice, choose_by_latents
from gaussify._numerics._optimise import climb
from gaussify.exceptions import InvalidArgumentError, JitterWarning, NumericalError
from gaussify.gp._kernels import make_kernel
from gaussify.gp._rows import SortedRows
from gaussify.gp.learning._hyperparameters import LabelFamily, SearchSettings, default_batch, learn_sparse_with_labels
from gaussify.gp.objectives._likelihood import LikelihoodObjective

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 2))
Y = (X[:, 0] + 0.5 * RNG.normal(size=300) > 0.0).astype(int) + (X[:, 1] > 1.0)
MANY = {"n_inducing": 8, "sample_size": 60, "max_iter": 6, "objective": "elbo"}  # 60 rows are judged


# --- Adam with samples ---------------------------------------------------------------------------------------------


def climber(values, x, looks=(), **options):
    """Climb to x = 1, with these values (or errors) in place of the objective's, and of what it is over all samples."""
    left, left_looks = iter(values), iter(looks)

    def objective():
        value = -(x - 1.0).square()
        value.backward()
        found = next(left, None)
        if isinstance(found, Exception):
            raise found
        return value.item() if found is None else found

    def over_all():
        found = next(left_looks, None)
        if isinstance(found, Exception):
            raise found
        return -((x.item() - 1.0) ** 2) if found is None else found

    common = {"over_all": over_all, "scale": 1.0, "max_iter": 40, "n_rounds": 4, "tol": -1.0}
    return climb(objective, [x], **common | options)


def number():
    return torch.tensor(0.0, dtype=torch.float64, requires_grad=True)


def test_rounds_are_of_equal_length_and_judged_by_all_samples():
    x = number()
    reports = list(climber([9.0, 7.0] * 20, x, looks=[1.0, 2.0, 3.0, 4.0, 5.0]))
    assert [report.n_iterations for report in reports] == [10, 20, 30, 40]
    assert [report.value for report in reports] == [2.0, 3.0, 4.0, 5.0]
    assert 0.2 < x.item() < 1.0


@pytest.mark.parametrize(("max_iter", "lengths"), [(3, [1, 2, 3]), (1, [1]), (0, [])])
def test_there_may_be_fewer_steps_than_rounds(max_iter, lengths):
    assert [report.n_iterations for report in climber([], number(), max_iter=max_iter)] == lengths


def test_it_ends_when_a_round_gains_little():
    reports = list(climber([], number(), looks=[1.0, 2.0, 3.0, 3.05, 9.0], tol=0.1))
    assert [report.converged for report in reports] == [False, False, True]


@pytest.mark.parametrize("worse", [1.5, float("nan"), NumericalError("no factor")])
def test_a_round_that_does_not_raise_the_objective_over_all_samples_is_undone(worse):
    x, found = number(), []
    for report in climber([], x, looks=[1.0, 2.0, worse, 9.0], tol=1e-9):
        found.append((x.item(), report.value, report.n_iterations, report.converged))
    assert found == [(found[0][0], 2.0, 10, False), (found[0][0], 2.0, 20, False)]
    assert found[0][0] > 0.0


def test_a_first_round_that_misleads_leaves_the_start():
    x = number()
    (report,) = climber([], x, looks=[1.0, 0.0], tol=1e-9)
    assert (x.item(), report.value, report.converged) == (0.0, 1.0, False)


@pytest.mark.parametrize("failure", [NumericalError("no factor"), float("nan"), float("inf")])
def test_where_there_is_no_value_it_goes_on_from_the_last_with_shorter_steps(failure):
    x, smooth = number(), number()
    (report,) = climber([None] * 5 + [failure], x, max_iter=20, n_rounds=1)
    list(climber([], smooth, max_iter=20, n_rounds=1))
    assert (report.n_iterations, report.n_evaluations, report.n_restarts) == (20, 21, 1)
    assert 0.0 < x.item() < smooth.item()


def test_without_a_first_value_there_is_an_error():
    with pytest.raises(NumericalError, match="no finite value at the first"):
        list(climber([], number(), looks=[float("nan")]))


def test_after_too_many_failures_in_a_row_it_ends_where_it_was():
    x = number()
    reports = list(climber([None] * 13 + [float("nan")] * 100, x))
    assert [report.n_iterations for report in reports] == [10, 13]
    assert not reports[-1].converged
    assert np.isfinite(x.item())


def test_a_search_that_fails_from_the_start_has_not_converged():
    (report,) = climber([float("nan")] * 100, number(), tol=1e-6)
    assert (report.n_iterations, report.converged) == (0, False)


def test_failures_now_and_then_do_not_end_it():
    values = ([None] * 4 + [float("nan")]) * 10
    (report,) = climber(values, number(), n_rounds=1)
    assert (report.n_iterations, report.n_restarts) == (40, 9)


def test_what_is_added_to_diagonals_is_announced_once_a_round():
    from gaussify._numerics import stable_cholesky

    x = number()

    def objective():
        stable_cholesky(torch.ones(2, 2).double())
        (-x.square()).backward()
        return 0.0

    looks = iter(map(float, range(10)))
    with pytest.warns(JitterWarning) as caught:
        list(climb(objective, [x], over_all=lambda: next(looks), scale=1.0, max_iter=6, n_rounds=3, tol=0.0))
    assert [str(warning.message).split(" of the")[0] for warning in caught] == ["2 times in 2 evaluations"] * 3


# --- rounds --------------------------------------------------------------------------------------------------------


@pytest.fixture
def problem():
    rows = SortedRows.of(torch.from_numpy(X), torch.from_numpy(Y), n_classes=3)
    likelihood = SoftmaxLikelihood(3)
    family = LabelFamily(
        lambda alpha_eps: SoftmaxLikelihood(3, alpha_eps).target_table(),
        LikelihoodObjective(likelihood.expected_log_prob),
        torch.tensor(0.1, dtype=torch.float64),
        learns_alpha=True,
    )
    kernel = make_kernel(None, torch.ones(2).double(), 4.0, owner="test")
    return rows, family, (kernel, rows.features[::40].clone())


def learn(problem, **options):
    rows, family, start = problem
    settings = SearchSettings(shared_kernel=True, max_iter=options.pop("max_iter", 8), tol=-1.0, verbose=False)
    options = {"learn_points": True, "batch_size": None, "seed": 0} | options
    return learn_sparse_with_labels(rows, family, start, settings, **options)


@pytest.fixture
def samples(monkeypatch):
    """Which rows the expectation of each evaluation was over."""
    found, original = [], learning.accumulate_likelihood_objective

    def spy(*arguments, sample, **options):
        found.append(sample)
        return original(*arguments, sample=sample, **options)

    monkeypatch.setattr(learning, "accumulate_likelihood_objective", spy)
    return found


def test_each_step_is_with_other_rows_and_repeats_by_its_seed(problem, samples):
    first = list(learn(problem, batch_size=50))
    assert len(samples) == 8
    assert all(len(sample) == 50 and bool((sample.diff() > 0).all()) for sample in samples)
    assert len({tuple(sample.tolist()) for sample in samples}) == 8
    again, other = list(learn(problem, batch_size=50)), list(learn(problem, batch_size=50, seed=1))
    assert torch.equal(first[-1].features.points, again[-1].features.points)
    assert not torch.equal(first[-1].features.points, other[-1].features.points)


@pytest.mark.parametrize("batch_size", [None, 300, 1000])
def test_with_all_rows_there_is_one_round(problem, samples, batch_size):
    (found,) = learn(problem, batch_size=batch_size)
    assert all(sample is None for sample in samples)
    assert found.report.n_iterations <= 8


def test_what_a_round_gives_does_not_change_with_the_next(problem):
    kernel, points = copy.deepcopy(problem[2][0]), problem[2][1].clone()
    rounds = learn(problem, batch_size=50)
    first = next(rounds)
    kept = copy.deepcopy(first.features.kernel.state_dict()), first.features.points.clone(), first.alpha_eps.clone()
    rest = list(rounds)
    assert len(rest) == 3
    assert all(torch.equal(first.features.kernel.state_dict()[name], kept[0][name]) for name in kept[0])
    assert torch.equal(first.features.points, kept[1])
    assert torch.equal(first.alpha_eps, kept[2])
    assert not torch.equal(rest[-1].features.points, kept[1])
    assert torch.equal(problem[2][1], points)  # nor does the start
    assert all(torch.equal(a, b) for a, b in zip(problem[2][0].parameters(), kernel.parameters(), strict=True))


@pytest.mark.slow
def test_samples_of_half_of_the_rows_learn_what_all_rows_do(problem):
    all_rows = list(learn(problem, max_iter=50))[-1]
    half = list(learn(problem, max_iter=150, batch_size=150))[-1]
    rows, family, _ = problem

    def bound(found):
        start = found.features.kernel, found.features.points
        own = (rows, family._replace(alpha_eps=found.alpha_eps), start)
        return next(learn(own, max_iter=0)).report.value

    before = next(learn(problem, max_iter=0)).report.value
    assert bound(half) > before + 0.8 * (bound(all_rows) - before)


def test_the_value_of_a_round_is_the_bound_over_all_rows(problem):
    rows, family, _ = problem
    for found in learn(problem, batch_size=40):
        own = (rows, family._replace(alpha_eps=found.alpha_eps), (found.features.kernel, found.features.points))
        assert found.report.value == pytest.approx(next(learn(own, max_iter=0)).report.value, rel=1e-9)


@pytest.mark.slow
def test_alpha_eps_goes_as_far_with_samples(problem):
    rows, family, start = problem
    far = (rows, family._replace(alpha_eps=torch.tensor(0.02, dtype=torch.float64)), start)
    all_rows, half = (list(learn(far, max_iter=60, batch_size=size))[-1] for size in (300, 150))
    assert half.alpha_eps.item() > 0.05
    assert 0.5 < half.alpha_eps.item() / all_rows.alpha_eps.item() < 2.0


def test_a_given_alpha_eps_is_returned_as_it_is(problem):
    rows, family, start = problem
    given = (rows, family._replace(learns_alpha=False), start)
    assert list(learn(given))[-1].alpha_eps.item() == 0.1


def test_the_default_costs_what_two_latents_cost_over_all_rows():
    assert default_batch(10_000, 1) >= 10_000
    assert default_batch(12_000, 2) == 12_000
    assert default_batch(13_000, 26) == 1000
    assert default_batch(48_509, 11) == 8820
    assert default_batch(200, 5) == 1000  # which is all


# --- the classifier ------------------------------------------------------------------------------------------------


def judge(monkeypatch, *scores):
    """Let choices have these scores, one after the other."""
    left = list(scores)

    def choose(self, model, label):
        alpha_eps = torch.tensor(0.03, dtype=torch.float64) if label.alpha_eps is None else label.alpha_eps
        return Choice(label.method, alpha_eps, 1.0, left.pop(0))

    monkeypatch.setattr(schedule._Fit, "choose", choose)
    return left


def test_it_ends_before_rows_that_it_has_not_seen_are_predicted_worse(monkeypatch):
    left = judge(monkeypatch, -0.5, -0.4, -0.3, -0.35, -0.31, -0.1)
    model = GPClassifier(**MANY, batch_size=100, tol=1e-300).fit(X, Y)
    assert left == [-0.1]  # neither went on after its first worse round
    assert model.score_ == -0.3
    assert model.n_iter_ == 3  # two of four rounds, of six steps in all
    assert model.objective_ == "elbo"


def test_if_the_bound_misleads_the_search_goes_on_with_each_row_given_all_others(monkeypatch):
    left = judge(monkeypatch, -0.5, -0.6, -0.4, -0.3, -0.35)
    model = GPClassifier(**MANY, temperature=1.0, tol=1e-300).fit(X, Y)
    assert not left
    assert (model.score_, model.objective_) == (-0.3, "leave-one-out")
    assert -300.0 * 3.0 < model.objective_value_ < 0.0
    monkeypatch.undo()
    judge(monkeypatch, -0.5, -0.4, -0.3, -0.35)  # it began where the evidence had ended
    alone = GPClassifier(**MANY | {"objective": "leave-one-out"}, temperature=1.0, tol=1e-300).fit(X, Y)
    assert (model.alpha_eps_, model.n_iter_) == (alone.alpha_eps_, alone.n_iter_)
    assert np.array_equal(model.inducing_points_, alone.inducing_points_)
    assert model.objective_value_ < alone.objective_value_  # the bound, and what was learnt by


def test_if_nothing_leads_to_better_predictions_the_evidence_had_the_last_word(monkeypatch):
    left = judge(monkeypatch, -0.5, -0.6, -0.6)
    model = GPClassifier(**MANY).fit(X, Y)
    assert not left
    assert (model.alpha_eps_, model.objective_) == (pytest.approx(0.02), "matched")
    monkeypatch.undo()
    matched = GPClassifier(**MANY | {"objective": "matched"}, alpha_eps=0.02, temperature=1.0).fit(X, Y)
    assert np.array_equal(model.inducing_points_, matched.inducing_points_)
    assert -300.0 * 3.0 < model.objective_value_ < 0.0  # the bound, not the evidence of the Gaussian model


def test_no_grid_of_alpha_eps_is_gone_through(monkeypatch):
    asked = []

    def spy(*arguments, **options):
        asked.append(arguments)
        return choose_by_latents(*arguments, **options)

    monkeypatch.setattr(schedule, "choose_by_latents", spy)
    GPClassifier(**MANY).fit(X, Y)
    assert len(asked) > 2
    assert all(label.alpha_eps is not None for _, _, label, _ in asked)


def test_numbers_per_class_are_one_for_each_whatever_is_kept():
    for max_iter in (0, 6):
        model = GPClassifier(**MANY | {"max_iter": max_iter}, alpha_eps="per-class").fit(X, Y)
        assert np.shape(model.alpha_eps_) == (3,)


def test_a_class_of_one_row_takes_part_in_the_search(monkeypatch):
    seen, learn = [], schedule.learn_sparse
    monkeypatch.setattr(schedule, "learn_sparse", lambda rows, *rest, **k: seen.append(rows) or learn(rows, *rest, **k))
    labels = np.zeros(300, dtype=int)
    labels[7] = 1
    GPClassifier(n_inducing=8, sample_size=60, max_iter=2).fit(X, labels)
    assert len(seen[0].labels) < 300
    assert set(seen[0].labels.tolist()) == {0, 1}


def test_a_sample_of_rare_classes_alone_is_not_held_out():
    labels = np.array([0, 1, 1, 1, 1])
    assert np.isfinite(GPClassifier(n_inducing=2, sample_size=1, max_iter=2).fit(X[:5], labels).score_)


@pytest.mark.slow
def test_each_method_begins_as_it_would_alone():
    common = MANY | {"max_iter": 4}
    alone = [GPClassifier(**common, method=m).fit(X, Y) for m in ("variational", "moment", "laplace", "moment-ori")]
    best = max(alone, key=lambda model: model.score_)
    auto = GPClassifier(**common, method="auto").fit(X, Y)
    assert (auto.method_, auto.score_) == (best.method_, pytest.approx(best.score_, rel=1e-9))


def test_kernels_come_back_without_gradients():
    model = GPClassifier(**MANY, batch_size=100).fit(X, Y)
    assert all(parameter.grad is None for parameter in model.kernel_.parameters())


def test_a_given_alpha_eps_is_that_of_all_targets(monkeypatch):
    left = judge(monkeypatch, -0.5, -0.6, -0.4, -0.45)
    model = GPClassifier(**MANY, alpha_eps=0.07, tol=1e-300).fit(X, Y)
    assert not left
    assert (model.score_, model.alpha_eps_) == (-0.4, 0.07)


def test_iterations_of_rounds_are_counted_on(monkeypatch):
    heard = []
    judge(monkeypatch, *np.linspace(-0.9, -0.1, 9).tolist())
    model = GPClassifier(**MANY | {"max_iter": 8}, tol=1e-300, verbose=lambda *words: heard.append(words)).fit(X, Y)
    of_last = [iteration for title, iteration, _ in heard if title.startswith("leave-one-out")]
    assert of_last == list(range(1, 9))
    assert model.n_iter_ == 8
    assert model.search_[0].n_evaluations >= 8


@pytest.mark.parametrize("objective", ["elbo", "leave-one-out"])
def test_the_value_at_the_end_is_of_all_rows(monkeypatch, objective):
    common = MANY | {"objective": objective}
    values = []
    for batch_size in (None, 5):
        judge(monkeypatch, -0.5, -0.6, -0.6)
        model = GPClassifier(**common, batch_size=batch_size).fit(X, Y)
        assert model.objective_ == "matched"
        values.append(model.objective_value_)
    assert values[0] == pytest.approx(values[1], rel=1e-9)


@pytest.mark.parametrize("max_iter", [1, 2, 3])
def test_few_iterations_are_taken_all_the_same(monkeypatch, max_iter):
    judge(monkeypatch, *np.linspace(-0.9, -0.1, 9).tolist())
    model = GPClassifier(**MANY | {"max_iter": max_iter}, tol=1e-300).fit(X, Y)
    assert (model.n_iter_, model.objective_) == (max_iter, "leave-one-out")


@pytest.mark.parametrize("objective", ["elbo", "leave-one-out"])
def test_a_search_is_of_the_other_rows_with_the_seed(monkeypatch, objective):
    asked, learn = [], schedule.learn_sparse_with_labels

    def spy(rows, *rest, **options):
        asked.append((rows, options["seed"]))
        return learn(rows, *rest, **options)

    monkeypatch.setattr(schedule, "learn_sparse_with_labels", spy)
    GPClassifier(**MANY | {"objective": objective}, random_state=7).fit(X, Y)
    assert asked
    assert all(len(rows.labels) == 240 and seed == 7 for rows, seed in asked)


def test_few_rows_which_all_take_part_do_not_end_it(monkeypatch):
    judge(monkeypatch, -0.5, -0.6)
    model = GPClassifier(**MANY | {"sample_size": 300}).fit(X, Y)
    assert model.score_ == -0.6
    assert model.n_iter_ > 0


@pytest.mark.parametrize("n_inducing", [pytest.param(None, marks=pytest.mark.slow), 10], ids=["exact", "sparse"])
def test_the_method_is_that_of_largest_bound(n_inducing):
    features, labels = (part[::2] for part in load_iris(return_X_y=True))
    common = {"n_inducing": n_inducing, "objective": "elbo", "max_iter": 6}
    auto = GPClassifier(**common, method="auto").fit(features, labels)
    methods = ("variational", "moment", "laplace", "moment-ori")
    alone = {method: GPClassifier(**common, method=method).fit(features, labels) for method in methods}
    best = max(alone, key=lambda method: alone[method].objective_value_)
    assert auto.method_ == best
    assert auto.objective_value_ > alone["laplace"].objective_value_ + 5.0


def test_more_points_for_predictions_keep_what_was_learnt():
    few, more = (GPClassifier(**MANY, n_inducing_predict=n, batch_size=100).fit(X, Y) for n in (None, 20))
    assert few.alpha_eps_ == more.alpha_eps_
    assert len(more.inducing_points_) == 20


def test_a_new_class_needs_a_number_of_its_own():
    model = GPClassifier(n_inducing=8, objective="elbo", alpha_eps="per-class", max_iter=3).fit(X, Y)
    before = model.predict_proba(X)
    with pytest.raises(InvalidArgumentError, match="has learnt an 'alpha_eps' for each of 3 classes; got 4"):
        model.partial_fit(X[:5], [3] * 5)
    assert np.array_equal(model.predict_proba(X), before)
    declared = GPClassifier(n_inducing=8, objective="elbo", max_iter=3).fit(X, Y)
    assert declared.partial_fit(X[:5], [3] * 5).predict_proba(X[:2]).shape == (2, 4)


def test_exact_models_begin_as_with_few_rows(monkeypatch):
    judge(monkeypatch, -0.5)
    model = GPClassifier(objective="elbo", sample_size=20, max_iter=0).fit(X[:120], Y[:120])
    assert model.alpha_eps_ == pytest.approx(0.1)


def test_given_numbers_stay_with_every_method():
    model = GPClassifier(**MANY, method="auto", alpha_eps=0.07).fit(X, Y)
    assert model.alpha_eps_ == 0.07


def test_whoever_is_given_hears_of_the_progress(capsys):
    heard = []
    model = GPClassifier(**MANY, verbose=lambda *words: heard.append(words)).fit(X, Y)
    assert heard[0][1] == 1
    assert {title for title, _, _ in heard} >= {"", "elbo with variational, "}
    assert capsys.readouterr().out == ""
    assert np.isfinite(model.score_)


def test_progress_is_printed(capsys):
    GPClassifier(**MANY, batch_size=100, verbose=True).fit(X, Y)
    assert "elbo with variational, iteration 1: objective" in capsys.readouterr().out


def test_another_seed_draws_other_rows_and_other_samples():
    X, y = load_iris(return_X_y=True)
    by_rows = [
        GPClassifier(n_inducing=5, objective="elbo", batch_size=20, max_iter=4, random_state=seed, inducing="greedy")
        .fit(X, y)
        .objective_value_
        for seed in (0, 1)
    ]
    by_samples = [
        GPClassifier(objective="elbo", expectation=4, max_iter=2, random_state=seed)
        .fit(X[::5], y[::5])
        .objective_value_
        for seed in (0, 1)
    ]
    assert by_rows[0] != by_rows[1]
    assert by_samples[0] != by_samples[1]


def test_samples_of_latents_are_used_for_exact_models_too():
    X, y = load_iris(return_X_y=True)
    values = [
        GPClassifier(objective="elbo", expectation=expectation, max_iter=2).fit(X[::5], y[::5]).objective_value_
        for expectation in ("quadrature", 4)
    ]
    assert values[0] != pytest.approx(values[1], abs=1e-6)
