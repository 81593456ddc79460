"""The learner: what it carries along, what it chooses, and what it keeps."""

import gc
import itertools
import weakref

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_wine, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gaussify import ActiveLearner, BayesianLogisticRegression, GPClassifier
from gaussify.active import Acquisition, bald, entropy, least_confidence, margin
from gaussify.active._learner import cohen_kappa
from gaussify.active._model import GaussianRows
from gaussify.exceptions import InvalidArgumentError, ModelFileError

FIXED = {"alpha_eps": 0.1, "temperature": 1.0, "prior_variance": 1.0}


def binary(n=400, d=8, seed=0):
    return make_classification(
        n, d, n_informative=min(4, d), n_redundant=0, n_clusters_per_class=1, flip_y=0.1, random_state=seed
    )


def run(learner, y, n_steps, n=1):
    for _ in range(n_steps):
        rows = learner.query(n)
        learner.teach(rows, y[rows])
    return learner


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.mark.parametrize("params", [FIXED, {}, {"likelihood": "softmax", "method": "moment-ori"}])
def test_carried_latents_equal_recomputed_ones_after_200_steps(params):
    X, y = binary()
    learner = ActiveLearner(BayesianLogisticRegression(**params), X, classes=[0, 1])
    test = learner.track(X[:50] + 0.1)
    run(learner, y, 200)
    carried = learner._pool.carried
    mean, variance = learner.estimator_.predict_latent(X)
    assert learner._model.weights.n_updates > 0
    np.testing.assert_allclose(carried.mean, mean, atol=1e-8)
    np.testing.assert_allclose(carried.variance, variance, atol=1e-8)
    np.testing.assert_allclose(test.predict_proba(), learner.estimator_.predict_proba(X[:50] + 0.1), atol=1e-8)


@pytest.mark.parametrize(("n_rows", "n_steps"), [(300, 60), pytest.param(600, 200, marks=pytest.mark.slow)])
def test_carried_latents_of_many_classes_equal_recomputed_ones(n_rows, n_steps):
    X, y = load_digits(return_X_y=True)
    X = X[:n_rows] / 16.0
    learner = run(ActiveLearner(BayesianLogisticRegression(**FIXED), X, classes=range(10)), y, n_steps)
    mean, variance = learner.estimator_.predict_latent(X)
    assert learner._model.weights.n_updates >= n_steps - 2
    np.testing.assert_allclose(learner._pool.carried.mean, mean, atol=1e-8)
    np.testing.assert_allclose(learner._pool.carried.variance, variance, atol=1e-8)


def test_carried_latents_of_a_sparse_gp_equal_recomputed_ones():
    X, y = binary(300, 3)
    gp = GPClassifier(n_inducing=20, max_iter=3).fit(X[:40], y[:40])
    learner = run(ActiveLearner(gp, X[40:]), y[40:], 100)
    mean, variance = learner.estimator_.predict_latent(X[40:])
    assert learner._model.weights.n_updates == 100
    np.testing.assert_allclose(learner._pool.carried.mean, mean, atol=1e-8)
    np.testing.assert_allclose(learner._pool.carried.variance, variance, atol=1e-8)


