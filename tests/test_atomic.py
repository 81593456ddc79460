"""Files that are whole or not there."""

import os
import subprocess
import sys
import threading
import time

import pytest

from gaussify._atomic import only_one, replacing

WRITE = """
import os, signal, sys
from pathlib import Path
from gaussify._atomic import replacing
with replacing(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def age(path, seconds=3600.0):
    os.utime(path, (time.time() - seconds,) * 2)


@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGKILL")
def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    path = tmp_path / "out [1].csv"
    path.write_bytes(b"old")
    assert subprocess.run([sys.executable, "-c", WRITE, str(path)], check=False).returncode < 0
    (left,) = (own for own in tmp_path.iterdir() if own != path)
    assert (left.read_bytes(), path.read_bytes()) == (b"half", b"old")
    age(left)
    with replacing(path) as file:
        file.write(b"new")
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"new"


def test_who_is_slow_is_not_disturbed(tmp_path):
    path = tmp_path / "out.csv"
    with replacing(path) as slow:
        slow.write(b"slow")
        slow.flush()
        age(slow.name)
        with replacing(path) as quick:
            quick.write(b"quick")
        assert path.read_bytes() == b"quick"
    assert path.read_bytes() == b"slow"


def test_files_of_others_stay(tmp_path):
    others = [tmp_path / name for name in (".out.csv.backup", ".out.csv.0123456789abcdeg", ".our.csv.0123456789abcdef")]
    fresh = tmp_path / ".out.csv.0123456789abcdef"  # whose writer may not have locked it yet
    for own in others:
        own.write_bytes(b"")
        age(own)
    fresh.write_bytes(b"")
    with replacing(tmp_path / "out.csv"):
        pass
    assert {own for own in tmp_path.iterdir() if own.name.startswith(".")} == {*others, fresh}


@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be held")
def test_one_at_a_time_reads_and_replaces(tmp_path):
    path = tmp_path / "count"
    path.write_text("0")

    def count():
        for _ in range(10):
            with only_one(tmp_path):
                value = int(path.read_text())
                time.sleep(0.001)
                with replacing(path) as file:
                    file.write(str(value + 1).encode())

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() == "40"


def test_a_folder_that_is_not_there_is_for_others_to_explain(tmp_path):
    with pytest.raises(FileNotFoundError, match="model"), only_one(tmp_path / "nothing"):
        (tmp_path / "nothing" / "model").read_bytes()
