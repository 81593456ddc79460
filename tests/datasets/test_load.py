import csv
import gzip
import hashlib
import io
import lzma
import os
import struct
import tarfile
import urllib.error
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from gaussify import datasets
from gaussify.datasets import DatasetError, _files, _images, _tables, _text
from gaussify.exceptions import GaussifyError, InvalidArgumentError

IDX_FILES = list(_images.IDX_SHA256["mnist"])


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Empty folders for data and cache, no folder of Debian's, and a network that must not be used."""
    data, cache = tmp_path / "data", tmp_path / "cache"
    data.mkdir()
    monkeypatch.setenv("GAUSSIFY_DATA", str(data))
    monkeypatch.setenv("GAUSSIFY_CACHE", str(cache))
    monkeypatch.setattr(_images, "IDX_ELSEWHERE", {"mnist": [], "fashion-mnist": [tmp_path / "debian"]})
    monkeypatch.setattr(_files.urllib.request, "urlopen", lambda *args, **kwargs: pytest.fail("the network was used"))
    return data, cache


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def small_idx_files(monkeypatch):
    """Contents of four small idx files, whose checksums are made the known ones."""
    rng = np.random.default_rng(0)
    shapes = [(6, 28, 28), (6,), (4, 28, 28), (4,)]
    arrays = {name: rng.integers(0, 10, shape, dtype=np.uint8) for name, shape in zip(IDX_FILES, shapes, strict=True)}
    checksums = {name: hashlib.sha256(idx(array)).hexdigest() for name, array in arrays.items()}
    monkeypatch.setattr(_images, "IDX_SHA256", {"mnist": checksums, "fashion-mnist": checksums})
    return arrays


def write_idx_files(folder, arrays):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        (folder / name).write_bytes(gzip.compress(idx(array)))


def answer_with(monkeypatch, contents):
    """Answer requests from a dictionary by the last part of the address, and return the list of those asked for."""
    asked = []

    def urlopen(url, timeout):
        asked.append(url)
        name = url.rsplit("/")[-1]
        if name not in contents:
            raise urllib.error.URLError("no route")
        return io.BytesIO(contents[name])

    monkeypatch.setattr(_files.urllib.request, "urlopen", urlopen)
    return asked


def small_table(monkeypatch, name="letter"):
    X, y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 2, 0, 1, 2])
    table = _tables.Table("small.npz", _tables.row_checksum(X, y), ("a", "b", "c"), "the table of nobody", 6)
    monkeypatch.setitem(_tables.TABLES, name, table)
    return X, y


def test_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(InvalidArgumentError, match=r"must be one of 'mnist', .*; got 'mnits'"):
        datasets.load("mnits")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_files_are_read_from_the_named_folder(name, folders, monkeypatch):
    arrays = small_idx_files(monkeypatch)
    write_idx_files(folders[0] / name, arrays)
    data = datasets.load(name)
    for found, file in zip((data.X_train, data.y_train, data.X_test, data.y_test), IDX_FILES, strict=True):
        np.testing.assert_array_equal(found, arrays[file])
    assert data.y_train.dtype == np.int64
    assert len(data.class_names) == 10
    assert data.citation
    assert data.licence


def test_idx_files_are_read_from_the_cache(folders, monkeypatch):
    write_idx_files(folders[1] / "mnist", small_idx_files(monkeypatch))
    assert datasets.load("mnist").X_train.shape == (6, 28, 28)


def test_fashion_mnist_is_found_where_debian_installs_it(folders, tmp_path, monkeypatch):
    write_idx_files(tmp_path / "debian", small_idx_files(monkeypatch))
    assert datasets.load("fashion-mnist").X_test.shape == (4, 28, 28)


