"""Learning hyperparameters: which searches a fit runs, and what each of them maximises.

Read ``_schedule.py`` first: it orders the searches of a fit and keeps the best. ``_hyperparameters.py`` runs one search
over kernel, inducing points and alpha_eps; ``_variational.py`` trains a free posterior on minibatches instead.
"""
