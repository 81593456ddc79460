"""Last layers with refined heads: fit, later rows and classes, calibration, files."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gaussify import BayesianLogisticRegression, LastLayer, metrics
from gaussify.exceptions import InvalidArgumentError
from gaussify.nn import _last_layer, extract_features

N_CLASSES = 3
PASSES = 20
BEND = {"refine": PASSES, "alpha_eps": 0.1}


@pytest.fixture(scope="module")
def rows():
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(180) % N_CLASSES
    return 1.5 * torch.eye(N_CLASSES, 4)[y] + torch.randn(180, 4, generator=generator), y


@pytest.fixture(scope="module")
def network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 6), nn.Tanh())


@pytest.fixture(scope="module")
def fitted(network, rows):
    return LastLayer(network, N_CLASSES, **BEND).fit(*rows)


@pytest.fixture
def model(fitted):
    return copy.deepcopy(fitted)


@pytest.fixture
def alone(network, rows):
    """The head that learns from all features by itself."""
    X, y = features_of(network, *rows)
    return BayesianLogisticRegression(**BEND).fit(X, y)


def features_of(network, X, y):
    rows = extract_features(network, X, y)
    return rows.X.double().numpy(), rows.y.numpy()


def data_of(kind, X, y):
    if kind == "dataset":
        return TensorDataset(X, y)
    if kind == "loader":
        return DataLoader(TensorDataset(X, y), batch_size=32)
    return [{"input": X[:100], "labels": y[:100]}, {"input": X[100:], "labels": y[100:]}]


def assert_same(probs, other):
    torch.testing.assert_close(torch.as_tensor(probs), torch.as_tensor(other), rtol=1e-5, atol=1e-7)


def test_fit_refines_as_the_head_does_on_features(fitted, alone, network, rows):
    assert fitted.head.refined_
    assert fitted.head.refine == PASSES
    X, _ = features_of(network, *rows)
    assert_same(fitted.predict_proba(rows[0]), alone.predict_proba(X))
    matched = LastLayer(network, N_CLASSES, alpha_eps=0.1, refine=False).fit(*rows)
    assert not matched.head.refined_
    assert (matched.predict_proba(rows[0]) - fitted.predict_proba(rows[0])).abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["dataset", "loader", "mappings"])
def test_data_of_any_kind_are_refined_alike(kind, fitted, network, rows, tmp_path):
    X, _ = rows
    for cache in (None, tmp_path / "features"):
        other = LastLayer(network, N_CLASSES, **BEND).fit(data_of(kind, *rows), cache=cache)
        assert other.head.refined_
        assert_same(other.predict_proba(X), fitted.predict_proba(X))


def test_features_in_many_blocks_give_the_same_refined_model(monkeypatch, fitted, network, rows):
    monkeypatch.setattr(_last_layer, "_BLOCK", 6 * 40)
    blocks = LastLayer(network, N_CLASSES, batch_size=20, **BEND).fit(*rows)
    assert_same(blocks.predict_proba(rows[0]), fitted.predict_proba(rows[0]))


def test_auto_takes_what_the_head_would_take(network, rows):
    X, y = features_of(network, *rows)
    for options in ({}, {"reservoir_size": 0}, {"alpha_eps": 0.1}):
        head = BayesianLogisticRegression(**options).fit(X, y)
        model = LastLayer(network, N_CLASSES, **options).fit(*rows)
        assert model.head.refined_ == head.refined_
        assert_same(model.predict_proba(rows[0]), head.predict_proba(X))


def test_auto_refines_where_the_bend_of_logits_shows():
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(600, 3, generator=generator)
    y = (torch.rand(600, generator=generator) < torch.sigmoid(3.0 * X[:, 0] - 4.0)).long()
    auto, matched = (LastLayer(nn.Identity(), 2, refine=refine).fit(X, y) for refine in ("auto", False))
    assert auto.head.refined_
    assert auto.head.score_ > matched.head.score_


@pytest.mark.parametrize("limit", ["_MOST_KEPT", "is_affordable"])
def test_auto_keeps_no_more_features_than_stated_but_a_number_keeps_all(limit, monkeypatch, network, rows):
    X, y = rows
    counts = []

    def joined(batches, *, owner):
        counts.append(sum(len(batch.X) for batch in batches))
        return original(batches, owner=owner)

    original = _last_layer.joined
    monkeypatch.setattr(_last_layer, "joined", joined)
    monkeypatch.setattr(_last_layer, "_BLOCK", 1)  # each batch is a block
    monkeypatch.setattr(_last_layer, limit, 6 * 100 if limit == "_MOST_KEPT" else lambda n, d, c: n < 100)
    model = LastLayer(network, N_CLASSES, batch_size=30).fit(X, y)
    assert not model.head.refined_
    assert max(counts) == 30  # nothing was collected in the end
    matched = LastLayer(network, N_CLASSES, batch_size=30, refine=False).fit(X, y)
    assert_same(model.predict_proba(X), matched.predict_proba(X))
    assert LastLayer(network, N_CLASSES, batch_size=30, **BEND).fit(X, y).head.refined_
    assert counts[-1] == 180


def test_the_network_is_passed_once(network, rows):
    class Counting(nn.Module):
        n_seen = 0

        def forward(self, x):
            self.n_seen += len(x)
            return network(x)

    counting = Counting()
    LastLayer(counting, N_CLASSES, **BEND).fit(*rows)
    assert counting.n_seen == 180


def test_refine_false_is_additive_as_ever(network, rows):
    X, y = rows
    whole, parts, left, right = (LastLayer(network, N_CLASSES, refine=False) for _ in range(4))
    whole.fit(X, y)
    parts.partial_fit(X[:70], y[:70]).partial_fit(X[70:], y[70:]).head.tune()
    torch.testing.assert_close(parts.predict_proba(X), whole.predict_proba(X), rtol=1e-9, atol=1e-12)
    merged = left.fit(X[:70], y[:70]).merge(right.fit(X[70:], y[70:]))
    merged.head.tune()
    torch.testing.assert_close(merged.predict_proba(X), whole.predict_proba(X), rtol=1e-9, atol=1e-12)
    whole.calibrate(X, y)
    assert whole.head.refine is False


@pytest.mark.parametrize("refine", [True, 0, -1, 2.5, None, "always"])
def test_bad_values_are_refused_by_name(refine, network):
    with pytest.raises(InvalidArgumentError, match="'refine' parameter of LastLayer must be 'auto', False or a pos"):
        LastLayer(network, N_CLASSES, refine=refine)


@pytest.mark.parametrize("n_more", [3, 60])
def test_later_rows_get_sites_as_in_the_head(n_more, model, alone, network, rows):
    X, y = rows
    more = X[:n_more] + 0.1, y[:n_more]
    model.partial_fit(*more)
    assert model.head.refined_
    alone.partial_fit(*features_of(network, *more))
    assert_same(model.predict_proba(X), alone.predict_proba(features_of(network, X, y)[0]))


def test_a_new_class_goes_back_to_the_matched_model(network, rows):
    X, y = rows
    known = y < 2
    model = LastLayer(network, 2, refine="auto").fit(X[known], y[known])
    model.head.set_params(refine=PASSES)
    model.head.refine_on(*features_of(network, X[known], y[known]))
    assert model.head.refined_
    model.head.set_params(refine="auto")
    model.partial_fit(X[~known], y[~known], n_classes=3)
    assert not model.head.refined_
    model.head.tune()
    whole = LastLayer(network, 3, refine=False).fit(X, y)
    torch.testing.assert_close(model.predict_proba(X), whole.predict_proba(X))


def test_a_class_without_rows_yet_keeps_the_model_refined(network, rows):
    X, y = rows
    known = y < 2
    model = LastLayer(network, 3, **BEND).fit(X[known], y[known])
    probs = model.predict_proba(X)
    assert model.head.refined_
    assert probs.shape == (180, 3)
    torch.testing.assert_close(probs.sum(1), torch.ones(180, dtype=torch.float64))
    assert model.partial_fit(X[~known], y[~known]).head.refined_
    assert metrics.nll(model.predict_proba(X), y) < metrics.nll(probs, y)


def test_unlearning_rows_of_fit_takes_their_sites_out(model, alone, network, rows):
    X, y = rows
    model.unlearn(X[150:], y[150:])
    alone.unlearn(*features_of(network, X[150:], y[150:]))
    assert model.head.refined_
    assert model.head.n_rows_seen_ == 150
    assert_same(model.predict_proba(X), alone.predict_proba(features_of(network, X, y)[0]))


def test_unlearning_after_later_rows_is_refused_with_a_remedy_that_works(model, rows):
    X, y = rows
    model.partial_fit(X[:20], y[:20])
    before = model.predict_proba(X)
    with pytest.raises(InvalidArgumentError, match=r"later rows have sites.* head\.set_params\(refine=False\) goes"):
        model.unlearn(X[:20], y[:20])
    assert_same(model.predict_proba(X), before)
    model.head.set_params(refine=False)
    assert model.unlearn(X[:20], y[:20]).head.n_rows_seen_ == 180


def noisy(y):
    """Labels of which a third are others than the rows suggest."""
    wrong = y.clone()
    wrong[::3] = (wrong[::3] + 1) % N_CLASSES
    return wrong


@pytest.mark.parametrize("options", [BEND, {"refine": PASSES}, {}], ids=["number", "all-auto", "auto"])
def test_calibration_rescales_the_refined_latents_and_nothing_else(options, network, rows):
    X, y = rows
    if not options:  # two classes, of which "auto" refines
        y = (X[:, 0] > 2.0).long()
    n_classes = int(y.max()) + 1
    model = LastLayer(network, n_classes, **options).fit(X, y)
    assert model.head.refined_
    other = y.clone()
    other[::3] = 1 - other[::3] if n_classes == 2 else (other[::3] + 1) % N_CLASSES
    (mean, variance), before, was = model.predict_latent(X), model.predict_proba(X), model.head.temperature_
    alpha_eps = model.head.alpha_eps_
    for _ in range(2):  # calibrating again changes nothing
        model.calibrate(X, other)
        assert model.head.refined_
        assert model.head.alpha_eps_ == alpha_eps
        factor = model.head.temperature_ / was
        assert factor > 1.2
        found = model.predict_latent(X)
        torch.testing.assert_close(found[0], mean / factor, rtol=1e-5, atol=1e-8)
        torch.testing.assert_close(found[1], variance / factor**2, rtol=1e-5, atol=1e-8)
    best = metrics.nll(model.predict_proba(X), other)
    assert best < metrics.nll(before, other)
    for nearby in (0.6, 1.6):
        model.head.set_params(temperature=nearby * factor * was)
        assert metrics.nll(model.predict_proba(X), other) > best


@pytest.mark.parametrize("n_more", [3, 60])
def test_rows_after_calibration_get_sites_and_the_temperature_stays(n_more, model, alone, network, rows):
    X, y = rows
    model.calibrate(X, noisy(y))
    temperature = model.head.temperature_
    model.partial_fit(X[:n_more], y[:n_more])
    assert model.head.refined_
    assert model.head.temperature_ == temperature
    alone.partial_fit(*features_of(network, X[:n_more], y[:n_more]))
    factor = temperature / alone.temperature_
    mean, variance = alone.predict_latent(features_of(network, X, y)[0])
    torch.testing.assert_close(model.predict_latent(X)[0], torch.as_tensor(mean) / factor, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.predict_latent(X)[1], torch.as_tensor(variance) / factor**2, rtol=1e-5, atol=1e-6)


def test_calibrated_layers_unlearn_rows_of_fit(model, rows):
    X, y = rows
    rest = copy.deepcopy(model).unlearn(X[:30], y[:30])
    model.calibrate(X, noisy(y)).unlearn(X[:30], y[:30])
    assert model.head.refined_
    factor = model.head.temperature_ / rest.head.temperature_
    torch.testing.assert_close(model.predict_latent(X)[0], rest.predict_latent(X)[0] / factor, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("refine", ["auto", PASSES])
def test_calibration_of_sites_goes_with_the_sites(refine, network, rows):
    """The matched model's latents have another scale, so the temperature of the refined one is not for them."""
    X, y = rows
    y = (X[:, 0] > 2.0).long()
    plain = LastLayer(network, 2, refine=refine).fit(X, y)
    model = copy.deepcopy(plain).calibrate(X, 1 - y)
    assert plain.head.refined_
    plain.head.set_params()  # so that both choose anew
    for each in (plain, model):
        each.partial_fit(X[:9], torch.full((9,), 2), n_classes=3)
    assert (model.head.temperature, model.head.alpha_eps, model.head.refine) == ("auto", "auto", refine)
    assert_same(model.predict_proba(X), plain.predict_proba(X))


