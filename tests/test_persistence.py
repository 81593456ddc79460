"""Model files: whole or refused, old or new, and never executed."""

import json
import os
import pickle
import stat
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch.testing import assert_close

from gaussify import __version__
from gaussify._persistence import read_model, write_model
from gaussify.exceptions import GaussifyError, InvalidArgumentError, ModelFileError

KIND, FORMAT = "Toy", 2
CONFIG = {"params": {"alpha_eps": 0.1, "name": "oak"}, "limit": float("inf"), "classes": [1, "é"], "nothing": None}
TENSORS = {
    "gram": torch.arange(6, dtype=torch.float64).reshape(2, 3),
    "key": torch.tensor([2**62, -1]),
    "number": torch.tensor(0.5, dtype=torch.float64),
    "empty": torch.zeros(0, 3, dtype=torch.float64),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.gaussify"
    write_model(path, KIND, FORMAT, CONFIG, TENSORS)
    return path


def read(path: Path):
    return read_model(path, KIND, FORMAT)


def test_what_is_read_is_what_was_written(path):
    config, tensors = read(path)
    assert config == CONFIG
    assert_close(tensors, TENSORS, rtol=0, atol=0)


def test_the_same_model_has_the_same_bytes(path, tmp_path):
    write_model(tmp_path / "again", KIND, FORMAT, dict(reversed(CONFIG.items())), dict(reversed(TENSORS.items())))
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_tensors_that_are_views_or_need_gradients_can_be_written(tmp_path):
    tensors = {"view": torch.arange(6.0).reshape(2, 3).mT, "leaf": torch.ones(2, requires_grad=True)}
    write_model(tmp_path / "model", KIND, FORMAT, {}, tensors)
    assert_close(read(tmp_path / "model")[1], {"view": tensors["view"], "leaf": torch.ones(2)}, rtol=0, atol=0)


def test_an_older_format_can_be_read(path):
    assert read_model(path, KIND, FORMAT + 1)[0] == CONFIG


# --- files that are not such a model -------------------------------------------------------------------------------


def test_a_file_cut_short_anywhere_is_refused(path):
    data = path.read_bytes()
    for length in [*range(0, len(data), 7), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(ModelFileError, match=r"model\.gaussify .*(holds no model|was altered)"):
            read(path)


def test_a_file_with_something_behind_it_is_refused(path):
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ModelFileError, match="holds no model"):
        read(path)


def test_a_flipped_bit_is_refused_or_changes_nothing(path):
    data, refused = path.read_bytes(), 0
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            config, tensors = read(path)
        except ModelFileError:
            refused += 1
        else:  # a part that says nothing about the model, such as the version of gaussify that wrote it
            assert config == CONFIG
            assert_close(tensors, TENSORS, rtol=0, atol=0)
    assert refused > 0.97 * len(data)


def test_a_newer_format_is_refused_with_the_version_that_wrote_it(path):
    write_model(path, KIND, FORMAT + 1, CONFIG, TENSORS)
    with pytest.raises(ModelFileError, match=f"gaussify {__version__} in format 3; .* up to 2. Update gaussify"):
        read(path)


def test_another_kind_is_refused_with_the_way_to_load_it(path):
    with pytest.raises(ModelFileError, match=r"holds a Toy, not a Other: load it with Toy\.load"):
        read_model(path, "Other", FORMAT)


def test_altered_numbers_are_refused(path):
    data = path.read_bytes()
    path.write_bytes(data[:-8] + struct.pack("<d", 7.0))
    with pytest.raises(ModelFileError, match="altered after it was saved"):
        read(path)


@pytest.mark.parametrize("edit", [(": 0.1", ": 0.2"), ("oak", "elm"), ("Infinity", "Infinite")], ids=str)
def test_altered_configuration_is_refused(path, edit):
    before, after = (text.encode() for text in edit)
    data = path.read_bytes()
    assert before in data
    path.write_bytes(data.replace(before, after, 1))
    with pytest.raises(ModelFileError):
        read(path)


OTHER_FILES = {
    "empty": b"",
    "text": b"not a model at all, but long enough to hold a header of some kind\n" * 5,
    "json": json.dumps({"kind": KIND}).encode(),
    "huge-header": struct.pack("<Q", 2**63) + b"{}",
    "zeros": bytes(1000),
    "nested": struct.pack("<Q", 100_000) + b"[" * 100_000,
}


@pytest.mark.parametrize("content", OTHER_FILES.values(), ids=OTHER_FILES)
def test_a_file_of_something_else_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"model\.gaussify holds no model of gaussify"):
        read(path)


@pytest.mark.parametrize(
    "header",
    ["{}", "[]", "3", "not json", '{"kind": "Toy", "format": "x"}', "[" * 100_000],
    ids=["empty", "list", "number", "text", "format", "nested"],
)
def test_safetensors_without_a_proper_header_are_refused(path, header):
    save_file(TENSORS, path, {"gaussify": header})
    with pytest.raises(ModelFileError, match="holds no model"):
        read(path)


def test_safetensors_of_another_program_are_refused(path):
    save_file(TENSORS, path)
    with pytest.raises(ModelFileError, match="holds no model"):
        read(path)


class Bomb:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("writer", [lambda b, p: p.write_bytes(pickle.dumps(b)), torch.save], ids=["pickle", "torch"])
def test_a_pickle_is_refused_and_not_executed(path, writer, tmp_path):
    trace = tmp_path / "was-executed"
    writer(Bomb(trace), path)
    with pytest.raises(ModelFileError, match="holds no model"):
        read(path)
    assert not trace.exists()
    pickle.loads(pickle.dumps(Bomb(trace)))  # the trap works
    assert trace.exists()


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no model file '.*nowhere'\. Check the path"):
        read(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError):
        read(tmp_path)


def test_errors_of_files_are_value_errors_of_gaussify():
    assert issubclass(ModelFileError, GaussifyError)
    assert issubclass(ModelFileError, ValueError)


# --- writing -------------------------------------------------------------------------------------------------------


def test_a_missing_folder_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_model(tmp_path / "nowhere" / "model", KIND, FORMAT, CONFIG, TENSORS)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["disk-full", "interrupt"])
def test_a_failed_write_leaves_the_old_file_and_no_other(path, failing, error, monkeypatch):
    before = path.read_bytes()

    def fail(*args: object) -> None:
        raise error

    monkeypatch.setattr(f"os.{failing}", fail)
    with pytest.raises(type(error)):
        write_model(path, KIND, FORMAT, {"new": 1}, {})
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_configuration_that_json_cannot_hold_is_refused_before_anything_is_written(path):
    before = path.read_bytes()
    with pytest.raises(InvalidArgumentError, match="A parameter of this Toy cannot be saved"):
        write_model(path, KIND, FORMAT, {"function": len}, {})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_model_replaces_the_one_before_and_leaves_no_other_file(path):
    write_model(path, KIND, FORMAT, {"new": 1}, {"one": torch.ones(1)})
    assert read(path)[0] == {"new": 1}
    assert os.listdir(path.parent) == [path.name]


def test_files_have_the_permissions_that_the_umask_leaves(path):
    umask = os.umask(0o027)
    try:
        write_model(path, KIND, FORMAT, CONFIG, TENSORS)
    finally:
        os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_paths_may_be_text(tmp_path):
    write_model(str(tmp_path / "model"), KIND, FORMAT, CONFIG, TENSORS)
    assert read_model(str(tmp_path / "model"), KIND, FORMAT)[0] == CONFIG
