"""Active learning on movie reviews and other pools: what is recorded, and the numbers of the summary."""

import numpy as np
import pytest

from gaussify.experiments import get, load
from gaussify.experiments.benchmarks._active_reviews import _CONTENDERS, _PEER


def test_every_contender_has_a_record_for_every_number_of_labels(smoke_run):
    records = load(smoke_run("active-reviews"))
    assert len(records) == 2 * len(_CONTENDERS) * 2
    for record in records:
        assert 0.5 < record["accuracy"] <= 1.0
        assert record["seconds"] > 0.0
        assert (record["prior_variance"] is None) == record["contender"].startswith("logistic")


def test_leads_are_paired():
    accuracy = {_PEER: [0.70, 0.80, 0.75], "gaussify, entropy": [0.72, 0.81, 0.78]}
    records = [
        {"dataset": "letter", "seed": seed, "contender": name, "n_labels": 100, "accuracy": value, "nll": 0.5}
        | {"prior_variance": None if name == _PEER else float(seed), "seconds": 0.01}
        for name, values in accuracy.items()
        for seed, value in enumerate(values)
    ]
    rows = {row["contender"]: row for row in get("active-reviews").summarise(records)}
    assert (rows[_PEER]["lead"], rows[_PEER]["largest prior variance"]) == (0.0, None)
    assert rows["gaussify, entropy"]["lead"] == pytest.approx(0.02)
    assert rows["gaussify, entropy"]["lead_se"] == pytest.approx(np.std([0.02, 0.01, 0.03], ddof=1) / 3**0.5, abs=1e-4)
    assert rows["gaussify, entropy"]["largest prior variance"] == 2.0
    assert rows["gaussify, entropy"]["ms a label"] == 10.0