@pytest.mark.parametrize("method", ["gauss", "variational"])
@pytest.mark.parametrize("n", [1, 2])
def test_stages_are_the_predictions_after_each_label(method, n):
    X, y = binary()
    params = {**FIXED, "method": method}
    learner = ActiveLearner(BayesianLogisticRegression(**params), X[:300], classes=[0, 1])
    test = learner.track(X[300:])
    learner.teach(np.arange(10), y[:10])
    test.predict_proba()
    run(learner, y, 40 // n, n)
    stages = list(test.staged_predict_proba())
    assert len(stages) == 40
    for number, probs in enumerate(stages):
        rows = learner.labelled_[: 11 + number]
        anew = BayesianLogisticRegression(**params).fit(X[rows], y[rows])
        np.testing.assert_allclose(probs, anew.predict_proba(X[300:]), atol=1e-8)
    np.testing.assert_array_equal(test.predict_proba(), stages[-1])
    assert list(test.staged_predict_proba()) == []


def test_stages_that_are_left_early_are_not_lost():
    X, y = binary()
    learner = ActiveLearner(BayesianLogisticRegression(**FIXED), X, classes=[0, 1])
    test = learner.track(X[:50] + 0.1)
    learner.teach(np.arange(10), y[:10])
    test.predict_proba()
    run(learner, y, 10)
    for _ in zip(range(3), test.staged_predict_proba(), strict=False):
        pass
    run(learner, y, 2)
    assert len(list(test.staged_predict_proba())) == 12 - 3
    run(learner, y, 4)
    for number, probs in enumerate(test.staged_predict_proba()):
        assert number == 0  # as asking within the loop goes on to the last label
        assert np.abs(probs - test.predict_proba()).max() > 0.0
    np.testing.assert_allclose(test.predict_proba(), learner.estimator_.predict_proba(X[:50] + 0.1), atol=1e-8)


def test_rows_that_are_asked_seldom_follow_many_labels_at_once(monkeypatch):
    X, y = binary()
    monkeypatch.setattr("gaussify.posterior._carried._ELEMENTS", 150)  # three labels of fifty rows at a time
    learner = ActiveLearner(BayesianLogisticRegression(**FIXED), X, classes=[0, 1])
    test = learner.track(X[:50] + 0.1)
    learner.teach(np.arange(10), y[:10])
    for n_steps in (7, 1, 20):
        test.predict_proba()
        run(learner, y, n_steps)
        np.testing.assert_allclose(test.predict_proba(), learner.estimator_.predict_proba(X[:50] + 0.1), atol=1e-8)


def test_what_is_never_asked_is_not_kept_for_ever(monkeypatch):
    X, y = binary()
    monkeypatch.setattr("gaussify.active._model._ELEMENTS", 1)
    learner = ActiveLearner(BayesianLogisticRegression(**FIXED), X, classes=[0, 1])
    test = learner.track(X[:50] + 0.1)
    learner.teach(np.arange(10), y[:10])
    test.predict_proba()
    run(learner, y, 30)
    assert len(test._rows._unapplied) <= 9  # features
    np.testing.assert_allclose(test.predict_proba(), learner.estimator_.predict_proba(X[:50] + 0.1), atol=1e-8)


@pytest.mark.parametrize("estimator", [LogisticRegression(), BayesianLogisticRegression()], ids=["plain", "auto"])
def test_stages_of_models_that_were_fitted_anew_are_refused(estimator):
    X, y = binary()
    learner = ActiveLearner(estimator, X, classes=[0, 1])
    test = learner.track(X[:50])
    learner.teach(np.arange(10), y[:10])
    test.predict_proba()
    learner.teach(np.arange(10, 200), y[10:200])
    with pytest.raises(InvalidArgumentError, match="not fitted again"):
        test.staged_predict_proba()


def test_a_gp_from_zero_labels_is_fitted_again_when_the_rows_have_doubled():
    X, y = binary(200, 2)
    learner = ActiveLearner(GPClassifier(n_inducing=10, max_iter=2), X)
    sizes = []
    for _ in range(24):
        rows = learner.query()
        learner.teach(rows, y[rows])
        sizes.append(learner._model.n_fitted)
    fitted = sorted(set(sizes) - {0})
    assert all(later >= 2 * earlier for earlier, later in itertools.pairwise(fitted))
    assert len(fitted) >= 3
    mean, _ = learner.estimator_.predict_latent(X)
    learner.query()
    np.testing.assert_allclose(learner._pool.carried.mean, mean, atol=1e-8)


def brute_force(acquisition, model, X):
    """The acquisition function by its definition, from the predictions of the estimator."""
    probs = torch.from_numpy(model.predict_proba(X))
    mean, variance = (torch.from_numpy(part) for part in model.predict_latent(X))
    table = {
        "entropy": lambda: -(probs * probs.log()).sum(1),
        "margin": lambda: 1.0 - (probs.sort(1).values[:, -1] - probs.sort(1).values[:, -2]),
        "least-confidence": lambda: 1.0 - probs.max(1).values,
        "variance": lambda: variance.sum(1),
        "bald": lambda: model.likelihood_.predict_uncertainty(mean, variance).epistemic_entropy,
    }
    return table[acquisition]().numpy()


@pytest.mark.parametrize("acquisition", ["entropy", "margin", "least-confidence", "bald", "variance"])
@pytest.mark.parametrize(
    ("n_classes", "options"),
    [
        (2, {}),
        (2, {"likelihood": "softmax"}),
        (2, {"predictive": "plug-in"}),
        (2, {"predictive": "mean-field", "likelihood": "softmax"}),
        (3, {}),
    ],
    ids=["logistic", "softmax", "plug-in", "mean-field", "three classes"],
)
def test_the_chosen_row_is_the_argmax_over_the_pool(acquisition, n_classes, options, wine):
    X, y = binary(300, 6) if n_classes == 2 else wine
    X = 5.0 * X if options else X
    learner = ActiveLearner(BayesianLogisticRegression(**FIXED, **options), X, acquisition, classes=range(n_classes))
    run(learner, y, 5)
    for _ in range(10):
        scores = brute_force(acquisition, learner.estimator_, X)
        scores[learner.labelled_] = -np.inf
        (row,) = learner.query()
        assert scores[row] >= scores.max() - 1e-9
        learner.teach(row, y[row])


def test_screening_of_two_classes_never_loses_the_best_row():
    from gaussify.active._selection import PROBIT_ERROR
    from gaussify.likelihoods import LogisticLikelihood

    variances = np.concatenate([[0.0], np.geomspace(1e-4, 1e5, 100)])
    mean, variance = (x.flatten() for x in np.meshgrid(np.geomspace(1e-4, 200.0, 200), variances))
    exact = LogisticLikelihood().predict_proba(mean[:, None], variance[:, None])[:, 1].numpy() - 0.5
    rough = 0.5 * np.tanh(0.5 * mean / np.sqrt(1.0 + np.pi / 8.0 * variance))
    assert np.abs(exact / rough - 1.0).max() < PROBIT_ERROR


def test_epig_prefers_what_tells_about_the_targets():
    rng = np.random.default_rng(0)
    X = np.zeros((40, 2))
    X[:20, 0], X[20:, 1] = rng.normal(size=20), rng.normal(size=20)
    targets = np.array([[3.0, 0.0], [-2.0, 0.0]])
    learner = ActiveLearner(
        BayesianLogisticRegression(fit_intercept=False, **FIXED), X, "epig", X_target=targets, classes=[0, 1]
    )
    learner.teach([0, 20], [0, 1])
    scores = learner.scores()
    assert np.isneginf(scores[[0, 20]]).all()
    assert scores[:20].max() > 5.0 * scores[20:].max()
    assert learner.query()[0] < 20


def test_epig_equals_the_information_of_a_discrete_posterior():
    from gaussify.active import epig

    generator = torch.Generator().manual_seed(0)
    own, other = (torch.rand(7, n, 3, generator=generator).double().softmax(-1) for n in (4, 5))
    joint = torch.einsum("snc,smk->nmck", own, other) / 7
    product = joint.sum(3, keepdim=True) * joint.sum(2, keepdim=True)
    expected = (joint * (joint / product).log()).sum((2, 3)).mean(1)
    torch.testing.assert_close(epig(own, other), expected)


def test_a_thompson_draw_changes_from_query_to_query(wine):
    X, y = wine
    learner = ActiveLearner(BayesianLogisticRegression(**FIXED), X, "thompson", classes=range(3))
    learner.teach(np.arange(0, 178, 20), y[::20])
    first = learner.scores()
    learner.skip(learner.query())
    assert not np.allclose(first[~np.isinf(first)][:50], learner.scores()[~np.isinf(first)][:50])


def test_a_batch_has_no_near_duplicates():
    X, y = binary(60, 4)
    copies = np.concatenate([X, X + 1e-9])
    learner = ActiveLearner(BayesianLogisticRegression(**FIXED), copies, classes=[0, 1])
    learner.teach(np.arange(5), y[:5])
    batch = learner.query(4)
    assert len(set(batch % 60)) == 4
    plain = ActiveLearner(BayesianLogisticRegression(**FIXED), copies, classes=[0, 1], diverse=False)
    plain.teach(np.arange(5), y[:5])
    assert len(set(plain.query(4) % 60)) < 4


def test_pending_rows_count_as_chosen():
    X, y = binary(60, 4)
    copies = np.concatenate([X, X + 1e-9])
    learner = ActiveLearner(BayesianLogisticRegression(**FIXED), copies, classes=[0, 1])
    learner.teach(np.arange(5), y[:5])
    one_by_one = np.concatenate([learner.query() for _ in range(4)])
    again = ActiveLearner(BayesianLogisticRegression(**FIXED), copies, classes=[0, 1])
    again.teach(np.arange(5), y[:5])
    assert again.query(4).tolist() == one_by_one.tolist()
    assert again.pending_.tolist() == one_by_one.tolist()


@pytest.mark.parametrize("estimator", [BayesianLogisticRegression(), LogisticRegression()])
def test_it_works_from_zero_labels(estimator, wine):
    X, y = wine
    learner = run(ActiveLearner(estimator, X), y, 25)
    assert len(set(learner.labelled_)) == 25
    assert learner.estimator_.score(X, y) > 0.85


def test_first_rows_are_spread_over_the_pool(wine):
    X, y = wine
    first = ActiveLearner(BayesianLogisticRegression(), X).query(6)
    assert len(set(y[first])) == 3


@pytest.mark.parametrize(
    "estimator", [LogisticRegression(), make_pipeline(StandardScaler(), LogisticRegression()), GPClassifier(max_iter=1)]
)
def test_any_classifier_chooses_by_its_probabilities(estimator, wine):
    X, y = wine
    learner = ActiveLearner(estimator, X, "margin", X_initial=X[::15], y_initial=y[::15])
    scores = margin(torch.from_numpy(learner.estimator_.predict_proba(X)))
    assert int(learner.query()[0]) == int(scores.argmax())
    learner.teach(learner.pending_, y[learner.pending_])
    assert learner.estimator_.predict_proba(X).shape == (178, 3)


def test_frames_and_sparse_matrices_go_to_the_estimator_as_they_are(wine):
    pd = pytest.importorskip("pandas")
    from scipy.sparse import csr_matrix

    X, y = wine
    for pool in (pd.DataFrame(X, columns=[f"f{i}" for i in range(13)]), csr_matrix(X)):
        initial = pool.iloc[::15] if hasattr(pool, "iloc") else pool[::15]
        learner = ActiveLearner(LogisticRegression(), pool, X_initial=initial, y_initial=y[::15])
        run(learner, y, 3)
        assert learner.estimator_.score(pool, y) > 0.8


@pytest.mark.parametrize(
    "estimator", [BayesianLogisticRegression(**FIXED), GPClassifier(n_inducing=5, max_iter=2)], ids=["linear", "gp"]
)
def test_names_of_columns_go_to_the_estimator(estimator, wine):
    pytest.importorskip("pandas")
    X, y = wine
    frame = load_wine(as_frame=True).data
    frame[:] = X
    learner = ActiveLearner(estimator, frame, classes=[0, 1, 2], X_initial=frame[:30], y_initial=y[:30])
    test = learner.track(frame[::2])
    run(learner, y, 10)
    assert learner.estimator_.feature_names_in_.tolist() == list(frame.columns)
    np.testing.assert_allclose(test.predict_proba(), learner.estimator_.predict_proba(frame[::2]), atol=1e-8)
    with pytest.raises(InvalidArgumentError, match=r"'X' of ActiveLearner must have the columns \['alcohol'"):
        learner.track(frame[frame.columns[::-1]])
    with pytest.raises(InvalidArgumentError, match="'X_pool' of ActiveLearner must have the columns"):
        ActiveLearner(learner.estimator_, frame[frame.columns[::-1]])


def test_a_fitted_estimator_learns_on_and_the_given_one_stays():
    X, y = binary()
    given = BayesianLogisticRegression(**FIXED).fit(X[:50], y[:50])
    before = given.predict_proba(X)
    learner = run(ActiveLearner(given, X[50:]), y[50:], 10)
    rows = 50 + learner.labelled_
    whole = BayesianLogisticRegression(**FIXED).fit(
        np.concatenate([X[:50], X[rows]]), np.concatenate([y[:50], y[rows]])
    )
    np.testing.assert_allclose(learner.estimator_.predict_proba(X), whole.predict_proba(X), atol=1e-9)
    np.testing.assert_array_equal(given.predict_proba(X), before)


def test_forgetting_models_are_computed_anew():
    X, y = binary()
    learner = run(ActiveLearner(BayesianLogisticRegression(forgetting=0.9, **FIXED), X, classes=[0, 1]), y, 15)
    learner.query()
    np.testing.assert_allclose(learner._pool.carried.mean, learner.estimator_.predict_latent(X)[0], atol=1e-9)


def test_a_class_that_turns_up_late_is_learnt(wine):
    X, y = wine
    order = np.argsort(y, kind="stable")
    learner = ActiveLearner(BayesianLogisticRegression(), X)
    learner.teach(order[:80], y[order[:80]])
    learner.query()
    learner.teach(order[-20:], y[order[-20:]])
    assert learner.estimator_.classes_.tolist() == [0, 1, 2]
    assert learner.scores().shape == (178,)


@pytest.mark.parametrize("kind", ["linear", "gp", "other"])
def test_the_queue_survives_saving_and_loading(kind, tmp_path, wine):
    X, y = wine
    names = np.array(["barolo", "grignolino", "barbera"])[y]
    estimator = {
        "linear": BayesianLogisticRegression(),
        "gp": GPClassifier(n_inducing=10, max_iter=2),
        "other": LogisticRegression(),
    }[kind]
    initial = {"X_initial": X[::25], "y_initial": names[::25]}
    learner = ActiveLearner(estimator, X, "entropy", **initial)
    run(learner, names, 12)
    learner.skip([learner.query()[0]])
    learner.query(3)
    learner.save(tmp_path / "learner")
    again = ActiveLearner.load(tmp_path / "learner", estimator, X, **initial)
    assert again.pending_.tolist() == learner.pending_.tolist()
    assert again.labels_.tolist() == learner.labels_.tolist()
    for some in (learner, again):
        some.teach(some.pending_, names[some.pending_])
        run(some, names, 24)  # in which a Gaussian process is fitted anew
    assert again.labelled_.tolist() == learner.labelled_.tolist()
    assert again.agreement_ == pytest.approx(learner.agreement_)
    np.testing.assert_allclose(again.estimator_.predict_proba(X), learner.estimator_.predict_proba(X), atol=1e-8)


def test_files_of_another_pool_or_broken_ones_are_refused(tmp_path, wine):
    X, y = wine
    learner = run(ActiveLearner(BayesianLogisticRegression(), X), y, 5)
    path = tmp_path / "learner"
    learner.save(path)
    with pytest.raises(ModelFileError, match="another pool"):
        ActiveLearner.load(path, BayesianLogisticRegression(), X[:-1])
    with pytest.raises(ModelFileError, match="does not hold a complete"):
        ActiveLearner.load(path, LogisticRegression(), X)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ModelFileError):
        ActiveLearner.load(path, BayesianLogisticRegression(), X)


