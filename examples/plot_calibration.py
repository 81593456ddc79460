"""
Can these probabilities be trusted?
===================================

Of all rows that a model predicts with 80 % probability, four in five should be right. A reliability diagram shows
whether they are. This example draws it for classifiers with default settings on scikit-learn's digits. Two are from
gaussify, which chooses all settings by leaving training rows out in closed form. Three are from scikit-learn.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gaussify import BayesianLogisticRegression, GPClassifier, metrics
from gaussify.plotting import ReliabilityDisplay

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=300, random_state=0)

models = {
    "BayesianLogisticRegression": BayesianLogisticRegression(),
    "GPClassifier": GPClassifier(n_inducing=50, max_iter=30),
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "random forest": RandomForestClassifier(200, random_state=0),
    "naive Bayes": GaussianNB(var_smoothing=1e-3),
}

# %%
# All models learn from 300 images and are judged by 1497 others. NLL is the mean negative log-probability of the right
# class. ECE, the expected calibration error, is the mean distance of the bars from the diagonal. For both, lower is
# better.

probs = {name: np.clip(model.fit(X_train, y_train).predict_proba(X_test), 1e-15, 1.0) for name, model in models.items()}
print(f"{'':28}{'accuracy':>10}{'NLL':>8}{'ECE':>8}")
for name, own in probs.items():
    own /= own.sum(1, keepdims=True)
    print(
        f"{name:28}{metrics.accuracy(own, y_test):10.3f}{metrics.nll(own, y_test):8.3f}{metrics.ece(own, y_test):8.3f}"
    )

# %%
# Bars below the diagonal mean overconfidence. The forest is right far more often than it says, and naive Bayes less
# often. The bars of gaussify's models are near the diagonal.

figure, axes = plt.subplots(1, 3, figsize=(12, 5), layout="constrained")
for axis, name in zip(axes, ("GPClassifier", "random forest", "naive Bayes"), strict=True):
    ReliabilityDisplay.from_predictions(probs[name], y_test, n_bins=10, ax=axis, name=name)
plt.savefig("calibration.png") if plt.get_backend().lower() == "agg" else plt.show()
