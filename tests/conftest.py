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
    examples = [item for item in items if item.name.startswith("gaussify.nn._fused.")]
    if examples:
        from gaussify.nn import _fused

        if not _fused.HAS_KERNELS:
            for item in examples:
                item.add_marker(pytest.mark.skip(reason="gaussify was installed without a C compiler"))