def test_it_says_when_decisions_have_settled():
    X, y = binary(300, 3)
    learner = ActiveLearner(BayesianLogisticRegression(**FIXED), X, classes=[0, 1])
    assert not learner.has_converged()
    run(learner, y, 120)
    assert len(learner.agreement_) >= 110
    assert learner.has_converged(agreement=0.9)
    assert not learner.has_converged(agreement=1.1)


def test_kappa_is_scikit_learns():
    from sklearn.metrics import cohen_kappa_score

    rng = np.random.default_rng(0)
    a, b = rng.integers(4, size=(2, 100))
    assert cohen_kappa(a, b) == pytest.approx(cohen_kappa_score(a, b))
    assert cohen_kappa(a * 0, a * 0) == 0.0  # which says nothing


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda learner: learner.query(0), "'n' parameter of ActiveLearner.query must be an integer of at least 1"),
        (lambda learner: learner.query(999), "must be at most 178, .*; got 999"),
        (lambda learner: learner.teach([0, 0], [0, 1]), "must not repeat a row"),
        (lambda learner: learner.teach([178], [0]), "must lie between 0 and 177"),
        (lambda learner: learner.teach([-1], [0]), "must lie between 0 and 177"),
        (lambda learner: learner.teach([0.5], [0]), "as integers"),
        (lambda learner: learner.teach([0], [0, 1]), "one label for each row; got shape"),
        (lambda learner: learner.teach([0], [np.nan]), "NaN"),
        (lambda learner: learner.scores(), "needs labels of two classes"),
        (lambda learner: learner.track([[np.nan] * 13]), "NaN"),
    ],
)
def test_bad_calls_say_what_is_wrong_and_change_nothing(call, message, wine):
    X, _ = wine
    learner = ActiveLearner(BayesianLogisticRegression(), X)
    with pytest.raises(ValueError, match=message):
        call(learner)
    assert learner.n_open == 178
    assert len(learner.labelled_) == 0


