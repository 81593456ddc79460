import os

import pytest
from hypothesis import settings

# Some virtual machines announce AMX without having it: bfloat16 would end in an illegal instruction
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# the machine is noisy: no deadline, and the same examples each time
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("thorough", settings.get_profile("repeatable"), max_examples=200)  # of 'make test-all'
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items):
    """Skip the examples of kernels, which call them, where an installation has none."""
    of_kernels = ("gaussify.nn._fused.", "gaussify.nn._operators.")
    examples = [item for item in items if item.name.startswith(of_kernels)]
    if examples:
        from gaussify.nn import _operators

        if not _operators.HAS_OPERATION:
            for item in examples:
                item.add_marker(pytest.mark.skip(reason="kernels need a C compiler, and their operations torch 2.10"))
