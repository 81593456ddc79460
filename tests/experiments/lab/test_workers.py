"""Processes side by side: the same results in the same order, and none that outlives the first."""

import os
import signal
import subprocess
import sys
import time
from operator import pow

import pytest
import torch

from gaussify.experiments._lab._workers import worker_processes

SLEEPERS = """
import os, time, torch
from gaussify.experiments._lab._workers import worker_processes

def report(number):
    print(os.getpid(), flush=True)
    time.sleep(600)

if __name__ == "__main__":
    torch.set_num_threads(2)
    with worker_processes(20) as over:
        list(over(report, range(20)))
"""


@pytest.fixture
def two_threads():
    n_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(n_threads)


def test_results_come_in_order_from_processes_of_one_thread(two_threads):
    with worker_processes(20, 2) as over:
        assert list(over(pow, range(20))) == [2**number for number in range(20)]
        assert len(set(over(_one_thread_of, range(20)))) <= 2


def _one_thread_of(two: int, number: int) -> int:
    assert torch.get_num_threads() == 1
    return os.getpid()


def test_few_calls_stay_in_this_process(two_threads):
    with worker_processes(3) as over:
        assert set(over(lambda number: os.getpid(), range(3))) == {os.getpid()}


@pytest.mark.parametrize(
    "end", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)], ids=lambda end: end.name
)
def test_no_process_outlives_a_run_that_is_killed(end, tmp_path):
    script = tmp_path / "sleepers.py"
    script.write_text(SLEEPERS)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as first:
        workers = [int(first.stdout.readline()) for _ in range(2)]
        assert len({*workers, first.pid}) == 3
        first.send_signal(end)
    for _ in range(100):
        if not any(is_alive(worker) for worker in workers):
            return
        time.sleep(0.1)
    pytest.fail("a worker is left")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
