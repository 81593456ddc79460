"""Models of tables: what is fitted, learnt, merged and kept in files."""

import os
import shutil

import numpy as np
import pyarrow as pa
import pytest

import gaussify.tables._predicting as predicting
from gaussify import metrics
from gaussify.exceptions import InvalidArgumentError, ModelFileError, TableError
from gaussify.gp import GPClassifier
from gaussify.tables import (
    MODEL_FILE,
    FitOptions,
    ModelKind,
    Score,
    TableModel,
    evaluate_rows,
    fit_like,
    fit_table,
    predict_rows,
    report_html,
    split_batches,
    tabulate_scores,
)
from gaussify.tables._training import split_rows
from tables.conftest import make_birds

NEW = make_birds(60, seed=1)


@pytest.fixture
def model(fitted, tmp_path):
    """A model of its own for each test."""
    fitted.model.save(tmp_path / "model")
    return TableModel.load(tmp_path / "model")


def test_rows_held_out_are_predicted_better_than_by_their_shares(fitted):
    scores = {score.name: score for score in fitted.scores}
    assert scores["gaussify"].nll < 0.5 * scores["majority class"].nll
    assert scores["gaussify"].accuracy > scores["majority class"].accuracy
    held_out = fitted.held_out
    np.testing.assert_allclose(fitted.model.predict_proba(held_out.rows), held_out.probs, atol=1e-9)
    assert fitted.n_train + len(held_out.labels) == 400
    assert fitted.model.n_rows == fitted.n_train


def test_the_column_that_tells_most_is_the_most_relevant(fitted):
    assert next(iter(fitted.relevance)) in ("height", "colour")
    assert set(fitted.relevance) == {"height", "colour", "caught", "seen"}
    assert max(fitted.relevance.values()) == 1.0
    assert fitted.relevance["height"] > 3.0 * fitted.relevance["seen"]


def test_rows_held_out_can_be_learnt_in_the_end(birds):
    options = FitOptions(ModelKind.LINEAR, compare=False)
    without, whole = (fit_table(birds, "species", options._replace(use_all=own)) for own in (False, True))
    assert (without.model.n_rows, whole.model.n_rows) == (319, 400)
    assert without.scores[0].nll == whole.scores[0].nll
    pages = [report_html(own, "birds.csv") for own in (without, whole)]
    assert all("the model fitted to 319 training rows" in page for page in pages)
    assert ["has also learnt the held-out rows" in page for page in pages] == [False, True]


def test_scores_that_are_nothing_are_read_as_nothing():
    (row,) = tabulate_scores([Score("sure", 1.0, -0.0, 4.4e-16, 1.2e-39)])
    assert [f"{row[name]:.4g}" for name in ("accuracy", "NLL", "ECE", "Brier")] == ["1", "0", "0", "0"]
    (row,) = tabulate_scores([Score("wrong", 0.5, float("inf"), 0.25, 0.5)])
    assert row["NLL"] == float("inf")


def test_numbers_of_rows_are_known_where_rows_have_no_label(birds):
    labels = pa.array([None if i % 4 == 1 else label for i, label in enumerate(birds.column("species").to_pylist())])
    table = birds.drop_columns(["species"]).append_column("row", pa.array(range(400))).append_column("species", labels)
    model = fit_table(table, "species", FitOptions(ModelKind.LINEAR, compare=False)).model
    (column,) = (own for own in model.encoder.columns_ if own.name == "row")
    assert column.describe() == "row ids"


def test_what_a_column_holds_is_seen_from_all_rows():
    rng = np.random.default_rng(0)
    cells = [str(own) for own in rng.normal(size=200).round(3)]
    days = [f"{1 + i % 12:02d}/03/2024" for i in range(200)]
    y = np.where(np.array(cells, dtype=float) > 0.0, "a", "b")
    for place in range(5):
        some, dates = cells.copy(), days.copy()
        some[place], dates[place] = "unknown", "25/03/2024"
        table = {"x": some, "day": dates, "id": list(range(1, 201)), "y": y}
        fitted = fit_table(table, "y", FitOptions(model="linear", compare=False))
        kinds = {column.name: str(column.kind) for column in fitted.model.encoder.columns_}
        assert kinds == {"x": "number", "day": "date", "id": "ignored"}
        assert fitted.scores[0].accuracy > 0.9


def test_labels_do_not_depend_on_how_they_are_stored():
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    for typed, text in (((x > 0.0), ["True", "False"]), ((x > 0.0) * 1.0, ["1.0", "0.0"])):
        model = fit_table({"x": x, "y": typed}, "y", FitOptions(model="linear", compare=False)).model
        words = np.where(x > 0.0, *text)
        assert evaluate_rows(model, [{"x": x, "y": words}])[0].accuracy > 0.9
        model.learn(iter([{"x": x, "y": words}]), "more")
        assert len(model.classes) == 2


