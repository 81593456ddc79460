"""Bad input is refused with a clear error and leaves the model exactly as it was; odd input is taken as it is."""

import copy
import functools
import inspect
import warnings

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel

import gaussify.gp.learning._schedule as schedule
from estimator_checks import (
    BAD_IN_ANY_FIT,
    BAD_WITHOUT_LABELS,
    LABELS,
    NAMES,
    NEW,
    ROWS,
    RefusesBadInput,
    RefusesDamagedFiles,
    X,
    Y,
    assert_refused,
    edit_file,
    spoilt,
)
from gaussify import BayesianLogisticRegression, GPClassifier
from gaussify.exceptions import InvalidArgumentError, ModelFileError

FIXED = {"alpha_eps": 0.2, "temperature": 1.5, "max_iter": 0}
SPARSE = {"n_inducing": 5}
KIND = "GPClassifier"


def new(**params) -> GPClassifier:
    return GPClassifier(**{**FIXED, **params})


class TestBadInput(RefusesBadInput):
    estimator = GPClassifier
    params = FIXED | SPARSE


class TestDamagedFiles(RefusesDamagedFiles):
    estimator = GPClassifier
    params = FIXED | SPARSE


@functools.cache
def sparse_model() -> GPClassifier:
    """Errors leave it as it is, so that it can be used again."""
    return new(**SPARSE).fit(X, Y)


@functools.cache
def exact_model() -> GPClassifier:
    return new().fit(X, Y)


# --- rows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("use", ["partial_fit", "unlearn", "fit"])
def test_rows_whose_squares_overflow_are_refused_and_change_nothing(use, tmp_path):
    call = lambda m: getattr(m, use)(spoilt(1e150), LABELS)  # noqa: E731
    assert_refused(sparse_model(), call, "too large", tmp_path / "model")


@pytest.mark.parametrize("name", BAD_IN_ANY_FIT)
def test_bad_rows_are_refused_by_an_exact_model_and_change_nothing(name, tmp_path):
    bad = ROWS[name]
    assert_refused(exact_model(), lambda m: m.fit(bad.rows, bad.labels), bad.message, tmp_path / "model")


@pytest.mark.parametrize("name", BAD_WITHOUT_LABELS)
def test_bad_rows_are_not_predicted_by_an_exact_model(name):
    bad = ROWS[name]
    with pytest.raises(ValueError, match=bad.message):
        exact_model().predict_proba(bad.rows)


@pytest.mark.parametrize("params", [{}, SPARSE], ids=["exact", "sparse"])
@pytest.mark.parametrize(
    ("labels", "weight", "message"),
    [
        ([1, 1, 1, 1], None, "at least two classes; got only the class 1"),
        (LABELS, np.zeros(4), "must not be zero for every row"),
        (LABELS, [1.0, 0.0, 0.0, 1.0], "at least two classes.* got only the class 0"),
    ],
    ids=["one-class", "no-weight", "one-class-with-weight"],
)
def test_hyperparameters_are_learnt_from_two_classes_at_least(labels, weight, message, params):
    model = new(**params)
    with pytest.raises(InvalidArgumentError, match=message):
        model.fit(NEW, labels, weight)
    assert not hasattr(model, "classes_")


def test_the_first_chunk_needs_two_classes_even_where_more_are_declared():
    with pytest.raises(InvalidArgumentError, match=r"at least two classes.* got only the class 1"):
        new(**SPARSE).partial_fit(NEW, [1] * 4, classes=[0, 1, 2])


@pytest.mark.parametrize("params", [{}, SPARSE], ids=["exact", "sparse"])
def test_an_interrupt_while_hyperparameters_are_learnt_leaves_the_model_as_it_was(params, tmp_path, monkeypatch):
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    model = sparse_model() if params else exact_model()
    monkeypatch.setattr(schedule, "choose_by_latents", interrupt)
    assert_refused(model, lambda m: m.fit(X[:20] * 3.0, Y[:20]), "^$", tmp_path / "model", KeyboardInterrupt)


