"""A fitted model of a table: its pipeline, the column it predicts, its history and its scores."""

import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from gaussify._estimators import expect, unpacking
from gaussify._persistence import read_model, write_model
from gaussify.exceptions import InvalidArgumentError, TableError
from gaussify.gp import GPClassifier
from gaussify.likelihoods import ProbabilityUncertainty
from gaussify.linear import BayesianLogisticRegression
from gaussify.tables._columns import as_words, clean
from gaussify.tables._encoder import TableEncoder, as_table, require_column

MODEL_FILE = "model.safetensors"
"""File in a model folder that holds the model."""
REPORT_FILE = "report.html"
"""File in a model folder that holds the report."""
_KIND, _FORMAT = "TableModel", 1

Classifier = BayesianLogisticRegression | GPClassifier
_CLASSIFIERS: dict[str, type[Classifier]] = {kind.__name__: kind for kind in (BayesianLogisticRegression, GPClassifier)}


class LearntRows(NamedTuple):
    """An entry of a model's history: rows learnt in one call.

    Examples
    --------
    >>> LearntRows.of("birds.csv", 100).n_rows
    100
    """

    key: str
    """Random text that identifies the same rows in another model."""
    source: str
    """Where the rows come from, such as a file name."""
    n_rows: int

    @classmethod
    def of(cls, source: str, n_rows: int) -> "LearntRows":
        """Return an entry with a new key."""
        return cls(secrets.token_hex(8), source, n_rows)