def test_gzip_headers_do_not_matter(folders, monkeypatch):
    arrays = small_idx_files(monkeypatch)
    write_idx_files(folders[0] / "mnist", arrays)
    path = folders[0] / "mnist" / IDX_FILES[0]
    with path.open("wb") as raw, gzip.GzipFile("a name", "wb", fileobj=raw, mtime=1) as file:
        file.write(idx(arrays[IDX_FILES[0]]))
    assert datasets.load("mnist").X_train.shape == (6, 28, 28)


def test_a_missing_file_is_named_with_the_folders_and_the_remedy(folders):
    with pytest.raises(DatasetError) as caught:
        datasets.load("fashion-mnist", download=False)
    message = str(caught.value)
    expected = ["fashion-mnist/train-images-idx3-ubyte.gz", *map(str, folders), "debian", "dataset-fashion-mnist"]
    assert [text for text in expected if text not in message] == []
    assert isinstance(caught.value, GaussifyError)


def test_an_unset_variable_is_mentioned(folders, monkeypatch):
    monkeypatch.delenv("GAUSSIFY_DATA")
    with pytest.raises(DatasetError, match="GAUSSIFY_DATA is not set"):
        datasets.load("drive")


@pytest.mark.parametrize("name", ["drive", "htru2", "imdb-minilm"])
def test_what_has_no_download_says_where_it_comes_from(name, folders):
    with pytest.raises(DatasetError, match=rf"Data set '{name}' needs the file .*put it there, .*https://"):
        datasets.load(name)


def test_a_truncated_gzip_file_is_refused(folders, monkeypatch):
    write_idx_files(folders[0] / "mnist", small_idx_files(monkeypatch))
    path = folders[0] / "mnist" / IDX_FILES[2]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DatasetError, match=f"{IDX_FILES[2]} is truncated or not the right file"):
        datasets.load("mnist")


def test_an_idx_file_of_another_checksum_is_refused(folders, monkeypatch):
    arrays = small_idx_files(monkeypatch)
    write_idx_files(folders[0] / "mnist", arrays | {IDX_FILES[1]: arrays[IDX_FILES[1]] + 1})
    with pytest.raises(DatasetError, match=rf"{IDX_FILES[1]} is .*SHA-256 checksum begins with"):
        datasets.load("mnist")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0",
        b"\0\0\x0d\x01\0\0\0\x01\0",
        b"\0\0\x08\x03\0\0\0\x01",
        b"\0\0\x08\x01\0\0\0\x03ab",
        b"\x1f\x8b\x08\0",
    ],
    ids=["empty", "two bytes", "floats", "half a header", "a byte short", "still packed"],
)
def test_what_is_no_idx_file_is_refused(content):
    with pytest.raises(DatasetError, match="images is truncated or not the right file"):
        _images.parse_idx(content, name="images")


def test_downloads_are_checked_and_kept(folders, monkeypatch):
    arrays = small_idx_files(monkeypatch)
    asked = answer_with(monkeypatch, {name: gzip.compress(idx(array)) for name, array in arrays.items()})
    first = datasets.load("mnist")
    assert [url.rsplit("/")[-1] for url in asked] == IDX_FILES
    np.testing.assert_array_equal(datasets.load("mnist").X_train, first.X_train)
    assert len(asked) == 4
    assert sorted(path.name for path in (folders[1] / "mnist").iterdir()) == sorted(IDX_FILES)


def test_a_wrong_download_is_refused_and_not_kept(folders, monkeypatch):
    small_idx_files(monkeypatch)
    answer_with(monkeypatch, {name: gzip.compress(b"sorry") for name in IDX_FILES})
    with pytest.raises(DatasetError, match=r"The download of mnist/train-images-idx3-ubyte\.gz is truncated or not"):
        datasets.load("mnist")
    assert not folders[1].exists()


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_a_failed_download_says_so_with_the_remedy(name, folders, monkeypatch):
    answer_with(monkeypatch, {})
    with pytest.raises(DatasetError, match=r"could not be downloaded \(.*no route.*\); (put|install) "):
        datasets.load(name)


