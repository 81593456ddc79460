"""Gaussian process classification as regression on matched targets, and by variational inference as a reference."""

from gaussify.gp._classifier import GPClassifier
from gaussify.gp._variational_classifier import VariationalGPClassifier

__all__ = ["GPClassifier", "VariationalGPClassifier"]
