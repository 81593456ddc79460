"""Gaussian process classification as regression on matched targets."""

from gaussify.gp._classifier import GPClassifier

__all__ = ["GPClassifier"]