def test_tables_are_read_from_the_named_folder(folders, monkeypatch):
    X, y = small_table(monkeypatch)
    np.savez(folders[0] / "small.npz", X=X, y=y)
    data = datasets.load("letter")
    np.testing.assert_array_equal(data.X_train, X)
    np.testing.assert_array_equal(data.y_train, y)
    assert (data.X_test, data.y_test, data.class_names) == (None, None, ("a", "b", "c"))


def test_half_precision_is_widened(folders, monkeypatch):
    X, y = small_table(monkeypatch, "imdb-minilm")
    np.savez(folders[0] / "small.npz", X=X.astype(np.float16), y=y)
    assert datasets.load("imdb-minilm").X_train.dtype == np.float32


@pytest.mark.parametrize("damage", ["truncated", "text", "no labels", "another row", "one axis", "pickle"])
def test_damaged_tables_are_refused(damage, folders, monkeypatch):
    X, y = small_table(monkeypatch)
    path = folders[0] / "small.npz"
    arrays = {
        "no labels": {"X": X},
        "another row": {"X": X + (np.arange(6) == 3)[:, None], "y": y},
        "one axis": {"X": X[:, 0], "y": y},
        "pickle": {"X": X.astype(object), "y": y},
    }
    np.savez(path, **arrays.get(damage, {"X": X, "y": y}))
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:200])
    elif damage == "text":
        path.write_text("X,y\n")
    with pytest.raises(DatasetError, match=r"small\.npz is truncated or not the right file"):
        datasets.load("letter")


def test_a_table_is_fetched_from_openml_once(folders, monkeypatch):
    X, y = small_table(monkeypatch)
    asked = []

    def fetch_openml(*, data_id, **options):
        asked.append(data_id)
        return X[::-1], np.array(["p", "q", "r"], dtype=object)[y[::-1]]

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch_openml)
    for _ in range(2):
        np.testing.assert_array_equal(datasets.load("letter").X_train, X[::-1])
    assert asked == [6]


def test_another_table_of_openml_is_refused(folders, monkeypatch):
    X, y = small_table(monkeypatch)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda **options: (X, y[::-1].astype(str)))
    with pytest.raises(DatasetError, match=r"The download of small\.npz is truncated or not the right file"):
        datasets.load("letter")


def test_openml_out_of_reach_is_one_sentence(folders, monkeypatch):
    small_table(monkeypatch)

    def fetch_openml(**options):
        raise urllib.error.URLError("no route")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch_openml)
    with pytest.raises(DatasetError, match=r"could not be downloaded \(.*no route.*\); put it there"):
        datasets.load("letter")


def test_the_subset_of_cifar10_is_read_and_checked(folders, monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 256, (5, 32, 32, 3), dtype=np.uint8), np.arange(5)
    image_file, label_file = io.BytesIO(), io.BytesIO()
    np.save(image_file, X)
    np.savez(label_file, y_train=y, y_test=y)
    packed = lzma.compress(image_file.getvalue())
    for file in ("cifar10_train20k_images.npy.xz", "cifar10_test_images.npy.xz", "cifar10_labels.npz"):
        content = label_file.getvalue() if file.endswith(".npz") else packed
        (folders[0] / file).write_bytes(content)
        monkeypatch.setitem(_images.CIFAR10_SHA256, file, hashlib.sha256(content).hexdigest())
    data = datasets.load("cifar10")
    np.testing.assert_array_equal(data.X_test, X)
    np.testing.assert_array_equal(data.y_train, y)
    (folders[0] / "cifar10_test_images.npy.xz").write_bytes(packed[:-8])
    with pytest.raises(DatasetError, match=r"cifar10_test_images\.npy\.xz is truncated"):
        datasets.load("cifar10")
    (folders[0] / "cifar10_labels.npz").unlink()
    (folders[0] / "cifar10_test_images.npy.xz").write_bytes(packed)
    with pytest.raises(DatasetError, match=r"needs the file cifar10_labels\.npz"):
        datasets.load("cifar10")


