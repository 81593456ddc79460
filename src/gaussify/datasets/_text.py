"""Texts: the IMDB movie reviews."""

import csv
import io
import tarfile
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, Shaped

from gaussify.datasets._files import check_sha256, download, find, obtain, unpack

IMDB_SHA256 = {
    "imdb.csv.xz": "9d891440135278bf05cb4170762776fe186ee734860bd7bb969d7bd22d529df5",
    "aclImdb_v1.tar.gz": "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
}
_TABLE, _ARCHIVE = IMDB_SHA256
_URL = "https://ai.stanford.edu/~amaas/data/sentiment/"


class Reviews(NamedTuple):
    """Texts, and labels (1 is positive), for training and for testing."""

    X_train: Shaped[np.ndarray, " n"]
    y_train: Int64[np.ndarray, " n"]
    X_test: Shaped[np.ndarray, " m"]
    y_test: Int64[np.ndarray, " m"]


def load_imdb(*, may_download: bool) -> Reviews:
    """Return the reviews, from a table in one file if it is found, otherwise from the archive on the authors' site."""
    file, read = (_TABLE, read_table) if find(_TABLE) is not None else (_ARCHIVE, read_archive)

    def parse(content: bytes, source: str) -> Reviews:
        check_sha256(content, IMDB_SHA256[file], name=source)
        return read(content)

    return obtain(
        "imdb",
        file,
        parse,
        remedy=f"put it there from {_URL}.",
        fetch=partial(download, _URL + file) if may_download else None,
    )


def read_table(content: bytes) -> Reviews:
    r"""Return the reviews of a compressed table with the columns split, label and text.

    Examples
    --------
    >>> import lzma
    >>> table = lzma.compress(b"split,label,text\ntrain,1,good\ntest,0,bad\n")
    >>> read_table(table).X_train, read_table(table).y_test
    (array(['good'], dtype=object), array([0]))
    """
    lines = io.StringIO(unpack(content, name=_TABLE, suffix=".xz").decode(), newline="")
    rows = [(row["split"], int(row["label"]), row["text"]) for row in csv.DictReader(lines)]
    return _split(rows)


def read_archive(content: bytes) -> Reviews:
    """Return the reviews of an archive with one file for each review, in the order of file names."""
    rows = []
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            *_, split, kind, _ = ["", "", "", *member.name.split("/")]
            file = archive.extractfile(member)
            if file is not None and split in ("train", "test") and kind in ("pos", "neg"):
                rows.append((member.name, split, int(kind == "pos"), file.read().decode()))
    return _split([row[1:] for row in sorted(rows)])


def _split(rows: list[tuple[str, int, str]]) -> Reviews:
    arrays: list[np.ndarray] = []
    for split in ("train", "test"):
        own = [(text, label) for name, label, text in rows if name == split]
        arrays += [np.array([text for text, _ in own], dtype=object), np.array([label for _, label in own])]
    return Reviews(*arrays)
