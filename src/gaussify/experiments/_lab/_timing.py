"""Times that hold on a noisy machine, and the memory of a single process."""

import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

Name = TypeVar("Name", bound=Hashable)
_STATUS = Path("/proc/self/status")  # of Linux


def best_times(
    runs: Mapping[Name, Callable[[], object]], n_repeats: int, n_in_a_row: Mapping[Name, int] | None = None
) -> dict[Name, float]:
    """Return the best time of each function, in seconds, over interleaved repeats after one run to warm up.

    The functions take turns, so that other load on the machine affects all alike; compare ratios, not seconds.
    Functions that are much shorter than others may run several times in each turn.

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
    """Return the 5 % quantile of the time of a call of each function, in seconds.

    This suits functions of microseconds to milliseconds on a machine that is never quiet for long. The functions take
    turns until the time is over, and in each turn blocks of calls of about a millisecond are timed. Each turn begins
    with calls that do not count, because threads of the previous function still spin for some ten milliseconds. The
    best of thousands of times would be an accident; the 5 % quantile is not.

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


def steps_until(
    marks: Iterable[float], step: Callable[[float], object], seconds: float = 0.0, *, at_least: int = 0
) -> Iterator[tuple[int, float]]:
    """Take steps until each mark of training time, and yield the numbers of steps and of seconds if there were any.

    Time that passes between a yield and the next step does not count. ``step`` is called with the seconds so far.

    Examples
    --------
    >>> for n_steps, seconds in steps_until([0.05, 0.1], lambda seconds: time.sleep(0.02)):
    ...     print(n_steps)
    3
    5
    """
    n_steps = 0
    for mark in marks:
        before = n_steps
        while seconds < mark or n_steps < at_least:
            begun = time.perf_counter()
            step(seconds)
            seconds += time.perf_counter() - begun
            n_steps += 1
        if n_steps > before:
            yield n_steps, seconds


def run_alone(module: str, function: str, *arguments: object) -> list[float]:
    """Return the numbers that a function prints in a new process; it gets its arguments as their ``repr``.

    Examples
    --------
    >>> run_alone("builtins", "print", 1.5, 2)
    [1.5, 2.0]
    """
    program = f"from {module} import {function}; {function}(*{arguments!r})"
    command = [sys.executable, "-c", program]
    return [float(word) for word in subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.split()]


def peak_gibibytes() -> float:
    """Return the peak memory of this process.

    On Linux it comes from the kernel's status file, since ``ru_maxrss`` of a new process starts at the peak of its
    parent.
    """
    if _STATUS.exists():
        fields = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
        return int(fields["VmHWM"].split()[0]) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)
