"""What every updatable classifier promises about bad input and damaged files, as classes of tests to inherit from.

A test file names its estimator and the parameters that keep a fit short::

    class TestBadInput(RefusesBadInput):
        estimator = GPClassifier
        params = {"n_inducing": 5, "max_iter": 0}
"""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from gaussify import __version__
from gaussify._persistence import read_model, write_model
from gaussify.exceptions import InvalidArgumentError, ModelFileError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3))
Y = (X @ RNG.normal(size=(3, 3)) + RNG.gumbel(size=(30, 3))).argmax(1)
NAMES = np.array(["ash", "fir", "oak"])
NEW = RNG.normal(size=(4, 3))  # rows of which one entry is spoilt
LABELS = [0, 1, 2, 0]


def spoilt(value: float, place: tuple[int, int] = (2, 1)) -> np.ndarray:
    rows = NEW.copy()
    rows[place] = value
    return rows


def state(model: Any, path: Path) -> tuple:
    """All that can be seen of a model: probabilities, and the bytes of its file."""
    model.save(path)
    return model.predict_proba(X).tobytes(), path.read_bytes(), model.classes_.tobytes(), str(model.get_params())


def assert_refused(
    model: Any, call: Callable[[Any], object], message: str, path: Path, error: type[BaseException] = ValueError
) -> None:
    """The call raises the error with this message, and the model is the same afterwards."""
    before = state(model, path)
    with pytest.raises(error, match=message):
        call(model)
    assert state(model, path) == before


class BadRows(NamedTuple):
    rows: Any
    labels: Any
    message: str
    """What the error says."""
    for_any_fit: bool = True
    """Whether a first fit refuses the rows too: they are wrong by themselves, not only beside earlier rows."""


ROWS = {
    "nan": BadRows(spoilt(np.nan), LABELS, "Input X contains NaN"),
    "inf": BadRows(spoilt(np.inf), LABELS, "Input X contains infinity"),
    "minus-inf": BadRows(spoilt(-np.inf), LABELS, "Input X contains infinity"),
    "nan-in-float32": BadRows(spoilt(np.nan).astype(np.float32), LABELS, "Input X contains NaN"),
    "nan-in-list": BadRows(spoilt(np.nan).tolist(), LABELS, "Input X contains NaN"),
    "too-wide": BadRows(np.ones((4, 5)), LABELS, r"X has 5 features, but \w+ is expecting 3", for_any_fit=False),
    "too-narrow": BadRows(np.ones((4, 2)), LABELS, "X has 2 features", for_any_fit=False),
    "one-row-flat": BadRows(NEW[0], LABELS[:1], "Expected 2D array, got 1D array"),
    "three-dimensions": BadRows(np.ones((4, 3, 1)), LABELS, "dim <= 2 is required|expected <= 2"),
    "ragged": BadRows([[1.0, 2.0, 3.0], [1.0]], LABELS[:2], "inhomogeneous|sequence"),
    "text": BadRows(np.full((4, 3), "a"), LABELS, "must be numbers; got an array of <U1"),
    "dates": BadRows(np.full((4, 3), np.datetime64("2020-01-01")), LABELS, "must be numbers; got an array of datetime"),
    "objects": BadRows(np.full((4, 3), "a", dtype=object), LABELS, "could not convert string to float"),
    "complex": BadRows(NEW + 1j, LABELS, "Complex data not supported"),
    "no-rows": BadRows(np.zeros((0, 3)), [], r"0 sample"),
    "fewer-labels": BadRows(NEW, LABELS[:3], "inconsistent numbers of samples"),
    "more-labels": BadRows(NEW, [*LABELS, 0], "inconsistent numbers of samples"),
    "fewer-labels-array": BadRows(NEW, np.array(LABELS[:3]), "inconsistent numbers of samples"),
    "no-labels": BadRows(NEW, None, "requires y to be passed, but the target y is None"),
    "continuous-labels": BadRows(NEW, [0.5, 1.5, 2.0, 0.0], "Unknown label type: continuous"),
    "nan-labels": BadRows(NEW, [0.0, np.nan, 1.0, 2.0], "Input y contains NaN"),
    "text-labels": BadRows(
        NEW, NAMES[LABELS], "must stay of one type: labels so far are like .*0.*; got .*ash", for_any_fit=False
    ),
    "mixed-labels": BadRows(NEW, np.array([0, "oak", 1, 2], dtype=object), "must be all strings or all numbers"),
    "mixed-labels-list": BadRows(
        NEW, [0, "oak", 1, 2], "must be all strings or all numbers|must stay of one type", for_any_fit=False
    ),
    "missing-labels": BadRows(
        NEW, np.array([0, None, 1, 2], dtype=object), "must be all strings or all numbers|contains NaN"
    ),
    "two-columns-of-labels": BadRows(NEW, np.ones((4, 2), dtype=int), "y should be a 1d array"),
}
BAD_IN_ANY_FIT = [name for name, bad in ROWS.items() if bad.for_any_fit]
BAD_WITHOUT_LABELS = ["nan", "inf", "too-wide", "too-narrow", "one-row-flat", "text", "no-rows", "complex"]

