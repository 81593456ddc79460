"""Bayesian logistic regression in closed form, and the baselines of the paper's section on streams.

Read ``_classifier.py`` first, the estimator. ``_hyperparameters.py`` chooses prior variance and label parameters,
``_current.py`` keeps the posterior up to date row by row, and ``_reservoir.py`` keeps the rows that score the choices.
"""

from gaussify.linear._classifier import BayesianLogisticRegression

__all__ = ["BayesianLogisticRegression"]
