"""
Which image to label next
=========================

Images of digits are free, but labels cost money. An :class:`gaussify.ActiveLearner` asks for the labels of the images
whose predictions are least certain, and learns each answer in closed form. For comparison, the same model asks for
random images.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from gaussify import ActiveLearner, BayesianLogisticRegression
from gaussify.plotting import SERIES_COLOURS

X, y = load_digits(return_X_y=True)
pool, test = slice(0, 1200), slice(1200, None)

# %%
# Twelve queries of fifteen images each, with two seeds. The images of one query carry different information.

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
# Thick lines are means and thin lines single runs. The distance between the thin lines shows how much is chance.

figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
n_labels = 15 * np.arange(1, 13)
for colour, (acquisition, runs) in zip(SERIES_COLOURS, curves.items(), strict=False):
    axis.plot(n_labels, runs.T, color=colour, alpha=0.25, linewidth=1)
    axis.plot(n_labels, runs.mean(0), color=colour, linewidth=2.5, label=acquisition)
axis.set(xlabel="labels", ylabel="accuracy on 597 other images", ylim=(0.4, 1.0))
axis.legend(frameon=False, loc="lower right")
plt.savefig("active.png") if plt.get_backend().lower() == "agg" else plt.show()