WEIGHTS = {
    "negative": ([1.0, -1.0, 1.0, 1.0], "at least 0; got -1"),
    "nan": ([1.0, np.nan, 1.0, 1.0], "finite; got nan"),
    "inf": ([1.0, np.inf, 1.0, 1.0], "finite; got inf"),
    "too-few": ([1.0, 1.0], "2"),
    "one-in-a-list": ([1.0], "1"),
    "two-columns": (np.ones((4, 2)), "2"),
    "text": (["a", "b", "c", "d"], "numbers"),
}


class _OfOneEstimator:
    """The estimator under test, made with parameters that are given rather than searched."""

    estimator: ClassVar[type]
    params: ClassVar[dict[str, Any]]

    @classmethod
    def new(cls, **params: Any) -> Any:
        return cls.estimator(**{**cls.params, **params})

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls) -> Any:
        """One model for all tests that leave it as it is."""
        return cls.new().fit(X, Y)


class RefusesBadInput(_OfOneEstimator):
    """Bad rows, labels, weights and classes are refused, and the model stays as it was."""

    @pytest.mark.parametrize(
        ("use", "name"),
        [*((use, name) for use in ("partial_fit", "unlearn") for name in ROWS), *(("fit", x) for x in BAD_IN_ANY_FIT)],
    )
    def test_bad_rows_are_refused_and_change_nothing(self, model, use, name, tmp_path):
        bad = ROWS[name]
        assert_refused(model, lambda m: getattr(m, use)(bad.rows, bad.labels), bad.message, tmp_path / "model")

    @pytest.mark.parametrize("use", ["predict", "predict_proba", "predict_latent"])
    @pytest.mark.parametrize("name", BAD_WITHOUT_LABELS)
    def test_bad_rows_are_not_predicted(self, model, name, use, tmp_path):
        bad = ROWS[name]
        assert_refused(model, lambda m: getattr(m, use)(bad.rows), bad.message, tmp_path / "model")

    @pytest.mark.filterwarnings("ignore:invalid value encountered in reduce")  # by scikit-learn, which sums them first
    @pytest.mark.parametrize("learn", ["partial_fit", "predict_proba"])
    def test_infinities_of_both_signs_are_refused(self, model, learn, tmp_path):
        rows = spoilt(np.inf)
        rows[0, 0] = -np.inf
        arguments = (rows, np.array(LABELS)) if learn == "partial_fit" else (rows,)
        assert_refused(model, lambda m: getattr(m, learn)(*arguments), "contains infinity", tmp_path / "model")

    @pytest.mark.parametrize("pending", [1, 8, 20], ids=["a-row-waits", "rows-wait", "many-rows-wait"])
    def test_bad_rows_in_the_middle_of_a_stream_leave_what_waits(self, pending):
        model, clean = (self.new().partial_fit(X[:9], Y[:9], classes=[0, 1, 2]) for _ in range(2))
        for each in (model, clean):
            each.predict_proba(X)
            each.partial_fit(X[9 : 9 + pending], Y[9 : 9 + pending])
        for bad in ROWS.values():
            with pytest.raises(ValueError, match=bad.message):
                model.partial_fit(bad.rows, bad.labels)
        for each in (model, clean):
            each.partial_fit(X[20:], Y[20:])
        np.testing.assert_array_equal(model.predict_proba(X), clean.predict_proba(X))
        assert model.n_rows_seen_ == clean.n_rows_seen_ == 19 + pending

    def test_a_bad_first_chunk_leaves_the_model_unfitted(self):
        model = self.new()
        with pytest.raises(ValueError, match="contains NaN"):
            model.partial_fit(spoilt(np.nan), LABELS)
        assert vars(model) == vars(self.new())
        assert model.partial_fit(NEW[:, :2], LABELS).n_features_in_ == 2

    @pytest.mark.parametrize(("weight", "message"), WEIGHTS.values(), ids=WEIGHTS)
    @pytest.mark.parametrize("use", ["partial_fit", "fit", "unlearn"])
    def test_bad_weights_are_refused_and_change_nothing(self, model, weight, message, use, tmp_path):
        call = lambda m: getattr(m, use)(NEW, LABELS, sample_weight=weight)  # noqa: E731
        assert_refused(model, call, f"sample_weight.*{message}", tmp_path / "model")

    # --- classes ---

    def test_labels_that_were_not_declared_are_refused(self, model, tmp_path):
        call = lambda m: m.partial_fit(NEW, [0, 1, 2, 9], classes=[0, 1, 2])  # noqa: E731
        assert_refused(model, call, r"'y'.*must hold labels of 'classes', \[0, 1, 2\]; got 9", tmp_path / "model")

    @pytest.mark.parametrize(
        "classes", [["0", "1", "2"], [0.5, 1.5], [0, 1, None]], ids=["text", "continuous", "missing"]
    )
    def test_classes_of_another_type_are_refused(self, model, classes, tmp_path):
        call = lambda m: m.partial_fit(NEW, LABELS, classes=classes)  # noqa: E731
        assert_refused(model, call, "'classes'|Unknown label type|all strings or all numbers", tmp_path / "model")

    def test_numbers_are_refused_as_labels_of_a_model_of_strings(self, tmp_path):
        model = self.new().fit(X, NAMES[Y])
        message = "must stay of one type.*ash.*; got .*0"
        assert_refused(model, lambda m: m.partial_fit(NEW, LABELS), message, tmp_path / "model")

    def test_a_third_class_is_refused_where_the_likelihood_is_logistic(self, tmp_path):
        model = self.new(likelihood="logistic").fit(X, (Y > 0).astype(int))
        message = "likelihood='logistic' is for two classes; got 3"
        assert_refused(model, lambda m: m.partial_fit(NEW, LABELS), message, tmp_path / "model")

    def test_a_class_beyond_those_of_alpha_eps_is_refused(self, tmp_path):
        model = self.new(alpha_eps=[0.1, 0.2, 0.3]).fit(X, Y)
        message = "'alpha_eps'.*one per class; got 3 numbers for 4 classes"
        assert_refused(model, lambda m: m.partial_fit(NEW, [0, 1, 2, 3]), message, tmp_path / "model")

    # --- unlearning and parameters ---

    @pytest.mark.parametrize(
        ("rows", "labels", "message"),
        [
            (X[:1], [9], "label 9, of which no row was learnt"),
            (np.vstack([X, X]), np.r_[Y, Y], "rows that were not learnt"),
        ],
        ids=["unknown-label", "twice"],
    )
    def test_rows_that_were_never_learnt_cannot_be_unlearnt(self, model, rows, labels, message, tmp_path):
        assert_refused(model, lambda m: m.unlearn(rows, labels), message, tmp_path / "model", InvalidArgumentError)

    def test_moment_ori_needs_a_softmax(self):
        with pytest.raises(InvalidArgumentError, match=r"'method'.*got 'moment-ori'"):
            self.new(method="moment-ori", likelihood="logistic").fit(X, Y > 0)