def test_bad_arguments_are_refused(wine):
    X, y = wine
    model = BayesianLogisticRegression()
    with pytest.raises(InvalidArgumentError, match="'acquisition' parameter of ActiveLearner must be one of"):
        ActiveLearner(model, X, "entropie")
    with pytest.raises(InvalidArgumentError, match=r"needs Gaussian latents.*LogisticRegression"):
        ActiveLearner(LogisticRegression(), X, "bald")
    with pytest.raises(InvalidArgumentError, match="must be a classifier with fit"):
        ActiveLearner(3, X)
    with pytest.raises(ValueError, match="NaN"):
        ActiveLearner(model, np.full((3, 2), np.nan))
    with pytest.raises(InvalidArgumentError, match="'X_pool' of ActiveLearner must have 13 columns; got 12"):
        ActiveLearner(BayesianLogisticRegression().fit(X, y), X[:, 1:])
    with pytest.raises(InvalidArgumentError, match="'X_target' of ActiveLearner must have 13 columns; got 12"):
        ActiveLearner(model, X, X_target=X[:, 1:])
    with pytest.raises(InvalidArgumentError, match="together"):
        ActiveLearner(model, X, X_initial=X)
    learner = ActiveLearner(model, X, classes=[0, 1])
    with pytest.raises(InvalidArgumentError, match=r"must be among 'classes', .*; got 2"):
        learner.teach([170], [2])
    learner.teach([0], [0])
    with pytest.raises(InvalidArgumentError, match="must not hold rows that were taught before; got row 0"):
        learner.teach([0], [0])


