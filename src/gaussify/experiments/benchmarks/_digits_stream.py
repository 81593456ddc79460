"""Handwritten digits, one row at a time: each is predicted, and then learnt."""

from pathlib import Path
from typing import Any

import numpy as np

from gaussify.experiments._lab._registry import Experiment, Settings, Task, register
from gaussify.experiments._lab._records import Record, group, mean_and_error
from gaussify.linear import BayesianLogisticRegression
from gaussify.plotting import SERIES_COLOURS, figure_file

_SCORES = {"accuracy": "accuracy", "log_loss": "log-loss [nat]"}
_LEAST = 1e-6  # of probabilities, so that one row of a baseline does not hide all others


def _models() -> dict[str, Any]:
    from sklearn.linear_model import SGDClassifier

    from gaussify.linear.baselines import MomentumSGDClassifier

    return {
        "BayesianLogisticRegression()": BayesianLogisticRegression(),
        "least squares on labels": BayesianLogisticRegression("gauss"),
        "SGDClassifier(loss='log_loss')": SGDClassifier(loss="log_loss", random_state=0),
        "gradient descent with momentum": MomentumSGDClassifier(),
    }


def _tasks(settings: Settings) -> list[Task]:
    return [{"stream": stream, "model": model} for stream in range(settings["n_streams"]) for model in _models()]


def _run(settings: Settings, task: Task, seed: int) -> list[Record]:
    """Mean scores of each block of rows, of which every one was predicted before it was learnt."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(int(str(task["stream"]))).permutation(len(y))[: settings["n_rows"]]
    X, y = X[order] / 16.0, y[order]
    model = _models()[str(task["model"])]
    model.partial_fit(X[:1], y[:1], classes=np.arange(10))
    own = []
    for place in range(1, len(y)):
        row, label = X[place : place + 1], y[place : place + 1]
        probs = model.predict_proba(row)[0]
        own.append((float(probs.argmax() == label[0]), -np.log(max(probs[label[0]], _LEAST))))
        model.partial_fit(row, label)
    blocks = [own[start : start + settings["block"]] for start in range(0, len(own), settings["block"])]
    return [
        {"n_seen": settings["block"] * number, "accuracy": round(accuracy, 4), "log_loss": round(log_loss, 4)}
        for number, (accuracy, log_loss) in enumerate((np.mean(block, 0).tolist() for block in blocks), 1)
    ]


def _summarise(records: list[Record]) -> list[Record]:
    """Means over the whole stream, and over its last quarter."""
    last = 0.75 * max(float(record["n_seen"]) for record in records)  # type: ignore[arg-type]
    rows: list[Record] = []
    for (model,), own in group(records, "model").items():
        late = [record for record in own if float(record["n_seen"]) > last]  # type: ignore[arg-type]
        row: Record = {"model": model}
        for name in _SCORES:
            row[name] = round(mean_and_error(record[name] for record in own)[0], 4)
            row[f"{name}, last quarter"] = round(mean_and_error(record[name] for record in late)[0], 4)
        rows.append(row)
    return rows


def _draw(records: list[Record], folder: Path) -> None:
    with figure_file(folder, "digits_stream", 1, len(_SCORES), width=9.0, height=3.4) as (figure, axes):
        for (metric, label), axis in zip(_SCORES.items(), axes[0], strict=True):
            for colour, ((model,), own) in zip(SERIES_COLOURS, group(records, "model").items(), strict=False):
                means = {n: mean_and_error(r[metric] for r in few)[0] for (n,), few in group(own, "n_seen").items()}
                axis.plot(list(means), list(means.values()), color=colour, label=str(model))
            axis.set(xlabel="rows seen", ylabel=f"{label} of the next rows")
        axes[0, 1].set_ylim(0.0, 2.5)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)


register(
    Experiment(
        name="digits-stream",
        title="Handwritten digits one row at a time, each predicted and then learnt",
        presets={
            "smoke": {"n_streams": 1, "n_rows": 201, "block": 50},
            "laptop": {"n_streams": 2, "n_rows": 1797, "block": 50},
            "paper": {"n_streams": 10, "n_rows": 1797, "block": 50},
        },
        tasks=_tasks,
        run=_run,
        draw=_draw,
        summarise=_summarise,
    )
)