FORMAT = 1


def edit_file(path: Path, kind: str, edit: Callable[[dict, dict], object]) -> None:
    """Change a model's file and sign it again, as only someone who knows the format can."""
    config, tensors = read_model(path, kind, FORMAT)
    edit(config, tensors)
    write_model(path, kind, FORMAT, config, tensors)


class _Bomb:
    def __reduce__(self):
        return pytest.fail, ("unpickled",)


class RefusesDamagedFiles(_OfOneEstimator):
    """Files that are not a whole model of this kind are refused, and a failed save leaves the file before it."""

    @pytest.fixture
    def path(self, model, tmp_path) -> Path:
        path = tmp_path / "model.gaussify"
        model.save(path)
        return path

    def test_a_truncated_model_is_refused(self, path):
        data = path.read_bytes()
        for length in (0, 7, 100, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:length])
            with pytest.raises(ModelFileError, match=r"model\.gaussify holds no model of gaussify, or only a part"):
                self.estimator.load(path)

    def test_a_model_of_which_a_byte_changed_is_refused(self, path):
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.write_bytes(data)
        with pytest.raises(ModelFileError, match="altered"):
            self.estimator.load(path)

    def test_a_model_of_another_kind_is_refused(self, path):
        kind = self.estimator.__name__
        write_model(path, "OtherClassifier", FORMAT, *read_model(path, kind, FORMAT))
        with pytest.raises(ModelFileError, match=f"holds a OtherClassifier, not a {kind}"):
            self.estimator.load(path)

    def test_a_newer_model_is_refused(self, path):
        kind = self.estimator.__name__
        write_model(path, kind, 99, *read_model(path, kind, FORMAT))
        with pytest.raises(ModelFileError, match=f"gaussify {__version__} in format 99.*Update gaussify"):
            self.estimator.load(path)

    def test_a_pickle_is_refused_and_not_run(self, path):
        path.write_bytes(pickle.dumps(_Bomb()))
        with pytest.raises(ModelFileError, match="holds no model of gaussify"):
            self.estimator.load(path)

    def test_a_missing_file_is_an_os_error(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"There is no model file '.*nowhere'\. Check the path"):
            self.estimator.load(tmp_path / "nowhere")

    def test_a_failed_save_leaves_the_old_file(self, path, monkeypatch):
        before, model = path.read_bytes(), self.estimator.load(path).partial_fit(X, Y)

        def fail(*args: object) -> None:
            raise OSError("disk full")

        monkeypatch.setattr("os.fsync", fail)
        with pytest.raises(OSError, match="disk full"):
            model.save(path)
        monkeypatch.undo()
        assert path.read_bytes() == before
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]


CLASS_NAMES = {
    "int": np.array([3, -1, 7]),
    "small-int": np.array([3, 1, 7], dtype=np.uint8),
    "float": np.array([0.0, 1.0, 2.0]),
    "bool": np.array([True, False, True]),
    "text": np.array(["oak", "ash, 'quoted' \\ \"twice\"", "Ä\u2028☃\n"]),
    "object-text": np.array(["oak", "ash", "elm"], dtype=object),
}


class LabelsSurviveAFile(_OfOneEstimator):
    """A loaded model predicts labels of the type that it learnt."""

    @pytest.mark.parametrize("names", CLASS_NAMES.values(), ids=CLASS_NAMES)
    def test_labels_survive(self, names, tmp_path):
        model, path = self.new().fit(X, names[Y]), tmp_path / "model"
        model.save(path)
        loaded = self.estimator.load(path)
        assert loaded.classes_.dtype == model.classes_.dtype
        assert loaded.predict(X).tolist() == model.predict(X).tolist()
        assert set(loaded.predict(X).tolist()) <= set(names.tolist())
