"""``load``, which returns a data set by its name."""

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Int64, Shaped

from gaussify._typing import no_type_check
from gaussify._validation import check_option
from gaussify.datasets._images import Images, load_cifar10, load_cifar100, load_idx, load_svhn
from gaussify.datasets._tables import TABLES, load_table
from gaussify.datasets._text import Reviews, load_imdb

DatasetOption = Literal[
    "mnist",
    "fashion-mnist",
    "cifar10",
    "cifar100",
    "svhn",
    "letter",
    "magic",
    "htru2",
    "eeg",
    "drive",
    "ionosphere",
    "imdb",
    "imdb-minilm",
]
"""Names of the members of :class:`DatasetName`."""


class DatasetName(StrEnum):
    """The names that :func:`load` takes.

    Examples
    --------
    >>> DatasetName("magic").value
    'magic'
    """

    MNIST = "mnist"
    """Handwritten digits, 60 000 and 10 000 images of 28 × 28 pixels, 10 classes."""
    FASHION_MNIST = "fashion-mnist"
    """Articles of clothing, 60 000 and 10 000 images of 28 × 28 pixels, 10 classes."""
    CIFAR10 = "cifar10"
    """Photographs, 50 000 (or a subset of 20 000) and 10 000 images of 32 × 32 pixels, 10 classes."""
    CIFAR100 = "cifar100"
    """Photographs, 50 000 and 10 000 images of 32 × 32 pixels, 100 classes."""
    SVHN = "svhn"
    """Digits of house numbers, 73 257 and 26 032 images of 32 × 32 pixels, 10 classes."""
    LETTER = "letter"
    """Letters in many fonts, 20 000 rows, 16 features, 26 classes."""
    MAGIC = "magic"
    """Gamma rays against hadrons in a telescope, 19 020 rows, 10 features, 2 classes; sorted by class."""
    HTRU2 = "htru2"
    """Pulsars among candidates, 17 898 rows, 8 features, 2 classes."""
    EEG = "eeg"
    """Eyes open or closed, 14 980 rows in the order of time, 14 features, 2 classes."""
    DRIVE = "drive"
    """Sensorless drive diagnosis, 58 509 rows, 48 features, 11 classes; sorted by class."""
    IONOSPHERE = "ionosphere"
    """Radar returns, 351 rows, 34 features, one of them constant, 2 classes."""
    IMDB = "imdb"
    """Movie reviews as texts, 25 000 and 25 000, 2 classes; sorted by class."""
    IMDB_MINILM = "imdb-minilm"
    """MiniLM sentence features of 20 000 movie reviews, 384 features, 2 classes."""


class Dataset(NamedTuple):
    """Rows and labels as NumPy arrays, with citation and licence.

    Nothing is scaled, shuffled or cleaned. If a data set has no split into training and test rows, ``X_train`` and
    ``y_train`` hold all rows, and ``X_test`` and ``y_test`` are None.

    Examples
    --------
    >>> toy = Dataset("toy", np.zeros((2, 3)), np.array([0, 1]), None, None, ("no", "yes"), "nobody", "none")
    >>> toy.X_train.shape, toy.class_names[toy.y_train[1]]
    ((2, 3), 'yes')
    """

    name: str
    X_train: Shaped[np.ndarray, "n ..."]
    y_train: Int64[np.ndarray, " n"]
    X_test: Shaped[np.ndarray, "m ..."] | None
    y_test: Int64[np.ndarray, " m"] | None
    class_names: tuple[str, ...]
    citation: str
    licence: str


