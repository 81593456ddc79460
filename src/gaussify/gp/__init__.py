"""Gaussian process classification as regression on matched targets, and by variational inference as a reference.

Read ``_classifier.py`` first, the estimator. ``learning/`` holds the search for hyperparameters, ``objectives/`` the
equations that the search maximises, ``_exact.py`` and ``_models.py`` the posteriors, and ``_fitted.py`` the result.
"""

from gaussify.gp._classifier import GPClassifier
from gaussify.gp._variational_classifier import VariationalGPClassifier

__all__ = ["GPClassifier", "VariationalGPClassifier"]
