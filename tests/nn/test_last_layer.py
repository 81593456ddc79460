from concurrent.futures import ThreadPoolExecutor
from typing import get_type_hints

import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, SubsetRandomSampler, TensorDataset

from gaussify import BayesianLogisticRegression, LastLayer, metrics
from gaussify._persistence import write_model
from gaussify.exceptions import InvalidArgumentError, ModelFileError
from gaussify.nn import InputsOf, extract_features
from gaussify.nn._last_layer import HeadOptions

N_CLASSES = 3


@pytest.fixture(scope="module")
def rows():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(300) % N_CLASSES
    centres = 3.0 * torch.eye(N_CLASSES, 4)
    return centres[y] + torch.randn(300, 4, generator=generator), y


@pytest.fixture
def network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Dropout(0.5))


@pytest.fixture
def model(network, rows):
    return LastLayer(network, N_CLASSES).fit(*rows)


class Counting(nn.Module):
    """A network that counts the rows it sees."""

    def __init__(self, network):
        super().__init__()
        self.network, self.n_seen = network, 0

    def forward(self, x):
        self.n_seen += len(x)
        return self.network(x)


def test_it_is_bayesian_logistic_regression_on_features(model, network, rows):
    X, y = rows
    features = network(X).double().numpy()
    head = BayesianLogisticRegression().fit(features, y.numpy())
    torch.testing.assert_close(model.predict_proba(X), torch.as_tensor(head.predict_proba(features)))
    for ours, theirs in zip(model.predict_latent(X), head.predict_latent(features), strict=True):
        torch.testing.assert_close(ours, torch.as_tensor(theirs))
    assert (model.predict(X) == y).double().mean() > 0.8


@pytest.mark.parametrize("kind", ["loader", "shuffled", "dataset", "generator", "mapping"])
def test_data_of_any_kind_give_the_same_model(kind, model, network, rows):
    X, y = rows
    dataset = TensorDataset(X, y)
    data = {
        "loader": DataLoader(dataset, batch_size=7),
        "shuffled": DataLoader(dataset, batch_size=50, shuffle=True),
        "dataset": dataset,
        "generator": ((X[i : i + 40], y[i : i + 40]) for i in range(0, 300, 40)),
        "mapping": [{"input": X[:100], "labels": y[:100]}, {"input": X[100:], "labels": y[100:]}],
    }[kind]
    other = LastLayer(network, N_CLASSES).fit(data)
    torch.testing.assert_close(other.predict_proba(X), model.predict_proba(X), rtol=1e-5, atol=1e-8)
    loader = DataLoader(dataset, batch_size=11)  # whose labels are left out
    torch.testing.assert_close(model.predict_proba(loader), model.predict_proba(X))


def test_the_network_is_frozen_and_seen_once(network, rows):
    X, y = rows
    counting = Counting(network)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    model = LastLayer(counting, N_CLASSES).train()
    assert not network.training
    network.train()  # behind our back
    model.fit(DataLoader(TensorDataset(X, y), batch_size=32))
    assert counting.n_seen == 300
    assert not any(parameter.requires_grad for parameter in model.parameters())
    for name, value in network.state_dict().items():
        torch.testing.assert_close(value, before[name])
    model.head.set_params(alpha_eps=0.01, method="moment")
    model.head.predict_proba(network.eval()(X).double().numpy())
    assert counting.n_seen == 300  # likelihood and prior enter after the data


def test_parts_equal_the_whole(network, rows):
    X, y = rows
    model, parts = LastLayer(network, N_CLASSES, refine=False).fit(X, y), LastLayer(network, N_CLASSES, refine=False)
    parts.partial_fit(X[:100], y[:100]).partial_fit(X[100:], y[100:])
    parts.head.tune()
    torch.testing.assert_close(parts.predict_proba(X), model.predict_proba(X))
    left, right = (LastLayer(network, N_CLASSES, refine=False) for _ in range(2))
    merged = left.fit(X[:150], y[:150]).merge(right.fit(X[150:], y[150:]))
    merged.head.tune()
    torch.testing.assert_close(merged.predict_proba(X), model.predict_proba(X))
    more = LastLayer(network, N_CLASSES, alpha_eps=0.1, temperature=1.0, prior_variance=1.0, reservoir_size=0)
    less = more.fit(X, y).unlearn(X[200:], y[200:]).predict_proba(X)
    torch.testing.assert_close(less, more.fit(X[:200], y[:200]).predict_proba(X))