def test_a_parameter_that_does_not_exist_leaves_the_others_as_they_were():
    model = GPClassifier(alpha_eps=0.1)
    with pytest.raises(ValueError, match="alpha"):
        model.set_params(alpha_eps=0.9, alpha=0.1)
    assert model.alpha_eps == 0.1


# --- classes -------------------------------------------------------------------------------------------------------


def test_a_new_class_is_refused_where_each_has_a_kernel_of_its_own(tmp_path):
    model = new(n_inducing=3, shared_kernel=False).fit(X, Y)
    message = r"shared_kernel=False .*got 1 more.*partial_fit\(classes=\[\.\.\.\]\)"
    assert_refused(model, lambda m: m.partial_fit(NEW, [0, 1, 2, 7]), message, tmp_path / "model", InvalidArgumentError)
    assert model.partial_fit(NEW, LABELS).n_rows_seen_ == 34


# --- unlearn and merge ---------------------------------------------------------------------------------------------


OTHERS = {
    "other-points": (lambda: new(**SPARSE, random_state=1).fit(X, Y), "same hyperparameters.*blank_copy"),
    "other-kernel": (lambda: new(**SPARSE, kernel="matern12").fit(X, Y), "same hyperparameters.*blank_copy"),
    "other-number-of-points": (lambda: new(n_inducing=4).fit(X, Y), "same hyperparameters.*blank_copy"),
    "other-scaling": (lambda: new(**SPARSE, scaling="quantile").fit(X, Y), "same hyperparameters.*blank_copy"),
    "other-width": (lambda: new(**SPARSE).fit(X[:, :2], Y), "same hyperparameters.*blank_copy"),
    "other-labels": (lambda: new(**SPARSE).fit(X, NAMES[Y]), "same type of labels; got number and text"),
    "exact": (lambda: new().fit(X, Y), "n_inducing"),
    "something-else": (lambda: BayesianLogisticRegression().fit(X, Y), "another GPClassifier; got a Bayesian"),
}


@pytest.mark.parametrize(("other", "message"), OTHERS.values(), ids=OTHERS)
def test_models_that_do_not_fit_together_are_not_merged(other, message, tmp_path):
    assert_refused(sparse_model(), lambda m: m.merge(other()), message, tmp_path / "model", InvalidArgumentError)


def test_a_model_of_other_units_is_not_merged(tmp_path):
    other = new(**SPARSE).fit(2.0 * X, Y)  # all else is the same, once scaled
    assert_refused(sparse_model(), lambda m: m.merge(other), "scaling", tmp_path / "model", InvalidArgumentError)


def test_a_new_class_is_not_merged_where_each_has_a_kernel_of_its_own(tmp_path):
    model = new(n_inducing=3, shared_kernel=False).fit(X, Y)
    other = model.blank_copy()
    other.classes_ = np.array([0, 1, 7])  # as if it had learnt another one
    assert_refused(model, lambda m: m.merge(other), "shared_kernel=False", tmp_path / "model", InvalidArgumentError)


def test_an_exact_model_has_no_partial_fit():
    with pytest.raises(AttributeError) as error:
        exact_model().partial_fit(NEW, LABELS)
    assert "with inducing points only" in str(error.value.__cause__)


EXACT_USES = {
    "unlearn": lambda m: m.unlearn(X[:2], Y[:2]),
    "merge": lambda m: m.merge(sparse_model()),
    "blank_copy": lambda m: m.blank_copy(),
}


@pytest.mark.parametrize("use", EXACT_USES.values(), ids=EXACT_USES)
def test_an_exact_model_says_that_streams_need_inducing_points(use, tmp_path):
    message = "with inducing points only.*give n_inducing, or fit again with all rows"
    assert_refused(exact_model(), use, message, tmp_path / "model", (InvalidArgumentError, AttributeError))


