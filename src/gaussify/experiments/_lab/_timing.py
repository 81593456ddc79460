"""Timing that a noisy machine does not spoil, and memory that one process alone is charged with."""

import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

Name = TypeVar("Name", bound=Hashable)
_STATUS = Path("/proc/self/status")  # of Linux


def best_times(
    runs: Mapping[Name, Callable[[], object]], n_repeats: int, n_in_a_row: Mapping[Name, int] | None = None
) -> dict[Name, float]:
    """Return the best time of each function, in seconds, over interleaved repeats after one run to warm up.

    Interleaved, so that what else the machine does falls on all alike; compare ratios, not seconds. Functions that are
    much shorter than others may run several times, each timed, whenever it is their turn.

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
            for _ in range((n_in_a_row or {}).get(name, 1)):
                start = time.perf_counter()
                function()
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def quiet_times(
    runs: Mapping[Name, Callable[[], object]], seconds: float, *, block: float = 1e-3, turn: float = 0.02
) -> dict[Name, float]:
    """Return the time of a call of each function that one of twenty stays below, in seconds.

    For functions of microseconds to milliseconds on a machine that is never quiet for long: the functions take turns
    until the time is over, and in each turn blocks of calls of about a millisecond are timed. Calls before a turn, for
    as long as it takes, do not count: threads of the function before still wait busily for work, some ten milliseconds.
    The very best of thousands is an accident; one of twenty is not.

    Examples
    --------
    >>> times = quiet_times({"sleep": lambda: time.sleep(0.002), "nothing": lambda: None}, seconds=0.1)
    >>> times["sleep"] > times["nothing"]
    True
    """
    blocks = {}
    for name, function in runs.items():
        function()
        n_calls = max(1, round(block / max(_seconds_of(function, 1), 1e-7)))
        blocks[name] = (function, n_calls)
    times: dict[Name, list[float]] = {name: [] for name in runs}
    stop = time.perf_counter() + seconds
    while not all(times.values()) or time.perf_counter() < stop:
        for name, (function, n_calls) in blocks.items():
            start = time.perf_counter()
            while time.perf_counter() < start + turn:
                function()
            own: list[float] = []
            while not own or time.perf_counter() < start + 2.0 * turn:
                own.append(_seconds_of(function, n_calls) / n_calls)
            times[name] += own
    return {name: float(np.quantile(own, 0.05)) for name, own in times.items()}


def _seconds_of(function: Callable[[], object], n_calls: int) -> float:
    start = time.perf_counter()
    for _ in range(n_calls):
        function()
    return time.perf_counter() - start


def run_alone(module: str, function: str, *arguments: object) -> list[float]:
    """Return the numbers that a function prints in a new process; arguments are such that their repr is Python.

    Examples
    --------
    >>> run_alone("builtins", "print", 1.5, 2)
    [1.5, 2.0]
    """
    program = f"from {module} import {function}; {function}(*{arguments!r})"
    command = [sys.executable, "-c", program]
    return [float(word) for word in subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.split()]


def peak_gibibytes() -> float:
    """Return the largest memory that this process has had.

    Where there is Linux's own count, it is taken from there, since ``ru_maxrss`` of a new process begins with the peak
    of the process that started it.

    Examples
    --------
    >>> 0.0 < peak_gibibytes() < 1e3
    True
    """
    if _STATUS.exists():
        fields = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
        return int(fields["VmHWM"].split()[0]) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)
