import os

from hypothesis import settings

# Some virtual machines announce AMX without having it: bfloat16 would end in an illegal instruction
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# the machine is noisy: no deadline, and the same examples each time
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")
