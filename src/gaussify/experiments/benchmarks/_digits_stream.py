"""Handwritten digits, one row at a time: each is predicted and then learnt, by gaussify and by gradient descent."""

from pathlib import Path
from typing import Any

import numpy as np

from gaussify.experiments import _lab as lab
from gaussify.linear import BayesianLogisticRegression
from gaussify.plotting import figure_file

_SCORES = {"accuracy": "accuracy", "log_loss": "log-loss [nat]"}
_LEAST = 1e-6  # probability, so that a single row of a baseline does not dominate


def _models() -> dict[str, Any]:
    from sklearn.linear_model import SGDClassifier

    from gaussify.linear.baselines import MomentumSGDClassifier

    return {
        "BayesianLogisticRegression()": BayesianLogisticRegression(),
        "least squares on labels": BayesianLogisticRegression("gauss"),
        "SGDClassifier(loss='log_loss')": SGDClassifier(loss="log_loss", random_state=0),
        "gradient descent with momentum": MomentumSGDClassifier(),
    }


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    return lab.combinations(stream=range(settings["n_streams"]), model=_models())


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    """Return mean scores of each block of rows; every row is predicted before it is learnt."""
    X, y = lab.load_rows("digits")
    order = np.random.default_rng(task["stream"]).permutation(len(y))[: settings["n_rows"]]
    X, y = X[order] / 16.0, y[order]
    model = _models()[task["model"]]
    model.partial_fit(X[:1], y[:1], classes=np.arange(10))
    own = []
    for place in range(1, len(y)):
        row, label = X[place : place + 1], y[place : place + 1]
        probs = model.predict_proba(row)[0]
        own.append((float(probs.argmax() == label[0]), -np.log(max(probs[label[0]], _LEAST))))
        model.partial_fit(row, label)
    size = settings["block"]
    return [
        {"n_seen": start + size}
        | dict(zip(_SCORES, np.mean(own[start : start + size], 0).round(4).tolist(), strict=True))
        for start in range(0, len(own), size)
    ]


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return means over the whole stream, and over its last quarter."""
    last = 0.75 * max(record["n_seen"] for record in records)
    rows: list[lab.Record] = []
    for model, own in lab.by(records, "model").items():
        late = [record for record in own if record["n_seen"] > last]
        row: lab.Record = {"model": model}
        for name in _SCORES:
            row |= {name: round(lab.mean(own, name), 4), f"{name}, last quarter": round(lab.mean(late, name), 4)}
        rows.append(row)
    return rows


def _draw(records: list[lab.Record], folder: Path) -> None:
    with figure_file(folder, "digits_stream", 1, len(_SCORES), width=9.0, height=3.4) as (figure, axes):
        for (metric, label), axis in zip(_SCORES.items(), axes[0], strict=True):
            lab.draw_lines(axis, lab.by(records, "model"), "n_seen", metric)
            axis.set(xlabel="rows seen", ylabel=f"{label} of the next rows")
        axes[0, 1].set_ylim(0.0, 2.5)
        lab.legend_below(figure, axes, n_labels=2)


TITLE = "Handwritten digits one row at a time, each predicted and then learnt"
PRESETS = lab.presets(
    dict(n_rows=1797, block=50), smoke=dict(n_streams=1, n_rows=201), laptop=dict(n_streams=2), paper=dict(n_streams=10)
)

lab.register(lab.Experiment("digits-stream", TITLE, PRESETS, _tasks, _run, _draw, _summarise))