def packed(files):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, part in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(part)
            archive.addfile(member, io.BytesIO(part))
    return content.getvalue()


def test_the_archive_of_cifar10_gives_channels_last(folders, monkeypatch):
    record = bytes([7, *np.repeat([10, 20, 30], 1024)])
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    content = packed({f"cifar-10-batches-bin/{name}": 2 * record for name in names})
    file = "cifar-10-binary.tar.gz"
    monkeypatch.setitem(_images.CIFAR10_SHA256, file, hashlib.sha256(content).hexdigest())
    asked = answer_with(monkeypatch, {file: content})
    for _ in range(2):
        data = datasets.load("cifar10")
    assert len(asked) == 1
    assert data.X_train.shape == (10, 32, 32, 3)
    assert data.X_test.shape == (2, 32, 32, 3)
    np.testing.assert_array_equal(np.unique(data.X_train, axis=0)[0, 5, 5], [10, 20, 30])
    assert set(data.y_train) == {7}


def test_the_archive_of_cifar100_gives_fine_classes(folders, monkeypatch):
    record = bytes([3, 1, *np.repeat([10, 20, 30], 1024)])
    files = {"train.bin": 3 * record, "test.bin": record, "fine_label_names.txt": b"apple\nbaby\n"}
    content = packed({f"cifar-100-binary/{name}": part for name, part in files.items()})
    file = "cifar-100-binary.tar.gz"
    monkeypatch.setitem(_images.CIFAR100_SHA256, file, hashlib.sha256(content).hexdigest())
    asked = answer_with(monkeypatch, {file: content})
    for _ in range(2):
        data = datasets.load("cifar100")
    assert len(asked) == 1
    assert (data.X_train.shape, data.X_test.shape) == ((3, 32, 32, 3), (1, 32, 32, 3))
    np.testing.assert_array_equal(data.X_test[0, 5, 5], [10, 20, 30])
    assert {data.class_names[label] for label in data.y_train} == {"baby"}


def test_svhn_is_read_from_matlab_files(folders, monkeypatch):
    X = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
    content = io.BytesIO()
    savemat(content, {"X": X, "y": np.array([[1], [10], [9], [10]])})
    for file in _images.SVHN_SHA256:
        path = folders[0] / file
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.getvalue())
        monkeypatch.setitem(_images.SVHN_SHA256, file, hashlib.sha256(content.getvalue()).hexdigest())
    data = datasets.load("svhn")
    np.testing.assert_array_equal(data.X_train[1], X[..., 1])
    np.testing.assert_array_equal(data.y_test, [1, 0, 9, 0])


def test_reviews_are_the_same_from_a_table_and_from_the_archive(folders, monkeypatch):
    rows = [("train", "pos", "so\ngood"), ("train", "neg", 'a "bad" one, it is'), ("test", "neg", "größer")]
    others = {"aclImdb/train/unsup/0_0.txt": b"unknown", "aclImdb/imdb.vocab": b"so"}
    archive = packed(others | {f"aclImdb/{split}/{kind}/0_9.txt": text.encode() for split, kind, text in rows})
    lines = io.StringIO()
    writer = csv.writer(lines)
    writer.writerows([("split", "label", "text"), *((s, int(k == "pos"), t) for s, k, t in sorted(rows))])
    table = lzma.compress(lines.getvalue().encode())
    contents = {"aclImdb_v1.tar.gz": archive, "imdb.csv.xz": table}
    monkeypatch.setattr(_text, "IMDB_SHA256", {n: hashlib.sha256(c).hexdigest() for n, c in contents.items()})
    answer_with(monkeypatch, {"aclImdb_v1.tar.gz": archive})
    from_archive = datasets.load("imdb")
    (folders[0] / "imdb.csv.xz").write_bytes(table)
    from_table = datasets.load("imdb")
    for own, other in zip(from_archive[1:5], from_table[1:5], strict=True):
        np.testing.assert_array_equal(own, other)
    assert list(from_table.X_train) == ['a "bad" one, it is', "so\ngood"]
    assert list(from_table.y_train) == [0, 1]
    (folders[0] / "imdb.csv.xz").write_bytes(table[:-3])
    with pytest.raises(DatasetError, match=r"imdb\.csv\.xz is truncated"):
        datasets.load("imdb")


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("GAUSSIFY_CACHE", str(tmp_path / "own"))
    assert datasets.cache_folder() == tmp_path / "own"
    monkeypatch.delenv("GAUSSIFY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert datasets.cache_folder() == tmp_path / "gaussify"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert datasets.cache_folder() == tmp_path / ".cache" / "gaussify"


def test_a_write_that_fails_leaves_the_old_content(tmp_path, monkeypatch):
    path = tmp_path / "file"
    _files.write_bytes(path, b"old")

    def fail(source, target):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        _files.write_bytes(path, b"new")
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("file", b"old")]