def test_an_exact_model_has_no_inducing_points():
    with pytest.raises((InvalidArgumentError, AttributeError), match="inducing points"):
        exact_model().inducing_points_  # noqa: B018


def test_an_exact_model_of_many_rows_is_announced(monkeypatch):
    monkeypatch.setattr("gaussify.gp._classifier._MANY_ROWS", 29)
    with pytest.warns(UserWarning, match=r"exact GPClassifier of 30 rows needs .* GB.*n_inducing=200"):
        new().fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new(**SPARSE).fit(X, Y)
        new().fit(X[:29], Y[:29])


# --- parameters ----------------------------------------------------------------------------------------------------

POINTS = np.zeros((5, 3))
PARAMETERS = [
    (
        "kernel",
        "rbff",
        "must be one of 'rbf', 'matern12', 'matern32', 'matern52', 'linear', or a kernel of GPyTorch; got 'rbff'",
    ),
    ("kernel", 3, "must be a kernel of GPyTorch or the name of one; got 3"),
    ("kernel", RBFKernel, "must be a kernel of GPyTorch"),
    ("kernel", RBFKernel(batch_shape=torch.Size([3])), "must have no batch_shape; got"),
    ("kernel", RBFKernel(ard_num_dims=7), "rows of 3 features"),
    ("kernel", RBFKernel(active_dims=[0, 9]), "rows of 3 features"),
    ("n_inducing", 0, "an integer of at least 1; got 0"),
    ("n_inducing", 2.5, "an integer of at least 1; got 2.5"),
    ("n_inducing", "many", "an integer of at least 1; got 'many'"),
    ("n_inducing", True, "an integer of at least 1; got True"),
    ("objective", "evidence", "must be one of 'matched'.*; got 'evidence'"),
    ("method", "laplce", "must be one of 'laplace', 'variational'.*, or 'auto'; got 'laplce'"),
    ("method", None, "must be one of"),
    ("alpha_eps", 0.0, "must be positive; got 0"),
    ("alpha_eps", np.nan, "must be finite; got nan"),
    ("alpha_eps", 1e-9, "at least 1e-08; got 1e-09"),
    ("alpha_eps", "large", "a number, one per class, or 'auto' or 'per-class'; got 'large'"),
    ("alpha_eps", [0.1, -0.2, 0.1], "must be positive; got -0.2 at index 1"),
    ("alpha_eps", [0.1, 0.2], "one per class; got 2 numbers for 3 classes"),
    ("temperature", -1.0, "must be positive"),
    ("temperature", np.inf, "must be finite"),
    ("temperature", [1.0, 2.0], "must be a number"),
    ("temperature", "x", "must be a positive number or 'auto'; got 'x'"),
    ("scaling", "robust", "must be one of 'standard', 'quantile', or None; got 'robust'"),
    ("scaling", False, "must be one of"),
    ("likelihood", "probit", "must be one of 'auto', 'softmax', 'logistic'; got 'probit'"),
    ("likelihood", "logistic", "two classes; got 3"),
    ("inducing", "random", "must be one of 'kmeans', 'greedy', or an array of points; got 'random'"),
    ("inducing", None, "must be numbers; got None"),
    ("inducing", POINTS[:4], "must hold 'n_inducing' points; got 4 points and n_inducing=5"),
    ("inducing", POINTS[:, :2], "must have 3 columns"),
    ("inducing", POINTS[0], "must have 2 dimensions"),
    ("inducing", POINTS + np.nan, "must be finite; got nan"),
    ("learn_inducing", "yes", "must be True or False; got 'yes'"),
    ("shared_kernel", None, "must be True or False; got None"),
    ("n_inducing_predict", 4, "must be at least 'n_inducing'.*; got 4 and 5"),
    ("n_inducing_predict", 9.5, "an integer of at least 1; got 9.5"),
    ("max_iter", -1, "an integer of at least 0; got -1"),
    ("max_iter", None, "an integer of at least 0; got None"),
    ("tol", 0.0, "must be positive"),
    ("tol", "small", "must be a positive number; got 'small'"),
    ("label_variance", 0.0, "must be positive"),
    ("criterion", "cv", "must be one of 'leave-one-out', 'training'; got 'cv'"),
    ("sample_size", 0, "an integer of at least 1; got 0"),
    ("batch_size", 0, "an integer of at least 1; got 0"),
    ("expectation", 0, "'quadrature', or a number of samples of at least 1; got 0"),
    ("expectation", "sampled", "'quadrature', or a number of samples of at least 1; got 'sampled'"),
    ("refine", "always", "must be 'auto', False or a positive number of passes; got 'always'"),
    ("max_memory_gib", 0.0, "must be None or a positive number.*; got 0.0"),
    ("predictive", "exact", "must be one of 'quadrature'.*; got 'exact'"),
    ("verbose", "loud", "'loud'"),
    ("verbose", np.zeros(3), "array"),
    ("random_state", -1, "an integer of at least 0; got -1"),
    ("random_state", None, "an integer of at least 0; got None"),
    ("random_state", 2**40, str(2**40)),
]


