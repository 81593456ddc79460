"""Data sets that are one table of numbers: from the UCI repository, and features of movie reviews."""

import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float, Int64, Shaped

from gaussify.datasets._files import damaged, obtain


@dataclass(frozen=True)
class Table:
    """A table's file, its checksum (see :func:`row_checksum`), its classes and its source."""

    file: str
    sha256: str
    class_names: tuple[str, ...]
    source: str
    openml_id: int | None = None


TABLES = {
    "letter": Table(
        file="letter.npz",
        sha256="e111f6ce349935b6516d519772dd4746fd074db98d116d68379e46f7c6d45a58",
        class_names=tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        source="the table of https://archive.ics.uci.edu/dataset/59",
        openml_id=6,
    ),
    "magic": Table(
        file="magic.npz",
        sha256="e9fa70b2854492beee14ce9203baf6b7855284860fa29c912d5e6f100f8b804e",
        class_names=("g", "h"),
        source="the table of https://archive.ics.uci.edu/dataset/159",
        openml_id=1120,
    ),
    "htru2": Table(
        file="htru2.npz",
        sha256="4d4763bee1d696042ee72a8bf38339835a5c9393deb7f7d73559cafc7abdee55",
        class_names=("non-pulsar", "pulsar"),
        source="the table of https://archive.ics.uci.edu/dataset/372",
    ),
    "eeg": Table(
        file="eeg.npz",
        sha256="9e30d5f7538bd2db397e0f4d7ba9e3eb1e91a7dfa01141355a563392313b321b",
        class_names=("eye-open", "eye-closed"),
        source="the table of https://archive.ics.uci.edu/dataset/264",
        openml_id=1471,
    ),
    "drive": Table(
        file="drive.npz",
        sha256="d8b6616d9924bc78192ca1f4a4a66fba9a90e59b65f30595a85606c2e08fa661",
        class_names=tuple(str(number) for number in range(1, 12)),
        source="the table of https://archive.ics.uci.edu/dataset/325",
    ),
    "ionosphere": Table(
        file="ionosphere.npz",
        sha256="63d863283435c2e6a6de3c3c2c10defbb8d8c48e853895f5fb7b8f66b8e5beeb",
        class_names=("bad", "good"),
        source="the table of https://archive.ics.uci.edu/dataset/52",
        openml_id=59,
    ),
    "imdb-minilm": Table(
        file="imdb_minilm.npz",
        sha256="ec93a5753c0f3d1a5c7273a5216fe1de4d9f62d82e639653bc5fc253ba9e5275",
        class_names=("negative", "positive"),
        source="all-MiniLM-L6-v2 features of 20 000 reviews of https://ai.stanford.edu/~amaas/data/sentiment",
    ),
}


def load_table(dataset: str, *, may_download: bool) -> tuple[Float[np.ndarray, "n d"], Int64[np.ndarray, " n"]]:
    """Return rows and labels of a data set."""
    table = TABLES[dataset]

    def parse(content: bytes, source: str) -> tuple[np.ndarray, np.ndarray]:
        X, y = read_npz(content, name=source)
        if (found := row_checksum(X, y)) != table.sha256:
            raise damaged(
                source, f"the checksum of its {len(X)} rows begins with {found[:12]}, not {table.sha256[:12]}"
            )
        return X, y

    return obtain(
        dataset,
        table.file,
        parse,
        remedy=f"put it there, with arrays X and y: {table.source}.",
        fetch=partial(fetch_npz, table.openml_id) if may_download and table.openml_id else None,
    )


def read_npz(content: bytes, *, name: str) -> tuple[Float[np.ndarray, "n d"], Int64[np.ndarray, " n"]]:
    """Return the arrays ``X`` (floats of at least 32 bits) and ``y`` of an npz file; pickles are not allowed."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            X, y = arrays["X"], arrays["y"]
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise damaged(name, str(error)) from error
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise damaged(name, f"it has arrays of shapes {X.shape} and {y.shape}, not (n, d) and (n,)")
    return X.astype(np.result_type(X, np.float32), copy=False), y.astype(np.int64, copy=False)


def fetch_npz(openml_id: int) -> bytes:
    """Return a table from OpenML as an npz file, with classes numbered in the order of their names."""
    from sklearn.datasets import fetch_openml

    X, y = fetch_openml(data_id=openml_id, return_X_y=True, as_frame=False, parser="liac-arff", cache=False)
    content = io.BytesIO()
    np.savez_compressed(content, X=np.asarray(X, dtype=np.float64), y=np.unique(y, return_inverse=True)[1])
    return content.getvalue()


def row_checksum(X: Float[np.ndarray, "n d"], y: Int64[np.ndarray, " n"]) -> str:
    """Return the SHA-256 checksum of the sorted rows, as distributors differ in file format and order of rows.

    Examples
    --------
    >>> X, y = np.array([[0.5, 1.0], [2.0, 3.0]]), np.array([0, 1])
    >>> row_checksum(X, y) == row_checksum(X[::-1], y[::-1]) != row_checksum(X[::-1], y)
    True
    """
    rows = np.column_stack([X, y]).astype("<f8") + 0.0  # turns -0 into 0
    as_bytes: Shaped[np.ndarray, "n 1"] = np.ascontiguousarray(rows).view(f"V{8 * rows.shape[1]}")
    return hashlib.sha256(np.sort(as_bytes[:, 0]).tobytes()).hexdigest()