SHAPES = {
    "mnist": ((60000, 28, 28), (10000, 28, 28), 10),
    "fashion-mnist": ((60000, 28, 28), (10000, 28, 28), 10),
    "letter": ((20000, 16), None, 26),
    "magic": ((19020, 10), None, 2),
    "htru2": ((17898, 8), None, 2),
    "eeg": ((14980, 14), None, 2),
    "drive": ((58509, 48), None, 11),
    "ionosphere": ((351, 34), None, 2),
    "imdb-minilm": ((20000, 384), None, 2),
    "cifar10": (None, (10000, 32, 32, 3), 10),
    "cifar100": ((50000, 32, 32, 3), (10000, 32, 32, 3), 100),
    "svhn": ((73257, 32, 32, 3), (26032, 32, 32, 3), 10),
    "imdb": ((25000,), (25000,), 2),
}


def test_every_name_has_a_row_in_the_table_of_shapes():
    assert set(SHAPES) == {name.value for name in datasets.DatasetName}


@pytest.mark.parametrize("name", SHAPES)
def test_real_files_have_the_known_shapes(name):
    try:
        data = datasets.load(name, download=False)
    except DatasetError as error:
        if "needs the file" not in str(error):
            raise
        pytest.skip(f"no files of {name}: set GAUSSIFY_DATA to the folder that has them")
    train, test, n_classes = SHAPES[name]
    assert train is None or data.X_train.shape == train
    assert (None if data.X_test is None else data.X_test.shape) == test
    assert len(data.y_train) == len(data.X_train)
    assert set(data.y_train) == set(range(n_classes))
    assert len(data.class_names) == n_classes


def test_magic_lists_gamma_rays_first():
    if _files.find("magic.npz") is None:
        pytest.skip("no files of magic: set GAUSSIFY_DATA to the folder that has them")
    data = datasets.load("magic", download=False)
    assert dict(zip(data.class_names, np.bincount(data.y_train), strict=True)) == {"g": 12332, "h": 6688}


def test_checksums_are_64_digits():
    known = [*_images.CIFAR10_SHA256.values(), *(table.sha256 for table in _tables.TABLES.values())]
    known += [checksum for files in _images.IDX_SHA256.values() for checksum in files.values()]
    known += [*_images.CIFAR100_SHA256.values(), *_images.SVHN_SHA256.values(), *_text.IMDB_SHA256.values()]
    assert {len(checksum) for checksum in known} == {64}
    assert len(set(known)) == len(known)


def test_the_folder_of_debian_is_searched_for_fashion_mnist_alone():
    assert {name: bool(folders) for name, folders in _images.IDX_ELSEWHERE.items()} == {
        "mnist": False,
        "fashion-mnist": True,
    }
    assert all(isinstance(folder, Path) for folder in _images.IDX_ELSEWHERE["fashion-mnist"])