@pytest.mark.parametrize(
    ("name", "value", "message"), PARAMETERS, ids=[f"{name}-{i}" for i, (name, *_) in enumerate(PARAMETERS)]
)
def test_parameters_out_of_range_are_refused_by_name_and_a_fitted_model_stays(name, value, message):
    model = new(**{**SPARSE, name: value})  # is built without complaint
    with pytest.raises(InvalidArgumentError, match=f"(?s){name}.*{message}"):
        model.fit(X, Y)
    assert not hasattr(model, "classes_")
    fitted = copy.deepcopy(sparse_model())
    before = fitted.predict_proba(X), fitted.inducing_points_
    fitted.set_params(**{name: value})
    with pytest.raises(InvalidArgumentError):
        fitted.fit(X * 2.0, Y)
    np.testing.assert_array_equal(fitted.predict_proba(X), before[0])
    np.testing.assert_array_equal(fitted.inducing_points_, before[1])


def test_every_parameter_has_a_value_that_is_refused():
    assert {name for name, *_ in PARAMETERS} == set(inspect.signature(GPClassifier).parameters)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_inducing_predict": 5}, "'n_inducing_predict'.*'n_inducing', which must be given; got 5 and None"),
        ({"inducing": POINTS}, "'inducing'.*got 5 points and n_inducing=None"),
        ({"kernel": RBFKernel(ard_num_dims=7)}, "'kernel'"),
        ({"method": "gauss", "likelihood": "logistic"}, "method='gauss' with likelihood='logistic'"),
    ],
    ids=["predict-points", "points", "width-of-kernel", "gauss-logistic"],
)
def test_parameters_that_do_not_go_together_are_refused(params, message):
    with pytest.raises(InvalidArgumentError, match=message):
        new(**params).fit(X, Y)


# --- files ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.gaussify"
    sparse_model().save(path)
    return path


def double(config, tensors):
    """Two kernels for three latents."""
    config["model"].update(n_kernels=2)
    tensors.update({k.replace("kernel0", "kernel1"): v.clone() for k, v in tensors.items() if k.startswith("kernel0")})
    if "points0" in tensors:
        parts = {k: v for k, v in tensors.items() if k.startswith(("points0", "statistics0"))}
        tensors.update({k.replace("s0", "s1"): v.clone() for k, v in parts.items()})


