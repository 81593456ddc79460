"""Linear models on small tables: matched and refined Bayesian logistic regression beside scikit-learn's.

All models get the same numbers, which :mod:`._small_tables` makes, and learn one after the other in one run. Scores are
those of test rows. ``rank`` is the place of a model among all by its mean NLL on a table. ``worst_gap`` is the
largest difference on a table between its mean NLL and that of the matched model.
"""

from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from gaussify.experiments import _lab as lab
from gaussify.experiments.benchmarks._linear_models import (
    AUTO,
    COLOURS,
    MATCHED,
    TUNED,
    fit,
    is_refined,
    linear_models,
    positive_probs,
)
from gaussify.experiments.benchmarks._small_tables import check_tables, names, split_table
from gaussify.plotting import figure_file

_SCORES = ("nll", "ece", "brier", "accuracy")
_WIDEST = 0.25  # of a difference of NLL in the figure; larger ones are drawn at the rim


def _tasks(settings: lab.Settings) -> list[lab.Task]:
    tables = settings["tables"]
    return lab.combinations(table=tables, split=range(settings["n_splits"]))


def _run(settings: lab.Settings, task: lab.Task, seed: int) -> list[lab.Record]:
    sizes = {name: settings[name] for name in ("max_train", "max_test")}
    split = split_table(task["table"], task["split"], **sizes)
    shape = {"n_train": len(split.y), "n_features": split.X.shape[1], "n_classes": int(split.y.max()) + 1}
    records: list[lab.Record] = []
    for method, make in linear_models().items():
        model, seconds = fit(make, split.X, split.y)
        scores = lab.scores(positive_probs(model, split.X_test), split.y_test, _SCORES)
        record: lab.Record = {"method": method, **shape, **scores, "seconds": lab.significant(seconds)}
        records.append(record | {"refined": is_refined(model)})
    return records


def mean_nll(records: list[lab.Record]) -> dict[str, dict[str, float]]:
    """Return the mean NLL over splits by table, and by method in each.

    Examples
    --------
    >>> mean_nll([{"table": "wine", "method": "matched", "nll": nll} for nll in (1.0, 2.0)])
    {'wine': {'matched': 1.5}}
    """
    return {
        table: {method: lab.mean(own, "nll") for method, own in lab.by(some, "method").items()}
        for table, some in lab.by(records, "table").items()
    }


def _summarise(records: list[lab.Record]) -> list[lab.Record]:
    """Return means over tables by method: scores, ranks, the worst gap to the matched model, and total seconds."""
    tables = mean_nll(records)
    methods = list(lab.by(records, "method"))
    nll = np.array([[own[method] for method in methods] for own in tables.values()])  # (tables, methods)
    ranks = rankdata(nll, axis=1).mean(0)
    gaps = (nll - nll[:, [methods.index(MATCHED)]]).max(0)
    rows: list[lab.Record] = []
    for place, method in enumerate(methods):
        own = lab.select(records, method=method)
        known = [record["refined"] for record in own if record["refined"] is not None]
        by_table = [np.mean([lab.column(some, name) for name in _SCORES], 1) for some in lab.by(own, "table").values()]
        row: lab.Record = {"method": method, "rank": round(float(ranks[place]), 3)}
        row |= {name: round(float(x), 4) for name, x in zip(_SCORES, np.mean(by_table, 0), strict=True)}
        row |= {"worst_gap": round(float(gaps[place]), 4), "seconds": round(float(lab.column(own, "seconds").sum()), 2)}
        rows.append(row | {"refined": round(float(np.mean(known)), 3) if known else None, "tables": len(tables)})
    return rows


def _draw(records: list[lab.Record], folder: Path) -> None:
    """Draw the NLL of each model less that of tuned logistic regression, by table, sorted by that of our default."""
    tables, found = mean_nll(records), lab.by(records, "method")
    first = AUTO if AUTO in found else MATCHED
    methods = [*(method for method in found if method not in (TUNED, first)), first]
    order = sorted(tables, key=lambda table: tables[table][first] - tables[table][TUNED], reverse=True)
    with figure_file(folder, "linear_tables", 1, 1, width=6.4, height=1.4 + 0.19 * len(order)) as (figure, axes):
        axis, places = axes[0, 0], np.arange(len(order))
        for method in methods:
            gaps = np.array([tables[table][method] - tables[table][TUNED] for table in order])
            shown = np.clip(gaps, -_WIDEST, _WIDEST)
            if method == first:
                axis.hlines(places, 0.0, shown, color=COLOURS[method], lw=1.0)
            look = {"ms": 5.0, "alpha": 1.0} if method == first else {"ms": 4.0, "alpha": 0.75}
            axis.plot(shown, places, "o", label=method, color=COLOURS[method], clip_on=False, zorder=3, **look)
        axis.axvline(0.0, color=COLOURS[TUNED], lw=1.0)
        axis.set_yticks(places, order, fontsize=7)
        axis.set_ylim(-0.7, len(order) - 0.3)
        axis.set_xscale("symlog", linthresh=0.01)
        axis.set_xlim(-_WIDEST, _WIDEST)
        axis.set_xticks([-0.2, -0.05, -0.01, 0.0, 0.01, 0.05, 0.2])
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("")
        axis.set_xlabel("test NLL less that of tuned logistic regression (left is better)")
        lab.legend_below(figure, axes)


_UCI = ["letter", "magic", "htru2", "eeg", "drive"]

TITLE = "Linear models on small tables: matched and refined sites beside scikit-learn's logistic regression"
PRESETS = lab.presets(
    dict(max_test=3000),
    smoke=dict(tables=["iris", "wine"], n_splits=2, max_train=80),
    laptop=dict(tables=names(_UCI, [200, 1000, 3000], with_folder=True), n_splits=2, max_train=3000),
    paper=dict(tables=names(_UCI, [200, 500, 1000, 3000], with_folder=True), n_splits=10, max_train=3000),
)

lab.register(
    lab.Experiment(
        "linear-tables",
        TITLE,
        PRESETS,
        _tasks,
        _run,
        _draw,
        _summarise,
        check=lambda settings: check_tables(settings["tables"]),
    )
)