def test_new_classes_end_as_if_declared_at_the_start(network, rows):
    X, y = rows
    known = y < 2
    grown, whole = (LastLayer(network, n, refine=False) for n in (2, 3))
    grown.fit(X[known], y[known]).partial_fit(X[~known], y[~known], n_classes=3)
    assert grown.n_classes == 3
    grown.head.tune()
    torch.testing.assert_close(grown.predict_proba(X), whole.fit(X, y).predict_proba(X))


def test_a_class_without_rows_has_a_column(network, rows):
    X, y = rows
    probs = LastLayer(network, 5).fit(X, y).predict_proba(X)
    assert probs.shape == (300, 5)
    torch.testing.assert_close(probs.sum(1), torch.ones(300, dtype=torch.float64))


def test_forward_stands_where_logits_do(model, rows):
    X, _ = rows
    log_probs = model(X)
    assert log_probs.dtype == torch.float32
    torch.testing.assert_close(log_probs.softmax(-1).double(), model.predict_proba(X), rtol=1e-5, atol=1e-6)


def test_uncertainty_splits_the_entropy(model, rows):
    X, _ = rows
    uncertainty = model.predict_uncertainty(X)
    torch.testing.assert_close(uncertainty.probs, model.predict_proba(X), rtol=1e-4, atol=1e-6)
    far = model.predict_uncertainty(50.0 * X)
    assert far.epistemic_entropy.shape == (300,)
    assert uncertainty.std.max() > 0.0


def test_rows_apart_choose_the_temperature(model, rows):
    X, y = rows
    noisy = y.clone()
    noisy[::3] = (noisy[::3] + 1) % N_CLASSES  # of new rows a third is not what it seems
    before, latent = model.predict_proba(X), model.predict_latent(X)[0]
    was = (model.head.alpha_eps_, model.head.temperature_)
    latent = latent - torch.from_numpy(model.head.offset_)  # there are none with a given temperature
    assert model.calibrate(X, noisy) is model
    assert model.head.alpha_eps_ == was[0]
    assert metrics.nll(model.predict_proba(X), noisy) < metrics.nll(before, noisy)
    factor = model.head.temperature_ / was[1]
    torch.testing.assert_close(model.predict_latent(X)[0], latent / factor)
    kept = metrics.nll(model.predict_proba(X), noisy)
    for other in (0.9, 1.1):  # which no other temperature predicts better
        model.head.set_params(temperature=other * factor * was[1])
        assert metrics.nll(model.predict_proba(X), noisy) > kept
    model.head.set_params(temperature=factor * was[1])
    assert metrics.nll(model.partial_fit(X, y).predict_proba(X), noisy) < metrics.nll(before, noisy)  # and it stays


def test_another_fit_forgets_the_calibration(network, rows):
    X, y = rows
    model = LastLayer(network, N_CLASSES).fit(X, y)
    before = model.head.temperature_
    model.calibrate(X, y.roll(1)).calibrate(X[:50], y.roll(1)[:50])
    assert model.head.temperature_ != before
    model.fit(X, y)
    assert (model.head.temperature, model.head.alpha_eps, model.head.temperature_) == ("auto", "auto", before)
    model.calibrate(X, y.roll(1)).head.set_params(temperature=3.0)  # what is set by hand stays
    assert model.fit(X, y).head.temperature == 3.0


def test_the_same_weights_in_another_network_are_told_apart(rows, tmp_path):
    X, y = rows
    tanh, relu = (
        nn.Sequential(nn.Linear(4, 4), act, nn.Linear(4, 4), nn.Linear(4, 3)) for act in (nn.Tanh(), nn.ReLU())
    )
    relu.load_state_dict(tanh.state_dict())
    model = LastLayer.of(tanh).fit(X, y)
    model.save(tmp_path / "model")
    others = [InputsOf(relu), InputsOf(tanh, tanh[2]), tanh]
    for other in others:
        other.requires_grad_(True).train()
        with pytest.raises(ModelFileError, match=r"another network.*InputsOf\(network\)"):
            LastLayer.load(tmp_path / "model", other)
        assert other.training  # nothing was frozen
    with pytest.raises(InvalidArgumentError, match="same weights"):
        model.merge(LastLayer.of(tanh, tanh[2], n_classes=3).fit(X, y))
    first = extract_features(InputsOf(tanh), X, cache=tmp_path / "features").X
    second = extract_features(InputsOf(tanh, tanh[2]), X, cache=tmp_path / "features").X
    assert not torch.equal(first, second)
    assert torch.equal(LastLayer.load(tmp_path / "model", InputsOf(tanh)).predict_proba(X), model.predict_proba(X))