EDITS = {
    "no-params": lambda config, tensors: config.pop("params"),
    "unknown-param": lambda config, tensors: config["params_of_fit"].update(colour="red"),
    "bad-param": lambda config, tensors: config["params_of_fit"].update(alpha_eps=-1.0),
    "code-param": lambda config, tensors: config["params_of_fit"].update(alpha_eps="__import__('os').system('false')"),
    "params-list": lambda config, tensors: config.update(params=[1, 2]),
    "unknown-kernel": lambda config, tensors: config["params_of_fit"].update(kernel="magic"),
    "other-kernel": lambda config, tensors: config["params_of_fit"].update(kernel="linear"),
    "logistic": lambda config, tensors: config["params_of_fit"].update(likelihood="logistic"),
    "no-classes": lambda config, tensors: config.pop("classes"),
    "repeated-classes": lambda config, tensors: config["classes"].update(values=[0, 1, 1]),
    "fewer-classes": lambda config, tensors: config["classes"].update(values=[0, 1]),
    "more-features": lambda config, tensors: config.update(n_features=4),
    "fewer-names": lambda config, tensors: config.update(feature_names=["a"]),
    "no-choice": lambda config, tensors: config.pop("choice"),
    "choice-method": lambda config, tensors: config["choice"].update(method="magic"),
    "choice-temperature": lambda config, tensors: config["choice"].update(temperature=-1.0),
    "choice-alpha": lambda config, tensors: tensors.update({"choice.alpha_eps": torch.ones(7).double()}),
    "no-kernels": lambda config, tensors: config["model"].update(n_kernels=0),
    "many-kernels": lambda config, tensors: config["model"].update(n_kernels=10**9),
    "two-kernels": double,
    "kernel-nan": lambda config, tensors: tensors["kernel0.raw_outputscale"].fill_(torch.nan),
    "kernel-shape": lambda config, tensors: tensors.update({"kernel0.raw_outputscale": torch.ones(2).double()}),
    "no-scaling": lambda config, tensors: tensors.pop("scaling.knots"),
    "one-knot": lambda config, tensors: tensors.update({k: tensors[k][:1].clone() for k in tensors if "scaling" in k}),
    "equal-knots": lambda config, tensors: tensors["scaling.knots"].fill_(0.0),
    "search": lambda config, tensors: config.update(search=[[1]]),
    "objective": lambda config, tensors: config.update(objective_value="high"),
    "rows-seen": lambda config, tensors: config.update(n_rows_seen="many"),
}


def without_points(config, tensors):
    """No inducing points, and statistics of the constant alone."""
    gram = tensors["statistics0.gram"]
    tensors.update({"points0": tensors["points0"][:0].clone(), "statistics0.gram": gram[:, -1:, -1:].clone()})
    tensors["statistics0.feature_sum"] = tensors["statistics0.feature_sum"][:, -1:].clone()


SPARSE_EDITS = {
    "zero-points": without_points,
    "kernel-too-large": lambda config, tensors: tensors["kernel0.raw_outputscale"].fill_(1000.0),
    "no-points": lambda config, tensors: tensors.pop("points0"),
    "points-width": lambda config, tensors: tensors.update(points0=tensors["points0"][:, :2].contiguous()),
    "points-nan": lambda config, tensors: tensors["points0"].fill_(torch.nan),
    "no-gram": lambda config, tensors: tensors.pop("statistics0.gram"),
    "gram-shape": lambda config, tensors: tensors.update({"statistics0.gram": tensors["statistics0.gram"][:2].clone()}),
    "gram-nan": lambda config, tensors: tensors["statistics0.gram"].fill_(torch.nan),
    "gram-dtype": lambda config, tensors: tensors.update({"statistics0.gram": tensors["statistics0.gram"].float()}),
    "exact": lambda config, tensors: config["model"].update(is_sparse=False),
}
ROW_TENSORS = ("rows.features", "rows.labels", "rows.weight")
EXACT_EDITS = {
    "no-rows": lambda config, tensors: tensors.pop("rows.features"),
    "zero-rows": lambda config, tensors: tensors.update({name: tensors[name][:0].clone() for name in ROW_TENSORS}),
    "rows-nan": lambda config, tensors: tensors["rows.features"].fill_(torch.nan),
    "rows-width": lambda config, tensors: tensors.update(
        {"rows.features": tensors["rows.features"][:, :2].contiguous()}
    ),
    "labels-unknown": lambda config, tensors: tensors["rows.labels"].fill_(9),
    "labels-dtype": lambda config, tensors: tensors.update({"rows.labels": tensors["rows.labels"].double()}),
    "labels-length": lambda config, tensors: tensors.update({"rows.labels": tensors["rows.labels"][:3].clone()}),
    "weights-negative": lambda config, tensors: tensors["rows.weight"].fill_(-1.0),
    "sparse": lambda config, tensors: config["model"].update(is_sparse=True),
}
SOME_EDITS = {name: EDITS[name] for name in ("bad-param", "unknown-kernel", "choice-method", "two-kernels", "one-knot")}
CASES = {
    **{f"sparse-{name}": (sparse_model, edit) for name, edit in (EDITS | SPARSE_EDITS).items()},
    **{f"exact-{name}": (exact_model, edit) for name, edit in (SOME_EDITS | EXACT_EDITS).items()},
}


