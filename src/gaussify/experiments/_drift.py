"""What forgetting gains on a stream that drifts, and what it costs on one that does not."""

from pathlib import Path

import numpy as np

from gaussify.datasets import Drift, make_drifting_stream
from gaussify.experiments._registry import Experiment, Settings, Task, register
from gaussify.experiments._results import Record, Scalar
from gaussify.linear import BayesianLogisticRegression
from gaussify.plotting import SERIES_COLOURS, figure_file


def _tasks(settings: Settings) -> list[Task]:
    return [
        {"drift": drift, "forgetting": forgetting, "stream": stream}
        for drift in settings["drifts"]
        for forgetting in settings["forgetting"]
        for stream in range(settings["n_streams"])
    ]


def _run(settings: Settings, task: Task, seed: int) -> list[Record]:
    """Log-loss of each block before it is learnt."""
    X, y = make_drifting_stream(
        settings["n_rows"],
        n_features=10,
        n_classes=4,
        drift=Drift(str(task["drift"])),
        random_state=int(str(task["stream"])),
    )
    model = BayesianLogisticRegression(forgetting=float(str(task["forgetting"])))
    records: list[Record] = []
    for start in range(0, len(X), settings["block"]):
        part = slice(start, start + settings["block"])
        if start:
            own = model.predict_proba(X[part])[np.arange(len(y[part])), y[part]]
            records.append({"n_seen": start, "log_loss": round(-float(np.log(own).mean()), 5)})
        model.partial_fit(X[part], y[part], classes=range(4))
    return records


def _mean_loss(records: list[Record], **chosen: object) -> float:
    own = [record["log_loss"] for record in records if all(record[key] == value for key, value in chosen.items())]
    return float(np.mean(own))  # type: ignore[arg-type]


def _values(records: list[Record], key: str) -> list[Scalar]:
    return list(dict.fromkeys(record[key] for record in records))


def _summarise(records: list[Record]) -> list[Record]:
    """Mean log-loss over the stream, one row for each factor, one column for each kind of drift."""
    rows: list[Record] = []
    for factor in _values(records, "forgetting"):
        row: Record = {"forgetting": factor}
        for drift in _values(records, "drift"):
            row[f"{drift} drift"] = round(_mean_loss(records, drift=drift, forgetting=factor), 4)
        rows.append(row)
    return rows


def _draw(records: list[Record], folder: Path) -> None:
    drifts = _values(records, "drift")
    with figure_file(folder, "drift", 1, len(drifts), width=3.8 * len(drifts), height=3.0, sharey=True) as (_, axes):
        for axis, drift in zip(axes[0], drifts, strict=True):
            for colour, factor in zip(SERIES_COLOURS, _values(records, "forgetting"), strict=False):
                own = [r for r in records if r["drift"] == drift and r["forgetting"] == factor]
                seen = _values(own, "n_seen")
                axis.plot(seen, [_mean_loss(own, n_seen=n) for n in seen], color=colour, label=f"{factor}")
            axis.set(title=f"{drift} drift", xlabel="rows seen")
        axes[0, 0].set_ylabel("log-loss of the next rows")
        axes[0, -1].legend(title="forgetting", fontsize=7, title_fontsize=7)


_FACTORS = [1.0, 0.999, 0.998, 0.995, 0.99]

register(
    Experiment(
        name="drift",
        title="Forgetting on streams that drift abruptly, gradually, or not at all",
        presets={
            "smoke": {"drifts": ["abrupt"], "forgetting": [1.0, 0.98], "n_streams": 1, "n_rows": 400, "block": 100},
            "laptop": {
                "drifts": ["none", "abrupt", "gradual"],
                "forgetting": _FACTORS,
                "n_streams": 3,
                "n_rows": 6000,
                "block": 100,
            },
            "paper": {
                "drifts": ["none", "abrupt", "gradual"],
                "forgetting": _FACTORS,
                "n_streams": 10,
                "n_rows": 6000,
                "block": 100,
            },
        },
        tasks=_tasks,
        run=_run,
        draw=_draw,
        summarise=_summarise,
    )
)
