"""Timing that a noisy machine does not spoil."""

import math
import time
from collections.abc import Callable, Mapping


def best_times(runs: Mapping[str, Callable[[], object]], n_repeats: int) -> dict[str, float]:
    """Return the best time of each function, in seconds, over interleaved repeats after one run to warm up.

    Interleaved, so that what else the machine does falls on all alike; compare ratios, not seconds.

    Examples
    --------
    >>> times = best_times({"sleep": lambda: time.sleep(0.01), "nothing": lambda: None}, n_repeats=2)
    >>> times["sleep"] > times["nothing"]
    True
    """
    best = dict.fromkeys(runs, math.inf)
    for function in runs.values():
        function()
    for _ in range(n_repeats):
        for name, function in runs.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return best
