"""
A stream that changes
=====================

Each row is predicted first and learnt afterwards. Half-way, the relation between rows and labels changes. A model that
gives equal weight to every row keeps the old relation. With ``forgetting``, each row reduces the weight of all earlier
rows, so the model adapts. The prior is never forgotten.
"""

import matplotlib.pyplot as plt
import numpy as np

from gaussify import BayesianLogisticRegression
from gaussify.datasets import make_drifting_stream
from gaussify.plotting import SERIES_COLOURS

X, y = make_drifting_stream(2400, n_features=8, n_classes=3, drift="abrupt", random_state=0)

# %%
# Rows come in blocks of thirty. The loss of a block is computed before its rows are learnt.

blocks = np.arange(0, len(y), 30)
losses = {}
for forgetting in (1.0, 0.999, 0.99):
    model = BayesianLogisticRegression(forgetting=forgetting)
    losses[forgetting] = []
    for start in blocks:
        rows = slice(start, start + 30)
        if start:
            own = model.predict_proba(X[rows])[np.arange(30), y[rows]]
            losses[forgetting].append(-np.log(own).mean())
        model.partial_fit(X[rows], y[rows], classes=range(3))
    early, late = np.array_split(losses[forgetting], 2)
    print(f"forgetting {forgetting:5}: log-loss {np.mean(early):.3f} before the change, {np.mean(late):.3f} after it")

# %%
# A factor of 0.99 is a memory of about a hundred rows. This model recovers within two hundred rows. The price is a
# higher loss at all other times, because it remembers fewer rows.

figure, axis = plt.subplots(figsize=(8, 4), layout="constrained")
for colour, (forgetting, own) in zip(SERIES_COLOURS, losses.items(), strict=False):
    smooth = np.convolve(own, np.ones(4) / 4, mode="valid")
    axis.plot(blocks[4:], smooth, color=colour, label=f"forgetting={forgetting:g}")
axis.axvline(1200, color="0.6", linestyle=":")
axis.annotate("change", (1200, axis.get_ylim()[1]), xytext=(-4, -12), textcoords="offset points", ha="right")
axis.set(xlabel="rows seen", ylabel="log-loss of the next rows")
axis.legend(frameon=False)
plt.savefig("streaming.png") if plt.get_backend().lower() == "agg" else plt.show()