def test_a_pool_can_be_used_up(wine):
    X, y = wine
    learner = ActiveLearner(BayesianLogisticRegression(**FIXED), X[:12], classes=range(3))
    run(learner, y, 12)
    with pytest.raises(InvalidArgumentError, match=r"'n' of ActiveLearner\.query must be at most 0"):
        learner.query()


@pytest.mark.parametrize("acquisition", [option.value for option in Acquisition])
def test_every_acquisition_is_finite_and_not_negative(acquisition, wine):
    X, y = wine
    learner = ActiveLearner(BayesianLogisticRegression(), X, acquisition)
    learner.teach(np.arange(0, 178, 20), y[::20])
    scores = learner.scores()
    assert (scores[learner._is_open] >= 0.0).all()
    assert np.isfinite(scores[learner._is_open]).all()
    assert len(set(learner.query(3))) == 3


def test_scores_of_probabilities_are_zero_for_certain_rows_and_largest_for_even_ones():
    probs = torch.tensor([[1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.6, 0.3, 0.1]])
    for score in (entropy, margin, least_confidence):
        values = score(probs)
        assert values[0] == 0.0
        assert values.argmax() == 1


def test_bald_is_the_monte_carlo_mutual_information():
    from gaussify import SoftmaxLikelihood

    generator = torch.Generator().manual_seed(0)
    mean, variance = torch.tensor([[0.5, -1.0, 2.0]]).double(), torch.tensor([[2.0, 1.0, 4.0]]).double()
    draws = (mean + variance.sqrt() * torch.randn(200_000, 3, generator=generator).double()).softmax(-1)
    sampled = entropy(draws.mean(0, keepdim=True)) - entropy(draws).mean()
    torch.testing.assert_close(bald(SoftmaxLikelihood(3), mean, variance), sampled, atol=3e-3, rtol=0.0)


