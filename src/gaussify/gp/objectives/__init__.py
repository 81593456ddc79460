"""Objectives of sparse and exact Gaussian processes, with gradients: the mathematics of learning hyperparameters.

Read ``_collapsed.py`` first: Titsias' bound as a function of class statistics. ``_passes.py`` carries statistics up
from the rows and gradients back down to kernel and inducing points; ``_cross.py`` is the kernel between the two.
``_likelihood.py`` has the objectives that evaluate the class likelihood itself, by ``_expectation.py``.
"""
