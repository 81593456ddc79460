"""What forgetting gains on a stream that drifts, and what it costs on one that does not."""

from pathlib import Path

import numpy as np

from gaussify.datasets import make_drifting_stream
from gaussify.experiments import _lab as lab
from gaussify.linear import BayesianLogisticRegression
from gaussify.plotting import figure_file


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    streams = range(settings["n_streams"])
    return lab.combinations(drift=settings["drifts"], forgetting=settings["forgetting"], stream=streams)


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    """Return the log-loss of each block before it is learnt."""
    options = {"n_features": 10, "n_classes": 4, "drift": task["drift"], "random_state": task["stream"]}
    X, y = make_drifting_stream(settings["n_rows"], **options)
    model = BayesianLogisticRegression(forgetting=task["forgetting"])
    records: list[lab.Record] = []
    for start in range(0, len(X), settings["block"]):
        part = slice(start, start + settings["block"])
        if start:
            own = model.predict_proba(X[part])[np.arange(len(y[part])), y[part]]
            records.append({"n_seen": start, "log_loss": round(-float(np.log(own).mean()), 5)})
        model.partial_fit(X[part], y[part], classes=range(4))
    return records


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return the mean log-loss over the stream, one row for each factor, one column for each kind of drift."""
    return [
        {"forgetting": factor}
        | {f"{drift} drift": round(lab.mean(some, "log_loss"), 4) for drift, some in lab.by(own, "drift").items()}
        for factor, own in lab.by(records, "forgetting").items()
    ]


def _draw(records: list[lab.Record], folder: Path) -> None:
    drifts = lab.by(records, "drift")
    with figure_file(folder, "drift", 1, len(drifts), width=3.8 * len(drifts), height=3.0, sharey=True) as (_, axes):
        for axis, (drift, some) in zip(axes[0], drifts.items(), strict=True):
            lab.draw_lines(axis, lab.by(some, "forgetting"), "n_seen", "log_loss")
            axis.set(title=f"{drift} drift", xlabel="rows seen")
        axes[0, 0].set_ylabel("log-loss of the next rows")
        axes[0, -1].legend(title="forgetting", fontsize=7, title_fontsize=7)


TITLE = "Forgetting on streams that drift abruptly, gradually, or not at all"
PRESETS = lab.presets(
    dict(drifts=["none", "abrupt", "gradual"], forgetting=[1.0, 0.999, 0.998, 0.995, 0.99], n_rows=6000)
    | dict(block=100),
    smoke=dict(drifts=["abrupt"], forgetting=[1.0, 0.98], n_streams=1, n_rows=400),
    laptop=dict(n_streams=3),
    paper=dict(n_streams=10),
)

lab.register(lab.Experiment("drift", TITLE, PRESETS, _tasks, _run, _draw, _summarise))