def test_the_row_chosen_by_epig_is_the_argmax_of_its_definition(wine):
    X, y = wine
    learner = ActiveLearner(BayesianLogisticRegression(**FIXED), X, "epig", X_target=X[::9], n_draws=64)
    learner.teach(np.arange(0, 178, 25), y[::25])
    scores = learner.scores()
    own, target = (learner._model.watch(part).draws(64, learner._seed()) for part in (X, X[::9]))
    joint = torch.einsum("snc,smk->nmck", own, target) / 64
    product = joint.sum(3, keepdim=True) * joint.sum(2, keepdim=True)
    expected = (joint * (joint / product).log()).sum((2, 3)).mean(1).numpy()
    np.testing.assert_allclose(scores[learner._is_open], expected[learner._is_open], atol=1e-10)
    weights = learner.estimator_.weight_space().posterior
    assert own.mean(0).sub(torch.from_numpy(learner.estimator_.predict_proba(X))).abs().max() < 0.2
    assert weights.mean.shape == (3, 14)
    expected[~learner._is_open] = -np.inf
    assert learner.query()[0] == expected.argmax()


def test_draws_of_a_sparse_gp_have_its_probabilities_for_their_mean():
    X, y = binary(120, 2)
    gp = GPClassifier(n_inducing=4, max_iter=3, temperature=2.0).fit(X[:60], y[:60])
    learner = ActiveLearner(gp, X[60:], "epig")
    draws = learner._pool.draws(4000, 0).mean(0)
    assert learner._pool.carried.unexplained.max() > 0.01
    np.testing.assert_allclose(draws, gp.predict_proba(X[60:]), atol=0.03)


def test_parts_of_the_pool_give_the_same_scores(monkeypatch, wine):
    X, y = wine
    learner = ActiveLearner(BayesianLogisticRegression(**FIXED), X, "epig", n_draws=16)
    learner.teach(np.arange(0, 178, 25), y[::25])
    whole = learner.scores()
    monkeypatch.setattr("gaussify.active._model._ELEMENTS", 500)
    monkeypatch.setattr("gaussify.active._acquisition._ELEMENTS", 2000)
    np.testing.assert_allclose(learner.scores()[learner._is_open], whole[learner._is_open], atol=1e-12)


def test_greedy_rows_have_the_largest_score_times_conditional_variance():
    from gaussify.active import greedy

    rng = np.random.default_rng(0)
    roots = rng.normal(size=(2, 30, 6))  # of the covariance of each of two latents
    covariance = roots @ roots.transpose(0, 2, 1)
    scores, variance = rng.uniform(size=30), covariance.diagonal(axis1=1, axis2=2).T.copy()
    chosen = greedy(scores, variance, lambda row: covariance[:, :, row].T, n_rows=5, given=[3])
    taken = [3]
    for row in chosen:
        rest = covariance[:, :, taken] @ np.linalg.inv(covariance[:, taken][:, :, taken]) @ covariance[:, taken]
        left = variance - rest.diagonal(axis1=1, axis2=2).T
        value = scores * left.sum(1) / variance.sum(1)
        value[taken] = -np.inf
        assert row == value.argmax()
        taken.append(row)


def test_pending_rows_are_factorised_once_until_a_label_comes(monkeypatch, wine):
    X, y = wine
    asked = []
    covariance_with = GaussianRows.covariance_with
    monkeypatch.setattr(
        GaussianRows, "covariance_with", lambda self, row: asked.append(row) or covariance_with(self, row)
    )

    def begin():
        return ActiveLearner(BayesianLogisticRegression(**FIXED), X, classes=[0, 1, 2]).teach([0, 60, 150], [0, 1, 2])

    learner, anew = begin(), begin()
    single = [int(learner.query()[0]) for _ in range(6)]
    assert asked == single[:-1]
    assert single == anew.query(6).tolist()
    learner.teach(single[:1], y[single[:1]])
    learner.skip(single[1:2])
    asked.clear()
    learner.query()
    assert asked == single[2:]


def test_a_batch_beyond_the_rank_of_the_features_goes_by_the_scores_again():
    X, y = binary(300, 2)
    learner = ActiveLearner(BayesianLogisticRegression(**FIXED), X, classes=[0, 1])
    learner.teach(np.arange(60), y[:60])
    ranks = np.argsort(np.argsort(-learner.scores()))
    batch = learner.query(12)
    assert len(set(batch)) == 12
    assert np.median(ranks[batch]) < 60
    assert ranks[batch[3]] <= 3  # the first that begins anew


def test_variances_of_badly_scaled_features_do_not_cancel():
    X, y = binary(300, 6)
    learner = run(ActiveLearner(BayesianLogisticRegression(**FIXED), 1e5 * X, classes=[0, 1]), y, 60)
    mean, variance = learner.estimator_.predict_latent(1e5 * X)
    np.testing.assert_allclose(learner._pool.carried.variance, variance, rtol=1e-6)
    np.testing.assert_allclose(learner._pool.carried.mean, mean, rtol=1e-6, atol=1e-6)


def test_a_learner_that_nobody_needs_is_gone_at_once():
    X, y = binary()
    gc.disable()
    try:
        learner = ActiveLearner(BayesianLogisticRegression(**FIXED), X, classes=[0, 1])
        test = learner.track(X[:50])
        learner.teach(np.arange(10), y[:10])
        run(learner, y, 3, n=2)
        test.predict_proba()
        rows = weakref.ref(learner._pool), weakref.ref(test._rows)
        del learner, test
        assert [row() for row in rows] == [None, None]
    finally:
        gc.enable()