def test_buffers_that_are_not_saved_tell_features_apart(rows, tmp_path):
    class Scaled(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.register_buffer("factor", torch.tensor(factor), persistent=False)

        def forward(self, x):
            return (self.factor * x).tanh()

    X, y = rows
    LastLayer(Scaled(1.0), N_CLASSES).fit(X, y, cache=tmp_path / "features")
    other = LastLayer(Scaled(5.0), N_CLASSES).fit(X, y, cache=tmp_path / "features")
    torch.testing.assert_close(other.predict_proba(X), LastLayer(Scaled(5.0), N_CLASSES).fit(X, y).predict_proba(X))


def test_given_labels_count_whatever_a_cache_has(network, rows, tmp_path):
    X, y = rows
    extract_features(network, X, cache=tmp_path / "features")
    assert torch.equal(extract_features(network, X, y, cache=tmp_path / "features").y, y)
    extract_features(network, X[:9], y[:9], cache=tmp_path / "features")
    assert torch.equal(extract_features(network, X[:9], 2 - y[:9], cache=tmp_path / "features").y, 2 - y[:9])


def test_extracting_leaves_the_network_as_it_was(network, rows):
    network.train()
    network[0].eval()
    extract_features(network, rows[0])
    assert [module.training for module in network] == [False, True, True, True]


def test_inputs_by_place_and_by_name(rows):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x, *, scale):
            return self.layer(input=scale * x)

    network, (X, y) = Scaled(), rows
    assert torch.equal(InputsOf(network)(X, scale=2.0), 2.0 * X)
    model = LastLayer(InputsOf(network), 3).fit([{"x": X, "scale": 2.0, "labels": y}])
    torch.testing.assert_close(model(X, scale=2.0).exp().double(), model(x=X, scale=2.0).exp().double())


def test_many_blocks_give_what_one_gives(monkeypatch, model, network, rows):
    monkeypatch.setattr("gaussify.nn._last_layer._BLOCK", 8 * 40)
    blocks = LastLayer(network, N_CLASSES, batch_size=20).fit(*rows)
    torch.testing.assert_close(blocks.head.statistics_.gram, model.head.statistics_.gram)


def test_rows_that_cannot_calibrate_change_nothing(model, rows):
    X, y = rows
    before = model.predict_proba(X)
    with pytest.raises(InvalidArgumentError, match=r"LastLayer\.calibrate must bring labels"):
        model.calibrate(X)
    with pytest.raises(InvalidArgumentError, match=r"LastLayer\.calibrate"):
        model.calibrate(X, y + 1)
    torch.testing.assert_close(model.predict_proba(X), before)


def test_of_a_network_with_its_last_layer(rows):
    X, y = rows
    body, last = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, N_CLASSES)
    whole = nn.Sequential(body, last, nn.LogSoftmax(-1))
    model = LastLayer.of(whole, alpha_eps=0.1).fit(X, y)
    assert model.n_classes == N_CLASSES
    expected = LastLayer(body, N_CLASSES, alpha_eps=0.1).fit(X, y)
    torch.testing.assert_close(model.predict_proba(X), expected.predict_proba(X))
    assert not last._forward_pre_hooks
    with pytest.raises(InvalidArgumentError, match="'layer'"):
        InputsOf(body, last)
    with pytest.raises(InvalidArgumentError, match=r"no nn\.Linear"):
        InputsOf(nn.ReLU())


def test_save_and_load(model, network, rows, tmp_path):
    X, y = rows
    model.save(tmp_path / "head")
    loaded = LastLayer.load(tmp_path / "head", network)
    torch.testing.assert_close(loaded.predict_proba(X), model.predict_proba(X))
    torch.testing.assert_close(loaded.partial_fit(X, y).predict_proba(X), model.partial_fit(X, y).predict_proba(X))
    with torch.no_grad():
        network[0].bias.add_(1.0)
    with pytest.raises(ModelFileError, match="other weights"):
        LastLayer.load(tmp_path / "head", network)
    content = (tmp_path / "head").read_bytes()
    (tmp_path / "half").write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelFileError, match="part of one"):
        LastLayer.load(tmp_path / "half", network)
    with pytest.raises(ModelFileError, match="LastLayer"):
        BayesianLogisticRegression.load(tmp_path / "head")