def test_calibration_of_sites_goes_when_the_matched_model_is_asked_for(model, network, rows):
    X, y = rows
    model.calibrate(X, noisy(y)).head.set_params(refine=False)
    matched = LastLayer(network, N_CLASSES, alpha_eps=0.1, refine=False).fit(X, y)
    assert_same(model.predict_proba(X), matched.predict_proba(X))
    assert (model.head.temperature, model.head.refine) == ("auto", False)


def test_more_classes_that_fail_leave_the_calibrated_layer_as_it_was(model, rows):
    X, y = rows
    model.calibrate(X, noisy(y))
    before, params = model.predict_proba(X), model.head.get_params()
    with pytest.raises(InvalidArgumentError, match="not finite"):
        model.partial_fit(X * torch.nan, y, n_classes=4)
    assert model.head.get_params() == params
    assert model.n_classes == N_CLASSES
    assert_same(model.predict_proba(X), before)
    assert model.fit(X, y).head.temperature == "auto"


def test_another_fit_takes_refine_as_it_was_given(network, rows):
    X, y = rows[0], (rows[0][:, 0] > 2.0).long()
    model = LastLayer(network, 2).fit(X, y)
    before = model.predict_proba(X)
    assert model.head.refined_
    model.calibrate(X, 1 - y).fit(X, y)
    assert model.head.refine == "auto"
    assert_same(model.predict_proba(X), before)