@pytest.mark.parametrize(("model", "edit"), CASES.values(), ids=CASES)
def test_a_file_that_does_not_hold_a_whole_model_is_refused(path, model, edit):
    model().save(path)
    edit_file(path, KIND, edit)
    with pytest.raises(ModelFileError, match="does not hold a complete GPClassifier"):
        GPClassifier.load(path)


def test_a_model_with_a_kernel_object_asks_for_it(path):
    new(**SPARSE, kernel=ScaleKernel(RBFKernel())).fit(X, Y).save(path)
    with pytest.raises(InvalidArgumentError, match=r"custom kernel.*load\(path, kernel=\.\.\.\)"):
        GPClassifier.load(path)


@pytest.mark.parametrize(
    "kernel",
    [RBFKernel(), ScaleKernel(RBFKernel(ard_num_dims=3)), LinearKernel(), ScaleKernel(RBFKernel()) + LinearKernel()],
    ids=["unscaled", "more-lengthscales", "linear", "sum"],
)
def test_a_kernel_object_of_another_form_is_refused(path, kernel):
    new(**SPARSE, kernel=ScaleKernel(RBFKernel())).fit(X, Y).save(path)
    with pytest.raises(ModelFileError, match="does not hold a complete GPClassifier"):
        GPClassifier.load(path, kernel=kernel)


def test_a_kernel_object_of_another_class_with_the_same_parameters_is_refused(path):
    new(**SPARSE, kernel=ScaleKernel(RBFKernel())).fit(X, Y).save(path)
    with pytest.raises((ModelFileError, InvalidArgumentError), match=r"(?i)kernel"):
        GPClassifier.load(path, kernel=ScaleKernel(MaternKernel()))


# --- odd data ------------------------------------------------------------------------------------------------------

SINGLE = np.where(np.arange(30) == 3, 9, Y)
MODELS = {
    "exact": {},
    "auto": {"alpha_eps": "auto", "temperature": "auto"},
    "sparse": {"n_inducing": 6},
    "all-points": {"n_inducing": 100},
    "one-point": {"n_inducing": 1, "inducing": "greedy"},
    "quantile": {"scaling": "quantile", "n_inducing": 6, "n_inducing_predict": 20},
    "separate": {"n_inducing": 3, "shared_kernel": False},
    "linear": {"kernel": "linear", "n_inducing": 6},
    "matern": {"kernel": "matern12"},
}
ODD = {
    "constant-column": (np.column_stack([X, np.full(30, 7.0)]), Y, "separate"),
    "constant-columns": (np.column_stack([X[:, :1], np.zeros(30), np.full(30, 1e-300)]), Y, "quantile"),
    "repeated-rows": (np.repeat(X[:6], 5, axis=0), np.repeat(Y[:6], 5), "all-points"),
    "rows-of-several-classes": (np.repeat(X[:10], 3, axis=0), Y, "quantile"),
    "all-rows-equal": (np.ones((30, 3)), Y, "linear"),
    "all-rows-zero": (np.zeros((30, 3)), Y, "separate"),
    "class-of-one-row": (X, SINGLE, "auto"),
    "huge-and-tiny-columns": (X * [1e100, 1e-100, 1.0], Y, "linear"),
    "far-from-zero": (X + np.array([1e8, -1e10, 0.0]), Y, "matern"),
    "outlier": (np.vstack([X[:-1], [1e6, -1e6, 1e6]]), Y, "quantile"),
    "one-feature": (X[:, :1], Y, "one-point"),
    "more-features-than-rows": (np.random.default_rng(1).normal(size=(8, 40)), np.arange(8) % 2, "linear"),
    "two-rows": (X[:2], [0, 1], "auto"),
    "two-equal-rows": (X[[0, 0]], [0, 1], "linear"),
    "imbalanced": (X, np.arange(30) == 0, "auto"),
    "separable": (X, (X[:, 0] > 0.0).astype(int), "auto"),
    "integers": ((X * 10.0).astype(int), Y, "one-point"),
    "booleans": (X > 0.0, Y, "matern"),
    "float32": (X.astype(np.float32), Y, "all-points"),
    "negative-labels": (X, Y - 100, "one-point"),
    "a-class-for-each-row": (X[:9], NAMES[Y[:9]] + np.array(list("abcdefghi")), "all-points"),
}