def test_features_are_computed_once_for_the_same_weights(network, rows, tmp_path):
    X, y = rows
    counting, cache = Counting(network), tmp_path / "features"
    first = extract_features(counting, X, y, cache=cache)
    again = extract_features(counting, X, y, cache=cache)
    assert counting.n_seen == 300
    torch.testing.assert_close(again.X, first.X)
    torch.testing.assert_close(again.y, y)
    extract_features(counting, X[:200], y[:200], cache=cache)
    assert counting.n_seen == 500
    with torch.no_grad():
        network[0].bias.add_(1.0)
    other = extract_features(counting, X[:200], y[:200], cache=cache)
    assert counting.n_seen == 700
    assert not torch.allclose(other.X, first.X[:200])
    model = LastLayer(counting, N_CLASSES).fit(X[:200], y[:200], cache=cache)
    assert counting.n_seen == 700
    torch.testing.assert_close(
        model.predict_proba(X), LastLayer(network, N_CLASSES).fit(X[:200], y[:200]).predict_proba(X)
    )


def test_features_of_more_dimensions_are_flattened_and_half_precision_is_widened():
    network = nn.Conv2d(1, 2, 3)
    assert extract_features(network, torch.zeros(5, 1, 4, 4)).X.shape == (5, 8)
    features = extract_features(nn.Linear(4, 3).bfloat16(), torch.zeros(5, 4, dtype=torch.bfloat16)).X
    assert features.dtype == torch.float32


class Endless(IterableDataset):
    """Rows one by one, of which nobody knows how many there are."""

    def __init__(self, *rows):
        self.rows = rows

    def __iter__(self):
        return zip(*self.rows, strict=True)


@pytest.mark.parametrize("options", [{"progress": True}, {"progress": False}], ids=["bar", "no-bar"])
@pytest.mark.parametrize("is_cached", [False, True], ids=["uncached", "cached"])
def test_data_may_be_of_unknown_length(network, rows, model, options, is_cached, tmp_path):
    other = LastLayer(network, N_CLASSES, **options)
    other.fit(Endless(*rows), cache=tmp_path / "features" if is_cached else None)
    torch.testing.assert_close(other.predict_proba(rows[0]), model.predict_proba(rows[0]), rtol=1e-5, atol=1e-8)


def test_threads_do_not_see_the_rows_of_others(rows):
    X, y = rows
    network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, N_CLASSES))
    model = LastLayer.of(network).fit(X, y)
    parts = [X[i::4] for i in range(4)]
    expected = [model.predict_latent(part)[0] for part in parts]

    def count_wrong(i):
        return sum(not torch.equal(model.predict_latent(parts[i])[0], expected[i]) for _ in range(100))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(count_wrong, range(4))) == [0, 0, 0, 0]


def test_a_cache_is_a_file(network, rows, tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"'cache' of LastLayer must be a file; .* is a folder"):
        LastLayer(network, N_CLASSES).fit(*rows, cache=tmp_path)


@pytest.mark.parametrize(
    ("make", "words"),
    [(lambda X, y: (X, y), "give labels apart, as 'y'"), (lambda X, y: X.numpy(), r"torch.as_tensor\(data, dtype")],
    ids=["tuple", "array"],
)
def test_other_forms_of_data_are_refused_with_a_remedy(make, words, network, rows):
    with pytest.raises(InvalidArgumentError, match=words):
        LastLayer(network, N_CLASSES).fit(make(*rows))


