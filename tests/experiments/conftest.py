import os

import pytest
from filelock import FileLock

from gaussify.experiments import get, run


@pytest.fixture(scope="session")
def smoke_run(tmp_path_factory):
    """A function that returns the folder of an experiment's smoke run, without data sets, once for all processes."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def folder_of(name):
        with FileLock(shared / f"{name}.lock"), pytest.MonkeyPatch.context() as patch:
            patch.delenv("GAUSSIFY_DATA", raising=False)
            return run(get(name), "smoke", shared / "smoke")  # what is there is not run again

    return folder_of