def test_a_class_of_one_row_does_not_stop_who_is_compared():
    rng = np.random.default_rng(0)
    x = rng.normal(size=11_000)
    y = np.where(x > 0.0, "a", "b")
    y[7] = "rare"
    fitted = fit_table({"x": x, "y": y}, "y", FitOptions(model="linear", test_share=0.05))
    assert [score.name for score in fitted.scores][1] == "gradient boosting"


def test_who_cannot_be_fitted_is_left_out_with_a_warning(birds, monkeypatch):
    def fail(self, X, y):
        raise ValueError("no")

    monkeypatch.setattr("gaussify.tables._training.LogisticRegression.fit", fail)
    with pytest.warns(UserWarning, match="logistic regression is left out of the comparison: no"):
        fitted = fit_table(birds, "species", FitOptions(model="linear"))
    assert [score.name for score in fitted.scores] == ["gaussify", "gradient boosting", "majority class"]


def test_the_kind_of_model_is_the_one_that_predicts_better(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    by_line = np.where(X[:, 0] + X[:, 1] > 0.0, "a", "b")
    by_ring = np.where(np.hypot(*X.T) > 1.2, "a", "b")
    found = {}
    for name, labels in (("line", by_line), ("ring", by_ring)):
        table = pa.table({"x": X[:, 0], "y": X[:, 1], "label": labels})
        fitted = fit_table(table, "label", FitOptions(n_inducing=30, max_iter=20, compare=False))
        found[name] = type(fitted.model.classifier)
        assert set(fitted.compared) == {"linear", "gp"}
    assert found["ring"] is GPClassifier


@pytest.mark.parametrize("kind", ["linear", "gp"])
def test_the_progress_of_a_fit_is_told(birds, kind):
    heard = []
    options = FitOptions(model=kind, compare=False, max_iter=5, n_inducing=10)
    fit_table(birds, "species", options, report=lambda what, share: heard.append((what, share)))
    shares = [share for what, share in heard if what == "fit"]
    assert len(shares) > 3
    assert shares == sorted(shares)


def test_splits_hold_out_the_same_share_of_each_class_and_leave_none_without_rows():
    y = np.repeat([0, 1, 2], [100, 50, 1])
    train, test = split_rows(y, 0.2, 0)
    assert np.bincount(y[test], minlength=3).tolist() == [20, 10, 0]
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(151))
    assert not np.array_equal(test, split_rows(y, 0.2, 1)[1])
    assert len(split_rows(np.array([0, 0, 1]), 0.01, 0)[1]) == 1


def test_a_saved_model_predicts_the_same(fitted, model):
    np.testing.assert_array_equal(model.predict_proba(NEW), fitted.model.predict_proba(NEW))
    assert (model.target, model.n_rows, model.scores) == ("species", fitted.n_train, fitted.model.scores)
    assert model.history == fitted.model.history


def shard_of(model):
    return fit_like(model, NEW, FitOptions(compare=False, use_all=True), source="more").model


def test_batches_are_learnt_as_one_table_is(model, tmp_path):
    twin = TableModel.load(tmp_path / "model")
    model.learn(iter(NEW.to_batches(max_chunksize=17)), "more")
    twin.learn(iter([NEW]), "more")
    np.testing.assert_allclose(model.predict_proba(NEW), twin.predict_proba(NEW), atol=1e-9)
    assert model.n_rows == 319 + 60
    assert [own.n_rows for own in model.history] == [319, 60]


def test_rows_without_a_label_are_passed_over_and_classes_may_be_new(model):
    species = pa.array(["dodo", None, "moa"] + [None] * 57)
    n_learnt = model.learn(iter([NEW.drop_columns(["species"]).append_column("species", species)]), "more")
    assert n_learnt == 2
    assert model.classes.tolist() == ["dodo", "emu", "kiwi", "moa"]
    assert predict_rows(model, NEW).num_columns == 4 + 4
    with pytest.raises(TableError, match="has no row with a label in column 'species'"):
        model.learn(iter([NEW.slice(0, 0)]), "nothing")


def test_merged_shards_are_the_model_of_all_rows(model, tmp_path):
    whole = TableModel.load(tmp_path / "model")
    whole.learn(iter([NEW]), "more")
    shard = shard_of(model)
    assert shard.n_rows == 60
    model.merge(shard)
    assert model.n_rows == 379
    np.testing.assert_allclose(model.predict_proba(NEW), whole.predict_proba(NEW), atol=1e-7)