def test_progress_is_shown_on_request(network, rows, capsys):
    extract_features(network, rows[0], progress=True)
    assert "features" in capsys.readouterr().err
    extract_features(network, rows[0], progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X, y: (X, None), "bring labels"),
        (lambda X, y: (X, y[:5]), "'y'.*300 rows"),
        (lambda X, y: (X, y + 1), "from 0 to 2; got 3.*"),
        (lambda X, y: (X, y.double()), "class indices"),
        (lambda X, y: (TensorDataset(X, y), y), "'y'.*goes with a tensor"),
        (lambda X, y: ([], None), "at least one batch"),
        (lambda X, y: (X.numpy(), y), "'data' of LastLayer must be a tensor"),
        (lambda X, y: (X, ["a"] * len(X)), "'y' of LastLayer must be numbers"),
        (lambda X, y: (X[:0], y[:0]), "'data' of LastLayer must hold at least one row"),
        (lambda X, y: (3, None), "'data'.*DataLoader"),
        (lambda X, y: (["text"], None), "A batch of LastLayer must be"),
        (lambda X, y: (X * torch.inf, y), "not finite"),
    ],
)
def test_bad_data_are_refused_and_nothing_is_lost(change, words, model, rows):
    before = model.predict_proba(rows[0])
    for learn in (model.partial_fit, model.fit):
        with pytest.raises(InvalidArgumentError, match=words):
            learn(*change(*rows))
        torch.testing.assert_close(model.predict_proba(rows[0]), before)


def test_a_batch_that_fails_late_leaves_the_model_as_it_was(model, rows):
    X, y = rows
    before, n_rows = model.predict_proba(X), model.head.n_rows_seen_
    with pytest.raises(InvalidArgumentError):
        model.partial_fit([(X, y), (X * torch.nan, y)])
    assert model.head.n_rows_seen_ == n_rows
    torch.testing.assert_close(model.predict_proba(X), before)


@pytest.mark.parametrize(
    "use",
    [
        lambda model, wider, rows: LastLayer.of(wider).save("nowhere"),
        lambda model, wider, rows: model.merge(LastLayer(model.features, N_CLASSES)),
        lambda model, wider, rows: LastLayer(model.features, N_CLASSES).merge(model),
        lambda model, wider, rows: model.partial_fit([(torch.zeros(3, 9), torch.arange(3))]),
        lambda model, wider, rows: model.predict_proba(torch.zeros(3, 9)),
        lambda model, wider, rows: model.predict_latent(torch.zeros(3, 9)),
        lambda model, wider, rows: model(torch.zeros(3, 9)),
        lambda model, wider, rows: model.unlearn(torch.zeros(3, 9), torch.arange(3)),
        lambda model, wider, rows: model.calibrate(torch.zeros(3, 9), torch.arange(3)),
        lambda model, wider, rows: model.unlearn(rows[0], rows[1] + 5),
        lambda model, wider, rows: model.predict_proba([rows[0], rows[0][:, :2]]),
        lambda model, wider, rows: LastLayer(wider, N_CLASSES, "lap"),
        lambda model, wider, rows: LastLayer(wider, N_CLASSES, alpha_eps=-1.0),
        lambda model, wider, rows: LastLayer(wider, N_CLASSES, alpha_eps=[0.1, 0.2]),
        lambda model, wider, rows: LastLayer(wider, N_CLASSES, temperature=-1.0),
        lambda model, wider, rows: LastLayer(wider, N_CLASSES, prior_variance=-1.0),
        lambda model, wider, rows: LastLayer(wider, N_CLASSES, prior_variance="x"),
        lambda model, wider, rows: LastLayer(wider, N_CLASSES, forgetting=2.0),
        lambda model, wider, rows: LastLayer(wider, N_CLASSES, reservoir_size=-1),
        lambda model, wider, rows: LastLayer(wider, N_CLASSES, dispersion="x"),
        lambda model, wider, rows: LastLayer(wider, N_CLASSES, predictive="x"),
        lambda model, wider, rows: LastLayer(wider, N_CLASSES, progress="yes"),
    ],
)
def test_errors_speak_of_the_layer(use, rows):
    """On features that are the inputs, so that their number may be a wrong one."""
    model = LastLayer(nn.Identity(), N_CLASSES).fit(*rows)
    with pytest.raises(ValueError, match="LastLayer") as raised:
        use(model, nn.Sequential(nn.Flatten(), nn.Linear(4, N_CLASSES)), rows)
    assert "BayesianLogisticRegression" not in str(raised.value)


def test_a_network_that_is_none_is_named():
    with pytest.raises(InvalidArgumentError, match=r"'network' parameter of InputsOf must be an nn.Module; got int"):
        LastLayer.of(3)