@pytest.mark.parametrize(("rows", "labels", "other"), ODD.values(), ids=ODD)
def test_odd_data_give_probabilities(rows, labels, other):
    for name in ("exact" if "n_inducing" in MODELS[other] else "sparse", other):
        model = new(**{"max_iter": 2, **MODELS[name]}).fit(rows, labels)
        assert set(model.predict(rows).tolist()) <= set(np.asarray(labels).tolist())
        if model.n_inducing is not None:
            model.partial_fit(rows, labels)
        far = np.asarray(rows, dtype=float)[:2] * 1e3
        for probs in (model.predict_proba(rows), model.predict_proba(far)):
            assert np.isfinite(probs).all(), name
            np.testing.assert_allclose(probs.sum(1), 1.0, atol=1e-6, err_msg=name)
            assert ((probs >= 0.0) & (probs <= 1.0)).all(), name


@pytest.mark.parametrize("scaling", [None, "quantile"])
def test_odd_data_give_probabilities_with_any_scaling(scaling):
    for name in ("constant-columns", "all-rows-equal", "outlier", "huge-and-tiny-columns"):
        rows, labels, _ = ODD[name]
        if scaling is None and name.startswith("huge"):
            continue
        for n_inducing in (None, 4):
            probs = new(scaling=scaling, n_inducing=n_inducing, max_iter=2).fit(rows, labels).predict_proba(rows)
            assert np.isfinite(probs).all()
            np.testing.assert_allclose(probs.sum(1), 1.0, atol=1e-6)


@pytest.mark.parametrize("labels", [(np.arange(30) == 0).astype(int), SINGLE], ids=["imbalanced", "single"])
@pytest.mark.parametrize("sample_size", [1, 2, 7])
def test_few_rows_to_judge_by_are_enough(labels, sample_size):
    model = new(n_inducing=4, max_iter=2, temperature="auto", sample_size=sample_size).fit(X, labels)
    probs = model.predict_proba(X)
    assert np.isfinite(probs).all()
    assert np.isfinite(model.score_)


def test_rows_of_tiny_or_huge_weight_can_be_learnt():
    for n_inducing in (None, 4):
        for scale in (1e-9, 1e9):
            model = new(n_inducing=n_inducing, max_iter=2).fit(X, Y, scale * np.linspace(1.0, 2.0, 30))
            assert np.isfinite(model.predict_proba(X)).all()


def test_probabilities_of_equal_rows_are_the_shares_of_the_classes():
    model = GPClassifier(max_iter=5, temperature=1.0).fit(np.ones((30, 2)), np.arange(30) < 21)
    assert model.predict_proba(np.ones((1, 2)))[0, 1] == pytest.approx(0.7, abs=0.1)
