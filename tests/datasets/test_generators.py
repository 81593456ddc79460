import numpy as np
import pytest

from gaussify.datasets import make_drifting_stream, make_four_classes, make_rare_class
from gaussify.exceptions import InvalidArgumentError


def accuracy_of_first_law(drift, part):
    """How well a classifier of the first rows does on a tenth of the stream; a hundred rows are left out."""
    from sklearn.linear_model import LogisticRegression

    X, y = make_drifting_stream(4000, n_features=6, n_classes=3, drift=drift, random_state=1)
    model = LogisticRegression(max_iter=500).fit(X[:300], y[:300])
    rows = slice(400 * part, 400 * part + 400)
    return model.score(X[rows], y[rows])


def test_abrupt_drift_comes_in_the_middle():
    assert accuracy_of_first_law("abrupt", 4) > 0.75
    assert accuracy_of_first_law("abrupt", 5) < 0.55


def test_gradual_drift_comes_slowly():
    early, middle, late = (accuracy_of_first_law("gradual", part) for part in (1, 5, 9))
    assert early > middle + 0.05
    assert middle > late + 0.05


def test_without_drift_the_first_law_holds():
    assert min(accuracy_of_first_law("none", part) for part in (1, 5, 9)) > 0.75


@pytest.mark.parametrize("drift", ["none", "abrupt", "gradual"])
def test_all_classes_turn_up_and_features_are_standard(drift):
    X, y = make_drifting_stream(2000, n_features=4, n_classes=5, drift=drift, random_state=0)
    assert X.shape == (2000, 4)
    assert set(y) == set(range(5))
    np.testing.assert_allclose(X.std(0), 1.0, atol=0.1)


def test_four_classes_are_balanced_and_apart_but_overlap():
    X, y = make_four_classes(402, random_state=0)
    assert X.shape == (402, 2)
    assert set(np.bincount(y)) == {100, 101}
    centres = np.array([X[y == label].mean(0) for label in range(4)])
    np.testing.assert_allclose(centres, [[1.06, 1.06], [-1.06, 1.06], [-1.06, -1.06], [1.06, -1.06]], atol=0.25)
    nearest = np.argmin(((X[:, None] - centres) ** 2).sum(-1), axis=1)
    assert 0.75 < np.mean(nearest == y) < 0.97


@pytest.mark.parametrize(("n", "prevalence"), [(10_000, 0.033), (100_000, 0.001), (1000, 0.5)])
def test_the_rare_class_is_as_rare_as_asked_and_can_be_predicted(n, prevalence):
    X, y = make_rare_class(n, prevalence, random_state=0)
    assert X.shape == (n, 3)
    assert set(X[:, 0]) == {0.0, 1.0}
    assert X.min() >= 0.0
    expected = n * prevalence
    assert abs(y.sum() - expected) < 4.0 * np.sqrt(expected)
    balance = X[:, 1]  # the chance that a row of the rare class has the larger balance of two
    larger = np.searchsorted(np.sort(balance[y == 0]), balance[y == 1]).mean() / (y == 0).sum()
    assert larger > 0.75


def test_a_single_row_and_a_class_that_hardly_ever_comes_can_be_drawn():
    assert make_rare_class(1, 0.5, random_state=0)[0].shape == (1, 3)
    assert make_rare_class(1000, 1e-12, random_state=0)[1].sum() == 0


@pytest.mark.parametrize("prevalence", [0.0, 1.0, -0.1, np.nan])
def test_a_prevalence_that_is_no_probability_is_refused(prevalence):
    with pytest.raises(InvalidArgumentError, match=r"'prevalence' .* must lie between 0 and 1; got"):
        make_rare_class(10, prevalence)


@pytest.mark.parametrize("make", [make_drifting_stream, make_four_classes, make_rare_class])
def test_the_seed_decides(make):
    first, again, other = (make(50, random_state=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "The 'n' parameter of make_drifting_stream must be an integer of at least 1; got 0"),
        ({"n": 5, "n_classes": 1}, "'n_classes' .* at least 2; got 1"),
        ({"n": 5, "drift": "slow"}, "'drift' .* one of 'none', 'abrupt', 'gradual'; got 'slow'"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        make_drifting_stream(**options)
