"""Gaussian process classification as regression on matched targets."""
