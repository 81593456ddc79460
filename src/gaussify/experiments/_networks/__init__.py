"""Networks that several experiments train: architectures, images, and training that can be killed and resumed.

Used by experiments of the paper and by benchmarks. Begin with ``_training.py``.
"""