def test_a_copy_learns_on_its_own():
    import copy

    X, y = binary()
    learner = run(ActiveLearner(BayesianLogisticRegression(**FIXED), X, classes=[0, 1]), y, 10)
    twin = copy.deepcopy(learner)
    run(twin, y, 10)
    for own, n_labels in ((learner, 10), (twin, 20)):
        assert len(own.labelled_) == n_labels
        np.testing.assert_allclose(own._pool.carried.mean, own.estimator_.predict_latent(X)[0], atol=1e-9)


@pytest.mark.parametrize("estimator", [BayesianLogisticRegression(), LogisticRegression()])
def test_single_first_rows_keep_away_from_each_other_whatever_is_constant(estimator):
    rng = np.random.default_rng(0)
    centres = np.repeat(np.eye(5) * 100.0, 40, axis=0)
    X = np.column_stack([centres + rng.normal(size=centres.shape), np.full(200, 0.1)])
    hits = []
    for seed in range(5):
        learner = ActiveLearner(estimator, X, random_state=seed)
        for _ in range(5):
            learner.teach(learner.query(), [0])
        hits.append(len(set(learner.labelled_ // 40)))
    assert np.mean(hits) > 4.5


@pytest.mark.parametrize("params", [{}, FIXED], ids=["refined", "matched"])
@pytest.mark.parametrize("acquisition", ["random", "thompson"])
def test_what_is_drawn_after_loading_is_what_would_have_been_drawn(acquisition, params, tmp_path, wine):
    X, y = wine
    learner = run(ActiveLearner(BayesianLogisticRegression(**params), X, acquisition), y, 12)
    learner.skip(learner.query())
    learner.save(tmp_path / "learner")
    again = ActiveLearner.load(tmp_path / "learner", BayesianLogisticRegression(**params), X)
    assert again.n_open == learner.n_open
    if acquisition == "thompson":
        np.testing.assert_allclose(again.scores(), learner.scores(), atol=1e-8)
    assert again.query(3).tolist() == learner.query(3).tolist()


def test_a_gp_that_came_fitted_is_never_fitted_anew_also_after_loading(tmp_path):
    X, y = binary(200, 2)
    gp = GPClassifier(n_inducing=8, max_iter=2).fit(X[:40], y[:40])
    learner = run(ActiveLearner(gp, X[40:]), y[40:], 3)
    learner.save(tmp_path / "learner")
    again = ActiveLearner.load(tmp_path / "learner", GPClassifier(n_inducing=8, max_iter=2), X[40:])
    for own in (learner, again):
        own.teach(np.setdiff1d(np.arange(160), own.labelled_), np.delete(y[40:], own.labelled_))
        assert own.estimator_.n_rows_seen_ == 200
    np.testing.assert_allclose(again.estimator_.predict_proba(X), learner.estimator_.predict_proba(X), atol=1e-9)


def test_kernels_of_their_own_are_fitted_anew():
    X, y = binary(60, 2)
    learner = ActiveLearner(GPClassifier(n_inducing=5, shared_kernel=False, max_iter=1), X)
    learner.teach(np.arange(20), y[:20])
    assert learner.query() >= 20


@pytest.mark.parametrize("estimator", [BayesianLogisticRegression(), LogisticRegression(), GPClassifier(n_inducing=5)])
def test_labels_are_checked_before_anything_is_learnt(estimator, wine):
    X, y = wine
    learner = ActiveLearner(estimator, X)
    with pytest.raises(InvalidArgumentError, match="numbers without NaN"):
        learner.teach([0], [np.nan])
    learner.teach([0], ["a"])
    with pytest.raises(InvalidArgumentError, match="of the same type as"):
        learner.teach([1], [1])
    with pytest.raises(InvalidArgumentError, match="'y_initial' of ActiveLearner must hold one label for each row"):
        ActiveLearner(estimator, X, X_initial=X[:4], y_initial=y[:3])
    with pytest.raises(InvalidArgumentError, match="'y_initial' of ActiveLearner must be among 'classes'"):
        ActiveLearner(estimator, X, X_initial=X, y_initial=y, classes=[0, 1])
    with pytest.raises(ValueError, match=r"at least one row|minimum of 1"):
        ActiveLearner(estimator, X[:0])


def test_decisions_for_one_class_alone_have_not_settled():
    X = np.random.default_rng(0).normal(size=(200, 3))
    learner = ActiveLearner(BayesianLogisticRegression(**FIXED), X, classes=[0, 1])
    run(learner, np.zeros(200, dtype=int), 10)
    assert not learner.has_converged()


def blobs(n=300, d=40, seed=0):
    """Return two classes that the rows nearly separate, with few rows for each feature."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X[:, 0] + 0.5 * rng.normal(size=n) > 0.0).astype(int)


def test_a_linear_model_is_refined_whenever_labels_have_grown_by_a_quarter():
    X, y = blobs()
    learner = ActiveLearner(BayesianLogisticRegression(), X)
    learner.teach(np.arange(20), y[:20])
    sizes = []
    for row in range(20, 120):
        learner.teach([row], y[[row]])
        assert learner.estimator_.refined_
        if learner._model.n_fitted not in sizes:
            sizes.append(learner._model.n_fitted)
    assert sizes == [20, 25, 32, 40, 50, 63, 79, 99]


def test_a_refined_learner_has_the_posterior_of_a_fit_to_the_same_rows():
    X, y = blobs()
    params = {"prior_variance": 0.3, "temperature": 1.0, "refine": 50}
    learner = ActiveLearner(BayesianLogisticRegression(**params), X, classes=[0, 1])
    learner.teach(np.arange(20), y[:20])
    run(learner, y, 8, 3)
    assert learner._model.n_fitted == 44
    rows = learner.labelled_
    anew = BayesianLogisticRegression(**params).fit(X[rows], y[rows])
    np.testing.assert_allclose(learner.estimator_.predict_proba(X), anew.predict_proba(X), atol=2e-3)


def test_labels_get_sites_of_their_own_between_refinements():
    X, y = blobs()
    learner = ActiveLearner(BayesianLogisticRegression(), X[:200])
    test = learner.track(X[200:])
    learner.teach(np.arange(80), y[:80])
    test.predict_proba()
    one_by_one = []
    for row in range(80, 95):
        learner.teach([row], y[[row]])
        one_by_one.append(learner.estimator_.predict_proba(X[200:]))
    stages = list(test.staged_predict_proba())
    np.testing.assert_allclose(stages, one_by_one, atol=1e-8)
    together = ActiveLearner(BayesianLogisticRegression(), X[:200])
    together.teach(np.arange(80), y[:80]).teach(np.arange(80, 95), y[80:95])
    np.testing.assert_allclose(together.estimator_.predict_proba(X[200:]), one_by_one[-1], atol=1e-8)


def test_a_linear_model_without_refinement_learns_matched_labels():
    X, y = blobs()
    learner = run(ActiveLearner(BayesianLogisticRegression(refine=False), X, classes=[0, 1]), y, 30)
    assert not learner.estimator_.refined_
    rows = learner.labelled_
    anew = BayesianLogisticRegression(refine=False).fit(X[rows], y[rows])
    np.testing.assert_allclose(learner.estimator_.tune().predict_proba(X), anew.predict_proba(X), atol=1e-8)


@pytest.mark.parametrize("refine", ["auto", 20])
def test_a_refined_model_is_refined_at_once_with_a_new_class(refine, wine):
    X, y = wine
    order = np.argsort(y, kind="stable")
    learner = ActiveLearner(BayesianLogisticRegression(refine=refine), X[order])
    learner.teach(np.arange(50, 70), y[order][50:70])
    learner.teach([150], [2])
    assert learner._model.n_fitted == 21
    assert learner.estimator_.refined_
    assert learner.estimator_.predict(X[order][150:151]) == 2


def test_a_refined_model_that_came_fitted_keeps_its_choice():
    X, y = blobs()
    model = BayesianLogisticRegression(refine=20).fit(X[:60], y[:60])
    learner = run(ActiveLearner(model, X[60:]), y[60:], 40)
    assert learner.estimator_.refined_
    np.testing.assert_array_equal(learner.estimator_.prior_variance_, model.prior_variance_)


@pytest.mark.parametrize("refine", ["auto", False])
def test_prior_variances_stay_moderate_with_fewer_rows_than_features(refine):
    X, y = blobs(d=200)
    y = (X[:, 0] > 0.0).astype(int)
    learner = ActiveLearner(BayesianLogisticRegression(refine=refine), X)
    learner.teach(np.arange(20), y[:20])
    for _ in range(8):
        run(learner, y, 1, 10)
        assert learner.estimator_.prior_variance_.max() < 100.0


def test_an_error_leaves_a_refined_model_as_it_was(monkeypatch):
    X, y = blobs()
    learner = ActiveLearner(BayesianLogisticRegression(), X)
    learner.teach(np.arange(40), y[:40])
    before = learner.estimator_.predict_proba(X)

    def fail(*_):
        raise RuntimeError("not today")

    monkeypatch.setattr(BayesianLogisticRegression, "refine_again", fail)
    with pytest.raises(RuntimeError, match="not today"):
        learner.teach(np.arange(40, 60), y[40:60])
    assert len(learner.labelled_) == learner.estimator_.n_rows_seen_ == 40
    np.testing.assert_allclose(learner.estimator_.predict_proba(X), before, atol=1e-9)


def test_a_batch_is_diverse_among_the_rows_of_the_largest_scores():
    X, y = binary(300, 3)
    learner = ActiveLearner(BayesianLogisticRegression(**FIXED), X, classes=[0, 1])
    learner.teach(np.arange(30), y[:30])
    ranks = np.argsort(np.argsort(-learner.scores()))
    batch = learner.query(15)
    assert ranks[batch].max() < 30
    assert ranks[batch].max() > 15
