"""Images: MNIST and FashionMNIST (idx files), CIFAR-10, CIFAR-100 and SVHN."""

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


# In the order of the fields of Images. The checksums are those of the uncompressed files, as gzip headers differ
# between distributors.
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
    "fashion-mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",  # without https; checksummed
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
_CIFAR_URL = "https://www.cs.toronto.edu/~kriz/"

CIFAR100_SHA256 = {"cifar-100-binary.tar.gz": "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"}
SVHN_SHA256 = {
    "svhn/train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
    "svhn/test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
}
_SVHN_URL = "http://ufldl.stanford.edu/housenumbers/"  # without https; checksummed


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
        raise damaged(name, f"it has {len(content)} bytes, and its header announces {shape or 'more'}")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape).copy()


def load_cifar10(*, may_download: bool) -> Images:
    """Return CIFAR-10, images of 32 × 32 pixels and three channels.

    If the file with a subset of 20 000 training images is found, these are returned. Otherwise all 50 000 come from the
    archive on the authors' site.
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
        remedy=f"put it there from {_CIFAR_URL}cifar.html (binary version).",
        fetch=partial(download, _CIFAR_URL + _CIFAR10_ARCHIVE) if may_download else None,
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

    Each of its six files is a list of records: a label, then red, green and blue pixels.
    """
    files = _files_of_archive(content)
    train = b"".join(files[f"data_batch_{number}.bin"] for number in range(1, 6))
    return Images(*_split_records(train, n_labels=1), *_split_records(files["test_batch.bin"], n_labels=1))


def load_cifar100(*, may_download: bool) -> tuple[Images, tuple[str, ...]]:
    """Return CIFAR-100 with its fine classes, and their names."""
    ((file, sha256),) = CIFAR100_SHA256.items()

    def parse(content: bytes, source: str) -> tuple[Images, tuple[str, ...]]:
        check_sha256(content, sha256, name=source)
        return parse_cifar100_archive(content)

    return obtain(
        "cifar100",
        file,
        parse,
        remedy=f"put it there from {_CIFAR_URL}cifar.html (binary version).",
        fetch=partial(download, _CIFAR_URL + file) if may_download else None,
    )


def parse_cifar100_archive(content: bytes) -> tuple[Images, tuple[str, ...]]:
    """Return images, fine labels and class names of the binary CIFAR-100; its records begin with a coarse label."""
    files = _files_of_archive(content)
    names = tuple(files["fine_label_names.txt"].decode().split())
    train, test = (_split_records(files[name], n_labels=2) for name in ("train.bin", "test.bin"))
    return Images(*train, *test), names


def _files_of_archive(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        opened = ((member.name, archive.extractfile(member)) for member in archive)
        return {Path(name).name: file.read() for name, file in opened if file is not None}


def _split_records(content: bytes, *, n_labels: int) -> tuple[UInt8[np.ndarray, "n 32 32 3"], Int64[np.ndarray, " n"]]:
    """Return the images of records, and the last of the labels that precede each image."""
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, n_labels + 3072)
    images = records[:, n_labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), records[:, n_labels - 1].astype(np.int64)


def load_svhn(*, may_download: bool) -> Images:
    """Return SVHN, house numbers cropped to 32 × 32 pixels around one digit."""

    def part(file: str) -> tuple[np.ndarray, np.ndarray]:
        def parse(content: bytes, source: str) -> tuple[np.ndarray, np.ndarray]:
            check_sha256(content, SVHN_SHA256[file], name=source)
            return parse_svhn(content)

        return obtain(
            "svhn",
            file,
            parse,
            remedy=f"put it there from {_SVHN_URL} (format 2).",
            fetch=partial(download, _SVHN_URL + Path(file).name) if may_download else None,
        )

    train, test = map(part, SVHN_SHA256)
    return Images(*train, *test)


def parse_svhn(content: bytes) -> tuple[UInt8[np.ndarray, "n 32 32 3"], Int64[np.ndarray, " n"]]:
    """Return the images of a MATLAB file, where the last axis counts them, and their digits, where 10 means 0."""
    from scipy.io import loadmat

    arrays = loadmat(io.BytesIO(content))
    return np.ascontiguousarray(arrays["X"].transpose(3, 0, 1, 2)), arrays["y"].ravel().astype(np.int64) % 10