def test_wrong_labels_are_refused_before_anything_passes_through_the_network(network, rows):
    counting = Counting(network)
    with pytest.raises(InvalidArgumentError, match="from 0 to 2"):
        LastLayer(counting, N_CLASSES).fit(rows[0], rows[1] + 1)
    assert counting.n_seen == 0


@pytest.mark.parametrize("n_rows", [4, 20, 100])
def test_calibrating_again_changes_nothing(network, rows, n_rows):
    few = rows[0][:n_rows] + 1.0, rows[1][:n_rows]
    temperatures = []
    for temperature in ("auto", 0.1, 10.0):
        model = LastLayer(network, N_CLASSES, alpha_eps=0.1, temperature=temperature, prior_variance=1.0).fit(*rows)
        for _ in range(2):
            temperatures.append(model.calibrate(*few).head.temperature_)
    assert temperatures == pytest.approx([temperatures[0]] * 6, rel=1e-6)


def test_errors_name_the_layer_and_not_its_parts(model, network, rows):
    with pytest.raises(InvalidArgumentError, match=r"'data' of LastLayer must be a tensor.*got dict"):
        model.predict_proba({"pixels": rows[0]})
    for ask in ("predict_proba", "predict_latent", "predict_uncertainty", "__call__"):
        with pytest.raises(NotFittedError, match="This LastLayer is not fitted yet"):
            getattr(LastLayer.of(network), ask)(rows[0])


def test_bad_parameters_are_refused(network):
    with pytest.raises(InvalidArgumentError, match="'features'"):
        LastLayer(lambda x: x, 3)
    with pytest.raises(InvalidArgumentError, match="'n_classes'"):
        LastLayer(network, 1)
    with pytest.raises(InvalidArgumentError, match="no parameter 'alpha'"):
        LastLayer(network, 3, alpha=0.1)
    with pytest.raises(InvalidArgumentError, match="'method'"):
        LastLayer(network, 3, method="foo")
    with pytest.raises(InvalidArgumentError, match="LastLayer"):
        LastLayer(network, 3).merge(network)


def test_options_have_the_types_that_they_have_in_the_head():
    of_head, own = (get_type_hints(estimator.__init__) for estimator in (BayesianLogisticRegression, LastLayer))
    assert of_head == {name: own[name] for name in of_head.keys() & own.keys()} | get_type_hints(HeadOptions)


def test_networks_without_weights_yet_are_refused():
    with pytest.raises(InvalidArgumentError, match="layers without weights yet: call it once"):
        LastLayer(nn.LazyLinear(8), 3)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_network_may_be_a_script(network, rows):
    X, y = rows
    scripted = LastLayer(torch.jit.script(network), N_CLASSES).fit(X, y)
    torch.testing.assert_close(scripted.predict_proba(X), LastLayer(network, N_CLASSES).fit(X, y).predict_proba(X))
    assert not any(parameter.requires_grad for parameter in scripted.parameters())


def test_labels_in_floating_point_get_a_remedy(model, rows):
    X, y = rows
    for learn in (model.fit, model.partial_fit, model.unlearn, model.calibrate):
        with pytest.raises(InvalidArgumentError, match=r"'y' of LastLayer must be class indices; .* y\.long\(\)"):
            learn(X, y.float())


def test_networks_that_do_not_give_features_are_named(rows):
    class Pair(nn.Module):
        def forward(self, x):
            return x, x

    with pytest.raises(InvalidArgumentError, match=r"Pair.*got tuple"):
        LastLayer(Pair(), 3).fit(*rows)
    with pytest.raises(InvalidArgumentError, match=r"Flatten.*shape"):
        LastLayer(nn.Flatten(0), 3).fit(*rows)


def test_calibration_is_given_back_by_the_next_fit_also_after_loading(network, rows, tmp_path):
    X, y = rows
    model = LastLayer(network, N_CLASSES).fit(X[:200], y[:200]).calibrate(X[200:], y[200:])
    model.save(tmp_path / "model")
    loaded = LastLayer.load(tmp_path / "model", network)
    assert loaded.head.temperature == model.head.temperature
    for own in (model, loaded):
        own.fit(X, y)
        assert own.head.temperature == own.head.alpha_eps == "auto"
    torch.testing.assert_close(loaded.predict_proba(X), model.predict_proba(X))


