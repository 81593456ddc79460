import math
import os

from hypothesis import settings

import first_calls

# Some virtual machines announce AMX without having it: bfloat16 would end in an illegal instruction
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# the machine is noisy: no deadline, and the same examples each time
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("thorough", settings.get_profile("repeatable"), max_examples=200)  # of 'make test-all'
settings.load_profile("repeatable")

# Here, since nothing has imported gaussify yet. 'make test-all' sets the variable.
FIRST_CALLS = first_calls.install(most=math.inf if os.environ.get("GAUSSIFY_TEST_ALL_CALLS") else 16)


def pytest_configure(config):
    config.pluginmanager.register(FIRST_CALLS, "first-calls")
