"""The laboratory: what every experiment is made of, from the registry and the runner to records, scores and figures.

It knows no experiment. Begin with ``_registry.py``, which says what an experiment is, then ``_runner.py``.
"""