@pytest.mark.parametrize(
    "learn", [lambda model: model.learn([NEW], "more"), lambda model: model.merge(shard_of(model))]
)
def test_what_suits_all_rows_is_chosen_before_a_model_is_saved(model, tmp_path, learn):
    learn(model)
    model.save(tmp_path / "more")
    expected = model.predict_proba(NEW)
    loaded = TableModel.load(tmp_path / "more")
    if hasattr(loaded.classifier, "tune"):
        loaded.classifier.tune = None  # which would have to be called for a choice that is not there
    np.testing.assert_array_equal(loaded.predict_proba(NEW), expected)


def test_rows_never_count_twice(model, tmp_path):
    twin = TableModel.load(tmp_path / "model")
    twin.learn(iter([NEW]), "more")
    with pytest.raises(InvalidArgumentError, match=r"the same 319 rows of birds.csv, which would count twice"):
        model.merge(twin)


def test_models_that_see_tables_in_another_way_are_not_merged(model):
    other = fit_table(NEW, "species", FitOptions(ModelKind.LINEAR, compare=False)).model
    with pytest.raises(InvalidArgumentError, match=r"the same features.*--like"):
        model.merge(other)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_kill_while_saving_leaves_the_old_model(model, tmp_path, monkeypatch, step):
    before = model.predict_proba(NEW)
    model.learn(iter([NEW]), "more")

    def kill(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, step, kill)
    with pytest.raises(KeyboardInterrupt):
        model.save(tmp_path / "model")
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "model").iterdir()] == [MODEL_FILE]
    np.testing.assert_array_equal(TableModel.load(tmp_path / "model").predict_proba(NEW), before)


def test_a_damaged_file_is_refused(model, tmp_path):
    path = tmp_path / "model" / MODEL_FILE
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelFileError, match="or only a part of one"):
        TableModel.load(tmp_path / "model")
    shutil.rmtree(tmp_path / "model")
    with pytest.raises(TableError, match="There is no model in"):
        TableModel.load(tmp_path / "model")


def test_predictions_have_labels_probabilities_and_uncertainties(model):
    rows = predict_rows(model, NEW, kept=["bird"]).to_pydict()
    assert list(rows) == [
        "bird",
        "predicted",
        "probability",
        "entropy",
        "epistemic",
        "P(emu)",
        "P(kiwi)",
        "P(moa)",
    ]
    probs = np.column_stack([rows[f"P({label})"] for label in model.classes])
    np.testing.assert_allclose(probs.sum(1), 1.0, atol=1e-6)
    np.testing.assert_allclose(probs, model.predict_proba(NEW), atol=1e-4)
    assert rows["predicted"] == model.classes[probs.argmax(1)].tolist()
    assert np.all(np.array(rows["epistemic"]) <= np.array(rows["entropy"]))


def test_a_column_to_keep_must_not_hide_a_prediction(model):
    table = NEW.append_column("P(emu)", pa.array(np.zeros(60)))
    with pytest.raises(TableError, match=r"The column 'P\(emu\)' cannot be kept"):
        predict_rows(model, table, kept=["P(emu)"])


def test_scores_are_those_of_all_batches_together(model):
    score, n_rows = evaluate_rows(model, NEW.to_batches(max_chunksize=7))
    labels = np.searchsorted(model.classes, NEW.column("species").to_pylist())
    probs = model.predict_proba(NEW)
    assert n_rows == 60
    assert score.accuracy == pytest.approx(np.mean(probs.argmax(1) == labels))
    assert score.nll == pytest.approx(-np.log(probs[np.arange(60), labels]).mean(), rel=1e-6)
    assert score.ece == pytest.approx(metrics.ece(probs, labels), abs=1e-9)
    assert score.brier == pytest.approx(metrics.brier(probs, labels), abs=1e-9)


def test_labels_that_the_model_does_not_know_are_no_test_of_it(model):
    other = NEW.drop_columns(["species"]).append_column("species", pa.array(["dodo"] * 60))
    with pytest.raises(TableError, match="the label 'dodo', which the model does not know"):
        evaluate_rows(model, [other])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a"] * 20, "must hold at least two classes; got 'a' in all rows"),
        (["a"] * 3 + [None] * 17, "has labels in 3 rows"),
        ([f"name {i}" for i in range(20)], "20 different values in 20 rows: row ids or names"),
        ([str(i) for i in range(20)], "20 different values in 20 rows: row ids or names"),
        (
            [0.5 * i for i in range(21)] * 10,
            "21 different numbers in 210 rows: a quantity, not classes. Replace it by classes",
        ),
        ([f"{i},5" for i in range(40)] * 10, "40 different numbers in 400 rows: a quantity"),
        (list(range(100)) * 9, "100 different numbers in 900 rows: a quantity.*--category 'y' if"),
    ],
)
def test_a_target_that_is_none_is_refused(labels, message):
    with pytest.raises(TableError, match=message):
        fit_table(pa.table({"x": np.arange(len(labels)) ** 2.0, "y": labels}), "y")


