"""MNIST and FashionMNIST (idx files), and CIFAR-10."""

import io
import math
import struct
import tarfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, Shaped, UInt8

from gaussify.datasets._files import check_sha256, damaged, download, find, obtain, unpack


class Images(NamedTuple):
    """Images and labels, for training and for testing."""

    X_train: UInt8[np.ndarray, "n ..."]
    y_train: Int64[np.ndarray, " n"]
    X_test: UInt8[np.ndarray, "m ..."]
    y_test: Int64[np.ndarray, " m"]


# In the order of the fields of Images. The checksums are of what the gzip files hold, for those of different
# distributors differ in their headers.
IDX_SHA256 = {
    "mnist": {
        "train-images-idx3-ubyte.gz": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte.gz": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte.gz": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte.gz": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    "fashion-mnist": {
        "train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
}
IDX_URL = {
    "mnist": "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "fashion-mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",  # its own site; checksummed
}
# Where Debian's package dataset-fashion-mnist installs its files.
IDX_ELSEWHERE = {"mnist": [], "fashion-mnist": [Path("/usr/share/datasets/fashion-mnist")]}
_IDX_REMEDY = {
    "mnist": "put the four idx files of MNIST there.",
    "fashion-mnist": "install Debian's package dataset-fashion-mnist, or put the four idx files there.",
}

CIFAR10_SHA256 = {
    "cifar10_train20k_images.npy.xz": "e80c4ac8be7ebac2ceb71a53da6d4259ee25152858cef204e5879da38ecd492a",
    "cifar10_test_images.npy.xz": "6adf0c1593cfbb38c2e68628f1ed4497036a95ce7cd25d5e2185c8ea40f49cd3",
    "cifar10_labels.npz": "00ca98e38e06dd4f343f6e13b1e776e3b9f11af9146a4e2d50a6d4b70d5dc71a",
    "cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
}
_CIFAR10_SUBSET = {
    "X_train": "cifar10_train20k_images.npy.xz",
    "X_test": "cifar10_test_images.npy.xz",
    "y": "cifar10_labels.npz",
}
_CIFAR10_ARCHIVE = "cifar-10-binary.tar.gz"
_CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/"


def load_idx(dataset: str, *, may_download: bool) -> Images:
    """Return MNIST or FashionMNIST, images of 28 × 28 pixels."""
    arrays = [_idx_file(dataset, name, may_download=may_download) for name in IDX_SHA256[dataset]]
    X_train, y_train, X_test, y_test = arrays
    return Images(X_train, y_train.astype(np.int64), X_test, y_test.astype(np.int64))


def _idx_file(dataset: str, name: str, *, may_download: bool) -> Shaped[np.ndarray, "..."]:
    def parse(packed: bytes, source: str) -> Shaped[np.ndarray, "..."]:
        content = unpack(packed, name=source, suffix=".gz")
        check_sha256(content, IDX_SHA256[dataset][name], name=source)
        return parse_idx(content, name=source)

    return obtain(
        dataset,
        f"{dataset}/{name}",
        parse,
        remedy=_IDX_REMEDY[dataset],
        fetch=partial(download, IDX_URL[dataset] + name) if may_download else None,
        elsewhere=IDX_ELSEWHERE[dataset],
    )


def parse_idx(content: bytes, *, name: str) -> Shaped[np.ndarray, "..."]:
    """Return the array of unsigned bytes of an idx file: 0, 0, type, number of axes, their lengths, the values.

    Examples
    --------
    >>> parse_idx(bytes([0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 7, 8, 9]), name="images")
    array([[7, 8, 9]], dtype=uint8)
    """
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise damaged(name, "it does not begin as an idx file of unsigned bytes does")
    start = 4 + 4 * content[3]
    shape = struct.unpack(f">{content[3]}I", content[4:start]) if len(content) >= start else None
    if shape is None or len(content) != start + math.prod(shape):
        raise damaged(name, f"it has {len(content)} bytes, and its header speaks of {shape or 'more'}")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape).copy()


def load_cifar10(*, may_download: bool) -> Images:
    """Return CIFAR-10, images of 32 × 32 pixels and three channels.

    Where the subset of 20 000 training images is at hand, these; otherwise all 50 000, from the archive of the data
    set's own site.
    """
    if find(_CIFAR10_SUBSET["X_train"]) is not None:
        return _load_cifar10_subset()

    def parse(content: bytes, source: str) -> Images:
        check_sha256(content, CIFAR10_SHA256[_CIFAR10_ARCHIVE], name=source)
        return parse_cifar10_archive(content)

    return obtain(
        "cifar10",
        _CIFAR10_ARCHIVE,
        parse,
        remedy=f"put it there from {_CIFAR10_URL}cifar.html (binary version).",
        fetch=partial(download, _CIFAR10_URL + _CIFAR10_ARCHIVE) if may_download else None,
    )


def _load_cifar10_subset() -> Images:
    def parse(file: str, content: bytes, source: str) -> bytes:
        check_sha256(content, CIFAR10_SHA256[file], name=source)
        return content if file.endswith(".npz") else unpack(content, name=source, suffix=".xz")

    remedy = f"put it next to {_CIFAR10_SUBSET['X_train']}."
    X_train, X_test, y = (
        np.load(
            io.BytesIO(obtain("cifar10", file, partial(parse, file), remedy=remedy, fetch=None)), allow_pickle=False
        )
        for file in _CIFAR10_SUBSET.values()
    )
    return Images(X_train, y["y_train"], X_test, y["y_test"])


def parse_cifar10_archive(content: bytes) -> Images:
    """Return the images and labels of the binary version of CIFAR-10.

    Each of its six files is a row of records: a label, and the red, the green and the blue pixels.
    """
    batches: dict[str, np.ndarray] = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None and member.name.endswith(".bin"):
                batches[Path(member.name).name] = np.frombuffer(file.read(), dtype=np.uint8).reshape(-1, 3073)
    train = np.concatenate([batches[f"data_batch_{number}.bin"] for number in range(1, 6)])
    return Images(*_split_records(train), *_split_records(batches["test_batch.bin"]))


def _split_records(records: UInt8[np.ndarray, "n 3073"]) -> tuple[np.ndarray, np.ndarray]:
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), records[:, 0].astype(np.int64)
