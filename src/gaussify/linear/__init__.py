"""Linear models: Bayesian logistic regression in closed form, and the baselines of the paper's streaming section."""

from gaussify.linear._classifier import BayesianLogisticRegression

__all__ = ["BayesianLogisticRegression"]
