"""
Which image to have labelled next
=================================

Images of digits are free, labels are not. An :class:`gaussify.ActiveLearner` asks for those of which the model is least
sure, and learns each answer in closed form. Beside it, the same model asks for images at random.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from gaussify import ActiveLearner, BayesianLogisticRegression
from gaussify.plotting import SERIES_COLOURS

X, y = load_digits(return_X_y=True)
pool, test = slice(0, 1200), slice(1200, None)

# %%
# Twelve queries of fifteen images each, with two seeds. No two images of a query are to tell the same.

curves = {}
for acquisition in ("entropy", "random"):
    runs = []
    for seed in range(2):
        model = BayesianLogisticRegression()
        learner = ActiveLearner(model, X[pool], acquisition=acquisition, random_state=seed, classes=range(10))
        accuracy = []
        for _ in range(12):
            asked = learner.query(15)
            learner.teach(asked, y[pool][asked])
            accuracy.append(learner.estimator_.score(X[test], y[test]))
        runs.append(accuracy)
    curves[acquisition] = np.array(runs)
    print(f"{acquisition:8} accuracy with 180 labels: {curves[acquisition][:, -1].mean():.3f}")

# %%
# Thick lines are means, thin ones single runs: how far these lie apart says what is chance.

figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
n_labels = 15 * np.arange(1, 13)
for colour, (acquisition, runs) in zip(SERIES_COLOURS, curves.items(), strict=False):
    axis.plot(n_labels, runs.T, color=colour, alpha=0.25, linewidth=1)
    axis.plot(n_labels, runs.mean(0), color=colour, linewidth=2.5, label=acquisition)
axis.set(xlabel="labels", ylabel="accuracy on 597 other images", ylim=(0.4, 1.0))
axis.legend(frameon=False, loc="lower right")
plt.savefig("active.png") if plt.get_backend().lower() == "agg" else plt.show()