class HeadFirst(nn.Module):
    """A network that has its last layer before the others."""

    def __init__(self):
        super().__init__()
        self.head, self.body = nn.Linear(8, N_CLASSES), nn.Linear(4, 8)

    def forward(self, x):
        return self.head(self.body(x).tanh())


def test_a_last_layer_that_is_not_used_last_is_refused_unless_it_is_given(rows):
    X, y = rows
    network = HeadFirst()
    with pytest.raises(InvalidArgumentError, match=r"'body', is not the last one it uses: say which 'layer'"):
        LastLayer.of(network, n_classes=N_CLASSES).fit(X, y)
    assert LastLayer.of(network, network.head).fit(X, y).predict_proba(X).shape == (300, N_CLASSES)


def test_a_last_layer_that_is_not_called_is_refused(rows):
    class Auxiliary(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.auxiliary = nn.Linear(4, N_CLASSES), nn.Linear(4, N_CLASSES)

        def forward(self, x):
            return self.auxiliary(x) if self.training else self.body(x)

    network = Auxiliary()
    with pytest.raises(InvalidArgumentError, match=r"did not call its layer 'auxiliary' .*: say which 'layer'"):
        LastLayer.of(network).fit(*rows)
    assert LastLayer.of(network, network.body).fit(*rows).predict_proba(rows[0]).shape == (300, N_CLASSES)


def test_a_batch_with_fewer_labels_than_rows_is_refused(network, rows):
    X, y = rows
    with pytest.raises(InvalidArgumentError, match="a label for each row; got 10 and 9"):
        LastLayer(network, N_CLASSES).fit([(X[:10], y[:9]), (X[:10], y[:11])])


def test_a_cache_is_of_one_tensor_and_one_that_is_damaged_is_written_again(network, rows, tmp_path):
    X, y = rows
    path, counting = tmp_path / "features", Counting(network)
    first = extract_features(counting, X, cache=path)
    assert counting.n_seen == 300
    torch.testing.assert_close(extract_features(counting, X.flip(0), cache=path).X, first.X.flip(0))
    assert counting.n_seen == 600
    path.write_bytes(path.read_bytes()[:-5])
    torch.testing.assert_close(extract_features(counting, X, y, cache=path).X, first.X)
    assert counting.n_seen == 900
    with pytest.raises(InvalidArgumentError, match="There is no folder"):
        extract_features(counting, X, cache=tmp_path / "nowhere" / "features")
    assert counting.n_seen == 900


def test_a_cache_does_not_take_the_place_of_other_files(model, network, rows, tmp_path):
    saved, text = tmp_path / "model", tmp_path / "thesis.txt"
    model.save(saved)
    text.write_text("In the beginning")
    for path in (saved, text):
        before = path.read_bytes()
        with pytest.raises(InvalidArgumentError, match="holds no features: remove it, or choose another"):
            LastLayer(network, N_CLASSES).fit(*rows, cache=path)
        assert path.read_bytes() == before
    extract_features(network, rows[0], cache=tmp_path / "features")
    with pytest.raises(ModelFileError, match=r"holds a cache of features, not a LastLayer\.$"):
        LastLayer.load(tmp_path / "features", network)


class Rows(Dataset):
    """Rows that are no tensors of a TensorDataset."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def __len__(self):
        return len(self.X)

    def __getitem__(self, row):
        return self.X[row], int(self.y[row])


@pytest.mark.parametrize(
    "make",
    [
        TensorDataset,
        Rows,
        lambda X, y: DataLoader(TensorDataset(X, y), batch_size=7, shuffle=True),
        lambda X, y: DataLoader(Rows(X, y), batch_size=7, shuffle=True),
        lambda X, y: [(X[:9], y[:9]), (X[9:], y[9:])],
        lambda X, y: [{"x": X, "labels": y}],
        lambda X, y: Endless(X, y),
    ],
    ids=["tensors", "rows", "loader of tensors", "loader of rows", "batches", "mappings", "stream"],
)
def test_a_cache_tells_data_apart(make, network, rows, tmp_path):
    X, y = rows
    counting, cache = Counting(network), tmp_path / "features"
    extract_features(counting, make(X[:100], y[:100]), cache=cache)
    assert counting.n_seen == 100
    again = extract_features(counting, make(X[:100], y[:100]), cache=cache)
    assert counting.n_seen == 100
    assert again.X.shape == (100, 8)
    other = extract_features(counting, make(X[100:200], y[100:200]), cache=cache)
    assert counting.n_seen == 200
    assert sorted(other.y.tolist()) == sorted(y[100:200].tolist())


def scaled(batch):
    X, y = torch.utils.data.default_collate(batch)
    return 100.0 * X, y


@pytest.mark.parametrize("make", [TensorDataset, Rows])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"sampler": range(30)}, {"sampler": range(30, 60)}),
        ({"batch_sampler": [[0, 1], [2]]}, {"batch_sampler": [[0, 1], [3]]}),
        ({"drop_last": True}, {}),
        ({"drop_last": True, "batch_size": 14}, {"drop_last": True, "batch_size": 16}),
        ({}, {"collate_fn": scaled}),
        ({"sampler": SubsetRandomSampler(range(30))}, {"shuffle": True}),
    ],
    ids=["samplers", "batch samplers", "last batch", "size of the last batch", "collate_fn", "subset"],
)
def test_a_cache_tells_loaders_of_the_same_data_apart(make, first, second, network, rows, tmp_path):
    dataset, cache = make(rows[0][:60], rows[1][:60]), tmp_path / "features"

    def extract(options, cache=None):
        loader = DataLoader(dataset, **({} if "batch_sampler" in options else {"batch_size": 16}) | options)
        return extract_features(network, loader, cache=cache)

    extract(first, cache)
    found, expected = extract(second, cache), extract(second)
    assert found.X.shape == expected.X.shape
    torch.testing.assert_close(found.X.sort(0).values, expected.X.sort(0).values)


def test_labels_that_are_not_given_do_not_come_from_a_cache(network, rows, tmp_path):
    cache = tmp_path / "features"
    extract_features(network, *rows, cache=cache)
    assert extract_features(network, rows[0], cache=cache).y is None
    with pytest.raises(InvalidArgumentError, match="'data' of LastLayer must bring labels"):
        LastLayer(network, N_CLASSES).fit(rows[0], cache=cache)


def test_errors_about_a_cache_speak_of_the_layer(network, rows, tmp_path):
    for data, y, cache in (
        (*rows, tmp_path),
        (3, None, tmp_path / "new"),
        ([(rows[0], rows[0])], None, tmp_path / "new"),
    ):
        with pytest.raises(InvalidArgumentError, match="of LastLayer must be"):
            LastLayer(network, N_CLASSES).fit(data, y, cache=cache)


@pytest.mark.parametrize("kind", ["old", "empty"])
def test_a_cache_takes_the_place_of_an_old_or_empty_one(kind, network, rows, tmp_path):
    cache = tmp_path / "features"
    cache.touch()
    if kind == "old":
        write_model(cache, "features", 1, {"weights": "other"}, {"X": torch.zeros(3, 2)})
    extract_features(network, rows[0], cache=cache)
    assert extract_features(Counting(network), rows[0], cache=cache).X.shape == (300, 8)


def test_a_cache_is_not_for_data_that_can_be_seen_only_once(network, rows, tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"'cache' of extract_features .* one can go through again"):
        extract_features(network, iter([rows]), cache=tmp_path / "features")


def test_it_is_never_in_training_mode(model):
    assert not model.training
    assert not model.train().training


def test_a_merged_layer_has_the_classes_of_both(network, rows):
    X, y = rows
    more = LastLayer(network, N_CLASSES + 1).fit(X, y + (y == 2))
    assert LastLayer(network, N_CLASSES).fit(X, y).merge(more).n_classes == N_CLASSES + 1


def test_an_error_in_a_later_block_leaves_partial_fit_without_effect(model, rows, monkeypatch):
    X, y = rows
    monkeypatch.setattr("gaussify.nn._last_layer._BLOCK", 1)
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match="not finite"):
        model.partial_fit([(X[:10], y[:10]), (X[:10] * torch.nan, y[:10])])
    torch.testing.assert_close(model.predict_proba(X), before, rtol=0.0, atol=0.0)
    assert model.head.n_rows_seen_ == 300


def test_load_without_a_network_says_what_is_wrong(model, tmp_path):
    model.save(tmp_path / "model")
    with pytest.raises(InvalidArgumentError, match=r"'features' parameter of LastLayer\.load must be an nn\.Module"):
        LastLayer.load(tmp_path / "model", None)