_DIGITS = tuple(str(digit) for digit in range(10))
_CLASSES = {
    "mnist": _DIGITS,
    "fashion-mnist": (
        *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
    ),
    "cifar10": (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    ),
    "svhn": _DIGITS,
    "imdb": ("negative", "positive"),
}
# Citation and licence, as commonly stated for the original.
_CITATIONS = {
    "mnist": ("Y. LeCun, C. Cortes, C. Burges, The MNIST database of handwritten digits, 1998", "CC BY-SA 3.0"),
    "fashion-mnist": ("H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST, arXiv:1708.07747, 2017", "MIT"),
    "cifar10": ("A. Krizhevsky, Learning multiple layers of features from tiny images, 2009", "none stated"),
    "cifar100": ("A. Krizhevsky, Learning multiple layers of features from tiny images, 2009", "none stated"),
    "svhn": (
        "Y. Netzer et al., Reading digits in natural images, NIPS workshop, 2011",
        "none stated; for non-commercial use",
    ),
    "letter": ("P. Frey, D. Slate, Letter recognition, UCI Machine Learning Repository, 1991", "CC BY 4.0"),
    "magic": ("R. Bock, MAGIC gamma telescope, UCI Machine Learning Repository, 2004", "CC BY 4.0"),
    "htru2": ("R. Lyon et al., Fifty years of pulsar candidate selection, MNRAS 459, 2016", "CC BY 4.0"),
    "eeg": ("O. Roesler, EEG eye state, UCI Machine Learning Repository, 2013", "CC BY 4.0"),
    "drive": (
        "M. Bator, Dataset for sensorless drive diagnosis, UCI Machine Learning Repository, 2015",
        "CC BY 4.0",
    ),
    "ionosphere": ("V. Sigillito et al., Ionosphere, UCI Machine Learning Repository, 1989", "CC BY 4.0"),
    "imdb": ("A. Maas et al., Learning word vectors for sentiment analysis, ACL 2011", "none stated"),
    "imdb-minilm": (
        "A. Maas et al., Learning word vectors for sentiment analysis, ACL 2011; features by all-MiniLM-L6-v2",
        "none stated for the reviews; weights Apache-2.0",
    ),
}
_Read = Callable[..., Images | Reviews]
_READ: dict[str, _Read] = {
    "cifar10": load_cifar10,
    "svhn": load_svhn,
    "imdb": load_imdb,
}


@no_type_check
def load(name: DatasetOption | str, *, download: bool = True) -> Dataset:
    """Return a data set by its name, one of :class:`DatasetName`.

    Files are searched for in the folder that the environment variable ``GAUSSIFY_DATA`` names, then in the cache
    (:func:`cache_folder`). If possible, a missing file is downloaded from the authors' site or from OpenML, and kept in
    the cache. FashionMNIST is also found where Debian's package ``dataset-fashion-mnist`` installs it. Every file is
    checked by a checksum: idx files by that of their uncompressed content, tables by that of their sorted rows, as
    distributors differ in compression and in the order of rows.

    Parameters
    ----------
    name : str
        Name of the data set, such as ``"mnist"``, ``"letter"`` or ``"imdb"``.
    download : bool
        Whether missing files may be downloaded.

    Raises
    ------
    DatasetError
        If a file is missing, damaged or cannot be downloaded. The message names the file, the folders searched and a
        remedy.

    Examples
    --------
    >>> data = load("letter")  # doctest: +SKIP
    >>> data.X_train.shape  # doctest: +SKIP
    (20000, 16)
    >>> load("mnits")
    Traceback (most recent call last):
        ...
    gaussify.exceptions.InvalidArgumentError: The 'name' parameter of load must be one of 'mnist', ...; got 'mnits'.
    """
    name = check_option(name, DatasetName, name="name", owner="load").value
    citation, licence = _CITATIONS[name]
    if name in TABLES:
        X, y = load_table(name, may_download=download)
        return Dataset(name, X, y, None, None, TABLES[name].class_names, citation, licence)
    if name == DatasetName.CIFAR100:
        images, class_names = load_cifar100(may_download=download)
        return Dataset(name, *images, class_names, citation, licence)
    read: _Read = _READ.get(name, partial(load_idx, name))
    rows = read(may_download=download)
    return Dataset(name, rows.X_train, rows.y_train, rows.X_test, rows.y_test, _CLASSES[name], citation, licence)
