"""Linear models where one class is rare, and how right its probability is.

Rows have the shape of a table of credit cards: one row in thirty, or in a thousand, belongs to the rare class, and a
strong feature, a weak one and a binary one tell about it. ``strength`` is the weight of the strong feature, larger for
the rarer class, so that some of its rows can be recognised. Half of the rows are learnt from, and both halves have the
same share of the rare class. Of the other half:

- ``bias`` is the mean predicted probability of the rare class over its frequency,
- ``recall`` is the share of the rare class that is predicted with a probability above one half,
- ``largest`` is the largest predicted probability of the rare class.

``nll_ratio`` in the summary is the mean NLL over that of tuned logistic regression.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Float, Int64
from scipy.optimize import brentq
from scipy.special import expit

from gaussify.experiments import _lab as lab
from gaussify.experiments.benchmarks._linear_models import (
    COLOURS,
    TUNED,
    fit,
    is_refined,
    linear_models,
    positive_probs,
)
from gaussify.plotting import figure_file

_N_DIGITS = {"nll": 5, "recall": 3, "auc": 4, "mean_probability": 5, "frequency": 5, "bias": 3, "largest": 4}
_PANELS = {"nll": "test NLL", "bias": "mean probability / frequency", "recall": "recall at 0.5"}
_OTHERS = (0.05, -0.3)  # weights of the weak feature and of the binary one


def rare_rows(
    n: int, prevalence: float, strength: float, random_state: np.random.Generator
) -> tuple[Float[np.ndarray, "n 3"], Int64[np.ndarray, " n"]]:
    """Return rows whose class 1 has this share in the mean, by a logistic model.

    Examples
    --------
    >>> X, y = rare_rows(10_000, 0.033, 2.8, np.random.default_rng(0))
    >>> X.shape, round(float(y.mean()), 2)
    ((10000, 3), 0.03)
    """
    member = random_state.random(n) < 0.3
    strong = random_state.normal(size=n) + 0.3 * member
    weak = random_state.normal(size=n) - 1.6 * member
    X = np.column_stack([strong, weak, member])
    X = (X - X.mean(0)) / X.std(0)
    logits = X @ np.array([strength, *_OTHERS])
    intercept = brentq(lambda shift: expit(logits + shift).mean() - prevalence, -50.0, 50.0)
    return X, (random_state.random(n) < expit(logits + intercept)).astype(np.int64)


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    return [
        {"prevalence": prevalence, "strength": strength, "n_rows": n_rows, "seed": seed}
        for prevalence, strength, n_rows in settings["prevalences"]
        for seed in range(settings["n_seeds"])
    ]


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    from sklearn.model_selection import train_test_split

    generator = np.random.default_rng([task["seed"], round(1e6 * task["prevalence"])])
    X, y = rare_rows(task["n_rows"], task["prevalence"], task["strength"], generator)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=task["seed"])
    records: list[lab.Record] = []
    for method, make in linear_models().items():
        model, seconds = fit(make, X, y)
        scores = rare_scores(positive_probs(model, X_test), y_test)
        record: lab.Record = {"method": method, "n_rare": int(y.sum())} | scores
        records.append(record | {"seconds": lab.significant(seconds), "refined": is_refined(model)})
    return records


def rare_scores(probs: Float[np.ndarray, "n 2"], y: Int64[np.ndarray, " n"]) -> lab.Record:
    """Return scores of probabilities whose second column is that of the rare class.

    Examples
    --------
    >>> rare_scores(np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]]), np.array([0, 1, 1]))
    {'nll': 0.5108, 'recall': 0.5, 'auc': 1.0, 'mean_probability': 0.4, 'frequency': 0.667, 'bias': 0.6, 'largest': 0.8}
    """
    from sklearn.metrics import roc_auc_score

    rare = probs[:, 1]
    values = {
        **lab.scores(probs, y, ("nll",), n_digits=15),
        "recall": (rare[y == 1] > 0.5).mean(),
        "auc": roc_auc_score(y, rare),
        "mean_probability": rare.mean(),
        "frequency": y.mean(),
        "bias": rare.mean() / y.mean(),
        "largest": rare.max(),
    }
    return {name: round(float(values[name]), digits) for name, digits in _N_DIGITS.items()}


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return means over seeds by prevalence and method; "bias" is the ratio of the means."""
    rows: list[lab.Record] = []
    for prevalence, some in lab.by(records, "prevalence").items():
        tuned = lab.mean(lab.select(some, method=TUNED), "nll")
        for method, own in lab.by(some, "method").items():
            row: lab.Record = {"prevalence": prevalence, "method": method}
            row |= {name: round(lab.mean(own, name), digits) for name, digits in _N_DIGITS.items() if name != "bias"}
            row["bias"] = round(lab.mean(own, "mean_probability") / lab.mean(own, "frequency"), 3)
            row["nll_ratio"] = round(lab.mean(own, "nll") / tuned, 4)
            rows.append(row | {"n_rare": round(lab.mean(own, "n_rare"), 1), "seeds": len(own)})
    return rows


def _draw(records: list[lab.Record], folder: Path) -> None:
    """Draw NLL, bias and recall of each seed, a row of panels for each prevalence."""
    kinds = lab.by(records, "prevalence")
    size = {"width": 9.0, "height": 0.9 + 1.7 * len(kinds)}
    with figure_file(folder, "rare_classes", len(kinds), len(_PANELS), **size) as (_, axes):
        for panels, (prevalence, some) in zip(axes, kinds.items(), strict=True):
            methods = lab.by(some, "method")
            for axis, (name, label) in zip(panels, _PANELS.items(), strict=True):
                for place, (method, own) in enumerate(methods.items()):
                    values = lab.column(own, name)
                    axis.plot(values, np.full(len(own), -place), "o", color=COLOURS[method], ms=4, alpha=0.6)
                    axis.plot(values.mean(), -place, "|", color=COLOURS[method], ms=14, mew=2)
                if name == "bias":
                    axis.axvline(1.0, color="#000000", lw=0.8, ls=":")
                axis.set_xlabel(label)
                axis.set_yticks(-np.arange(len(methods)), methods if axis is panels[0] else [""] * len(methods))
            panels[0].set_title(f"{prevalence:.1%} of rows are of the rare class", loc="left")


TITLE = "Rare classes: matched and refined sites beside scikit-learn's logistic regression"
PRESETS = lab.presets(
    {},
    smoke=dict(prevalences=[[0.05, 2.8, 1000]], n_seeds=2),
    laptop=dict(prevalences=[[0.033, 2.8, 10_000], [0.001, 5.0, 300_000]], n_seeds=20),
    paper=dict(prevalences=[[0.033, 2.8, 10_000], [0.001, 5.0, 300_000]], n_seeds=100),
)

lab.register(lab.Experiment("rare-classes", TITLE, PRESETS, _tasks, _run, _draw, _summarise))