def test_merging_adds_sites_and_the_temperature_stays(model, network, rows):
    X, y = rows
    other = LastLayer(network, N_CLASSES, **BEND).fit(X + 0.3, y)
    temperature = model.calibrate(X, noisy(y)).head.temperature_
    before = model.predict_latent(X)[1]
    model.merge(other)
    assert model.head.refined_
    assert model.head.n_rows_seen_ == 360
    assert model.head.temperature_ == temperature
    assert bool((model.predict_latent(X)[1] < before).all())


def test_merging_with_a_matched_layer_goes_back_to_the_matched_model(model, network, rows):
    X, y = rows
    matched = LastLayer(network, N_CLASSES, refine=False).fit(X + 0.3, y)
    model.calibrate(X, noisy(y)).merge(matched)
    both = LastLayer(network, N_CLASSES, alpha_eps=0.1, refine=False).fit(torch.cat([X, X + 0.3]), torch.cat([y, y]))
    assert not model.head.refined_
    assert model.head.temperature == "auto"
    assert_same(model.predict_proba(X), both.predict_proba(X))


@pytest.mark.parametrize("is_calibrated", [False, True])
def test_files_keep_sites_and_calibration(is_calibrated, model, network, rows, tmp_path):
    X, y = rows
    if is_calibrated:
        model.calibrate(X, noisy(y))
    model.save(tmp_path / "model")
    loaded = LastLayer.load(tmp_path / "model", network)
    assert loaded.head.refined_
    assert loaded.head.refine == model.head.refine
    assert_same(loaded.predict_proba(X), model.predict_proba(X))
    for each in (loaded, model):
        each.partial_fit(X[:20], y[:20])
    assert_same(loaded.predict_proba(X), model.predict_proba(X))
    for each in (loaded, model):
        each.partial_fit(X[:9], torch.full((9,), 3), n_classes=4)
    assert loaded.head.temperature == model.head.temperature == "auto"
    assert_same(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.fit(X, y).head.refined_


def test_the_network_state_holds_no_sites(model, network):
    assert set(model.state_dict()) == {f"features.{name}" for name in network.state_dict()}


def test_refinement_has_its_own_bar(network, rows, capsys):
    LastLayer(network, N_CLASSES, progress=True, **BEND).fit(*rows)
    shown = capsys.readouterr().err
    assert "features" in shown
    assert "refinement" in shown
    LastLayer(network, N_CLASSES, progress=True, refine=False).fit(*rows)
    assert "refinement" not in capsys.readouterr().err
    LastLayer(network, N_CLASSES, progress=False, **BEND).fit(*rows)
    assert capsys.readouterr().err == ""


def test_an_error_on_the_way_leaves_the_layer_as_it_was(model, rows):
    X, y = rows
    before = model.predict_proba(X)
    with pytest.raises(InvalidArgumentError, match="not finite"):
        model.fit([(X, y), (X * torch.nan, y)])
    assert model.head.refined_
    assert_same(model.predict_proba(X), before)


def test_rows_of_one_class_make_that_class_probable(network, rows):
    X, _ = rows
    probs = LastLayer(network, N_CLASSES, **BEND).fit(X, torch.ones(180, dtype=torch.long)).predict_proba(X)
    assert bool((probs[:, 1] > 0.9).all())