@pytest.mark.parametrize(
    ("labels", "categories"),
    [
        ([0.5 * i for i in range(10)] * 10, []),  # marks
        (list(range(60)) * 10, []),  # numbers of classes, each of which has rows
        (list(range(100)) * 3, ["y"]),
    ],
)
def test_numbers_that_are_names_are_classes(labels, categories):
    table = pa.table({"x": np.arange(len(labels)) ** 2.0, "y": labels})
    options = FitOptions(model="linear", compare=False, categories=categories)
    assert len(fit_table(table, "y", options).model.classes) == len(set(labels))


def test_few_rows_held_out_are_said_to_be_few(birds, fitted):
    assert fitted.caution == ""
    options = FitOptions(model="linear", compare=False)
    few = fit_table(birds.slice(0, 100), "species", options)
    assert few.caution == "These scores are imprecise: only 20 rows are held out."
    species = pa.array(["dodo", *birds.column("species").to_pylist()[1:]])
    rare = fit_table(birds.drop_columns(["species"]).append_column("species", species), "species", options)
    assert rare.caution == "These scores are imprecise: no row of 'dodo' is held out."
    assert few.caution in report_html(few, "birds.csv")


def test_a_model_like_another_is_judged_by_rows_held_out(model):
    heard = []
    twin = fit_like(model, NEW, source="more", report=lambda what, share: heard.append(what))
    assert [score.name for score in twin.scores][-1] == "majority class"
    assert twin.n_train == twin.model.n_rows == 60 - len(twin.held_out.labels) < 60
    assert twin.model.encoder is model.encoder
    assert {"fit", "predict"} <= set(heard)
    assert "Reliability" in report_html(twin, "more.csv")


def test_a_shard_may_lack_a_class(model):
    emus = NEW.filter(pa.array([own == "emu" for own in NEW.column("species").to_pylist()]))
    twin = fit_like(model, emus, FitOptions(compare=False))
    assert twin.model.classes.tolist() == ["emu", "kiwi", "moa"]
    assert "no row of 'kiwi', 'moa' is held out" in twin.caution


def test_scores_are_of_the_model_before_an_update(model):
    assert model.n_rows_since_fit == 0
    model.learn([NEW], "more")
    assert model.n_rows_since_fit == 60
    model.merge(fit_like(model, NEW, FitOptions(compare=False)).model)
    assert model.scores == {}


def test_the_report_is_one_file_with_all_that_was_asked_for(fitted):
    html = report_html(fitted, "birds <b>.csv")
    for title in (
        "Scores on held-out rows",
        "Can the probabilities be trusted?",
        "Confusion matrix",
        "Least certain rows",
        "Relevance of columns",
        "Model",
        "Columns",
    ):
        assert title in html
    assert "birds &lt;b&gt;.csv" in html
    assert "gradient boosting" in html
    assert html.count("data:image/svg+xml;base64,") == 4
    assert not [part for part in ('src="http', 'href="http', "@import", "url(", "<script") if part in html]


def test_the_report_survives_odd_tables():
    rng = np.random.default_rng(0)
    label = rng.choice([f"<class $_{{ {i}> {'x' * 50}" for i in range(28)], 400)
    odd = {f"{'long ' * 10} $x_{{$ {i}": rng.normal(size=400) for i in range(3)}
    table = pa.table({**odd, "only": ["same"] * 400, "label": label})
    fitted = fit_table(table, "label", FitOptions(ModelKind.LINEAR, compare=False))
    html = report_html(fitted, "odd.csv")
    assert "<class" not in html
    assert "all values are the same" in html


def test_parts_of_batches_are_the_smaller_the_more_classes_there_are():
    batches = [NEW.slice(0, 50), NEW.slice(50), NEW.slice(0, 0)]
    for n_classes in (3, 1 << 15, 1 << 17, 1 << 30):
        parts = list(split_batches(batches, n_classes))
        assert pa.concat_tables(parts).equals(NEW)
        assert all(0 < part.num_rows <= max(1, (1 << 20) // n_classes) for part in parts)


def test_scores_do_not_depend_on_the_parts(model, monkeypatch):
    whole, n_rows = evaluate_rows(model, [NEW])
    monkeypatch.setattr(predicting, "_PROBABILITIES", 21)
    parts, n_rows_of_parts = evaluate_rows(model, [NEW])
    assert n_rows_of_parts == n_rows
    assert parts[1:5] == pytest.approx(whole[1:5], rel=1e-9)