class TableModel:
    """A scikit-learn pipeline from a table to class probabilities that can learn more rows, be merged and be saved.

    Labels are text, as the cells of a file are. Rows without a label are not learnt.

    Parameters
    ----------
    encoder : TableEncoder
        Fitted encoder.
    classifier : BayesianLogisticRegression or GPClassifier
        Classifier fitted to the output of the encoder.
    target : str
        Column that holds the labels.
    history : list of LearntRows
        Rows learnt so far.
    scores : dict
        Scores on held-out rows, by name of the model, if there were any.

    Examples
    --------
    >>> table = {"height": [1.2, 1.9, 1.4, 2.1, 1.3, 2.0], "species": ["emu", "moa", "emu", "moa", "emu", "moa"]}
    >>> encoder = TableEncoder(ignored=["species"]).fit(table)
    >>> classifier = BayesianLogisticRegression().fit(encoder.transform(table), table["species"])
    >>> model = TableModel(encoder, classifier, "species", [LearntRows.of("birds", 6)])
    >>> model.predict_proba({"height": [1.8]}).argmax(1), model.classes.tolist()
    (array([1]), ['emu', 'moa'])
    """

    def __init__(
        self,
        encoder: TableEncoder,
        classifier: Classifier,
        target: str,
        history: list[LearntRows],
        scores: dict[str, Any] | None = None,
    ) -> None:
        self.pipeline = Pipeline([("table", encoder), ("classifier", classifier)])
        self.target, self.history, self.scores = target, history, scores or {}

    @property
    def encoder(self) -> TableEncoder:
        """The first step of the pipeline: cells to numbers."""
        return self.pipeline["table"]

    @property
    def classifier(self) -> Classifier:
        """The second step of the pipeline: numbers to probabilities."""
        return self.pipeline["classifier"]

    @property
    def classes(self) -> NDArray:
        """Sorted labels."""
        return self.classifier.classes_

    @property
    def n_rows(self) -> int:
        """Number of rows learnt so far."""
        return int(self.classifier.n_rows_seen_)

    @property
    def n_rows_since_fit(self) -> int:
        """Number of rows learnt since the fit that scores and report describe."""
        return sum(entry.n_rows for entry in self.history[1:]) if self.scores else 0

    def predict_proba(self, table: Any) -> Float[np.ndarray, "n c"]:
        """Return the probability of each class."""
        return self.pipeline.predict_proba(as_table(table))

    def predict_uncertainty(self, table: Any) -> ProbabilityUncertainty:
        """Return probabilities, their uncertainty, and the entropy that more data could remove."""
        return self.classifier.likelihood_.predict_uncertainty(
            *self.classifier.predict_latent(self.encoder.transform(as_table(table)))
        )

    def learn(self, batches: Iterable[Any], source: str) -> int:
        """Learn the labelled rows of batches, and return their number.

        Parameters
        ----------
        batches : iterable of tables
            Rows with the column of labels.
        source : str
            Where the rows come from, for the history.
        """
        n_rows = 0
        for batch in batches:
            rows, labels, _ = take_labelled(as_table(batch), self.target)
            if len(labels):
                self.classifier.partial_fit(self.encoder.transform(rows), labels)
            n_rows += len(labels)
        if n_rows == 0:
            raise TableError(f"{source} has no row with a label in column {self.target!r}.")
        self._tune()
        self.history = [*self.history, LearntRows.of(source, n_rows)]
        return n_rows

    def merge(self, other: "TableModel") -> "TableModel":
        """Add all rows that another model with the same columns has learnt."""
        if self.target != other.target or self.encoder.packed() != other.encoder.packed():
            raise InvalidArgumentError(
                "Models to merge must turn rows into the same features. Fit the second like the first: gaussify fit "
                "TABLE --like MODEL."
            )
        both = {entry.key for entry in self.history} & {entry.key for entry in other.history}
        if both:
            twice = next(entry for entry in self.history if entry.key in both)
            raise InvalidArgumentError(
                f"Both models have learnt the same {twice.n_rows} rows of {twice.source}, which would count twice. Fit "
                "one of them to other rows: gaussify fit TABLE --like MODEL."
            )
        if type(self.classifier) is not type(other.classifier):
            kinds = [type(model.classifier).__name__ for model in (self, other)]
            raise InvalidArgumentError(f"Models to merge must be of one kind; got {kinds[0]} and {kinds[1]}.")
        self.classifier.merge(other.classifier)
        self._tune()
        self.history = [*self.history, *other.history]
        self.scores = {}  # they describe one of the two models
        return self

    def _tune(self) -> None:
        """Choose the parameters of a linear model again, so that they depend on its rows alone and are saved."""
        if isinstance(self.classifier, BayesianLogisticRegression):
            self.classifier.tune()

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the model into a folder, which is created; an interruption leaves the old model or the new one."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        config, tensors = self.classifier.packed()
        header = {
            "target": self.target,
            "encoder": self.encoder.packed(),
            "history": [list(entry) for entry in self.history],
            "scores": self.scores,
            "classifier": {"kind": type(self.classifier).__name__, "config": config},
        }
        write_model(folder / MODEL_FILE, _KIND, _FORMAT, header, tensors)
        return folder / MODEL_FILE

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "TableModel":
        """Return the model that ``save`` wrote; no code in the file is run."""
        path = Path(folder)
        path = path / MODEL_FILE if path.is_dir() else path
        if not path.exists():
            raise TableError(f"There is no model in {os.fspath(folder)}; 'gaussify fit' creates one.")
        config, tensors = read_model(path, _KIND, _FORMAT)
        with unpacking(path, _KIND):
            saved = config["classifier"]
            classifier = _CLASSIFIERS[saved["kind"]].unpacked(saved["config"], tensors)
            history = [LearntRows(str(key), str(source), int(n)) for key, source, n in config["history"]]
            encoder = TableEncoder.unpacked(config["encoder"])
            expect(
                encoder.n_features_out_ == classifier.n_features_in_,
                "the columns give the classifier's number of features",
            )
            return cls(encoder, classifier, str(config["target"]), history, config["scores"])


class LabelledRows(NamedTuple):
    """The rows of a table that have a label.

    Examples
    --------
    >>> LabelledRows._fields
    ('rows', 'labels', 'numbers')
    """

    rows: pa.Table
    """Rows without the column of labels."""
    labels: NDArray
    """Labels as text; equal labels give equal text, however they are stored."""
    numbers: Int[np.ndarray, " n"]
    """Row numbers in the table, from 1."""


def take_labelled(table: pa.Table, target: str) -> LabelledRows:
    """Return the rows that have a label.

    Examples
    --------
    >>> rows, labels, numbers = take_labelled(pa.table({"x": [1, 2, 3], "y": ["a", None, "b"]}), "y")
    >>> rows.to_pydict(), labels, numbers
    ({'x': [1, 3]}, array(['a', 'b'], dtype='<U1'), array([1, 3]))
    """
    require_column(target, table.column_names)
    words = as_words(clean(table.column(target).combine_chunks()), target)
    known = words.is_valid()
    labels = np.array(words.filter(known).to_pylist(), dtype=str)
    return LabelledRows(table.drop_columns([target]).filter(known), labels, 1 + np.flatnonzero(known))
