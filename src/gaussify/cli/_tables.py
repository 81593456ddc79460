"""Commands on tables: ``gaussify fit``, ``predict``, ``update``, ``evaluate``, ``merge`` and ``info``."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gaussify import tables
from gaussify._atomic import only_one
from gaussify._optional import import_optional
from gaussify.cli._app import app, print_note
from gaussify.cli._output import Json, Verbose, print_facts, print_json, print_table, show_progress
from gaussify.exceptions import InvalidArgumentError, TableError
from gaussify.tables import FitOptions, ModelKind

if TYPE_CHECKING:
    import pyarrow

_NEEDED = ("pyarrow", "matplotlib")
_STDIN = "standard input"
_DEFAULT = FitOptions()
_DEFAULT_KIND = ModelKind(_DEFAULT.model)

Table = Annotated[str, typer.Argument(help="CSV, TSV or Parquet file, also gzipped; - reads standard input.")]
Model = Annotated[Path, typer.Argument(help="Model folder, as 'gaussify fit' writes it.")]


@app.command()
def fit(
    table: Table,
    target: Annotated[str | None, typer.Option("--target", "-t", help="Column that holds the labels.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder to write the model to; TABLE-model by default.")
    ] = None,
    model: Annotated[
        ModelKind, typer.Option(help="Kind of model; auto compares both on some training rows and takes the better.")
    ] = _DEFAULT_KIND,
    category: Annotated[
        list[str] | None, typer.Option(help="Column whose numbers are names of categories; may be repeated.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Column to leave out; may be repeated.")] = None,
    test_share: Annotated[
        float, typer.Option(min=0.01, max=0.9, help="Share of rows held out for the report.")
    ] = _DEFAULT.test_share,
    use_all: Annotated[
        bool, typer.Option("--use-all", help="Also learn the held-out rows, after they are predicted.")
    ] = _DEFAULT.use_all,
    compare: Annotated[
        bool, typer.Option(help="Fit scikit-learn's models to the same rows for comparison.")
    ] = _DEFAULT.compare,
    n_inducing: Annotated[
        int,
        typer.Option(min=1, help="Number of inducing points (inputs that summarise all rows) of a Gaussian process."),
    ] = _DEFAULT.n_inducing,
    max_iter: Annotated[
        int, typer.Option(min=0, help="Largest number of iterations when a Gaussian process is fitted.")
    ] = _DEFAULT.max_iter,
    like: Annotated[
        Path | None, typer.Option(help="Model to take columns, kernel and inducing points from; needed for 'merge'.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing model.")] = False,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed that fixes all randomness in 'fit'; the other commands are deterministic.")
    ] = _DEFAULT.seed,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Fit a model to a table, score it on held-out rows, and save model and report.

    Columns may hold numbers, categories, truth values or dates, with missing cells; the kind is detected. The scores
    are accuracy, NLL (negative log-likelihood), ECE (expected calibration error) and Brier score on held-out rows,
    compared with scikit-learn's models. The model folder gets model.safetensors and report.html.

    [bold]Examples[/bold]

    gaussify fit penguins.csv --target species

    gaussify fit sales.parquet -t returned --category shop --ignore order_id --out returns-model

    zcat clicks.csv.gz | gaussify fit - -t clicked --model linear --out clicks-model --json
    """
    if target is None and like is None:
        raise InvalidArgumentError("gaussify fit needs --target COLUMN, the column that holds the labels.")
    check_installed("fit")
    folder = out if out is not None else _default_folder(table)
    if target is not None and table != tables.STANDARD_STREAM:  # standard input can be read only once
        with tables.open_table(table) as reader:
            tables.require_column(target, reader.names)
    _check_is_free(folder, overwrite)
    base = None if like is None else tables.TableModel.load(like)
    if base is not None and target not in (None, base.target):
        raise InvalidArgumentError(f"The model in {like} predicts {base.target!r}; leave out --target.")
    if base is not None and (model is not _DEFAULT_KIND or category or ignore):
        raise InvalidArgumentError(
            "--like takes columns and kind from that model; leave out --model, --category and --ignore."
        )
    options = FitOptions(
        model=model,
        categories=category or (),
        ignored=ignore or (),
        test_share=test_share,
        n_inducing=n_inducing,
        max_iter=max_iter,
        compare=compare,
        use_all=use_all,
        seed=seed,
    )
    source = _source(table)
    if base is not None:
        _note_known(base, source)
    with show_progress(quiet=as_json) as report:
        report("read", 0.0)
        rows = tables.read_table(table)
        if base is not None:
            fitted = tables.fit_like(base, rows, options, source=source, report=report)
        else:
            assert target is not None  # checked above
            fitted = tables.fit_table(rows, target, options, source=source, report=report)
        report("report", 0.0)
        tables.save_fitted(fitted, folder, source)
    _print_fitted(fitted, folder, as_json=as_json, verbose=verbose)


@app.command()
def predict(
    model: Model,
    table: Table,
    out: Annotated[
        str, typer.Option("--out", "-o", help="CSV, TSV or Parquet file, by its extension; - prints CSV.")
    ] = "-",
    keep: Annotated[
        list[str] | None, typer.Option(help="Column of the table to copy to the output; may be repeated.")
    ] = None,
    keep_all: Annotated[bool, typer.Option("--keep-all", help="Copy all columns of the table.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per row; with --out, a summary.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Predict the rows of a table: label, probability, uncertainty, and the probability of each class.

    The column 'entropy' is the entropy of the predicted probabilities in nats; 'epistemic' is the part of it that more
    training rows could remove. Rows are read and written in batches, so the table may be larger than memory.

    [bold]Examples[/bold]

    gaussify predict penguins-model new.csv

    gaussify predict penguins-model new.csv.gz --keep id --out predictions.parquet

    cat new.csv | gaussify predict penguins-model - | head

    gaussify predict penguins-model new.csv --json
    """
    check_installed("predict")
    loaded = tables.TableModel.load(model)
    prints_json = as_json and out == tables.STANDARD_STREAM
    n_rows, new = 0, Counter[str]()
    with tables.open_table(table) as reader, show_progress(quiet=as_json) as report:
        kept = reader.names if keep_all else keep or []
        for name in kept:
            tables.require_column(name, reader.names)

        def predictions() -> Iterator["pyarrow.RecordBatch"]:
            nonlocal n_rows
            for batch in tables.split_batches(_count(reader.batches, report), len(loaded.classes)):
                yield tables.predict_rows(loaded, batch, kept)
                n_rows += batch.num_rows
                new.update(loaded.encoder.n_new_levels(batch))

        rows = predictions()
        first = next(rows, None)
        if first is None:
            raise TableError("The table has no rows to predict.")
        with nullcontext(_JsonLines()) if prints_json else tables.write_rows(out, first.schema) as writer:
            for batch in chain([first], rows):
                writer.write_batch(batch)
    for name, count in new.items():
        typer.echo(f"Column {name!r}: {count:,} cells have a level that was not in training.", err=True)
    if as_json and not prints_json:
        print_json({"out": out, "n_rows": n_rows, "new_levels": dict(new)})
    elif verbose:
        typer.echo(f"{n_rows:,} rows predicted; the model has learnt {loaded.n_rows:,} rows.", err=True)


@app.command()
def update(model: Model, table: Table, as_json: Json = False, verbose: Verbose = False) -> None:
    """Add the rows of a table to a model, in closed form.

    Columns, kernel and inducing points do not change. A linear model chooses alpha_eps (the strength of a label) and
    temperature again, from all rows. New classes are allowed. An interrupted update leaves the old model, and two
    updates at once run one after the other. report.html does not change.

    [bold]Examples[/bold]

    gaussify update penguins-model more.csv
    """
    check_installed("update")
    source = _source(table)
    with only_one(model):
        loaded = tables.TableModel.load(model)
        before = len(loaded.classes)
        _note_known(loaded, source)
        with tables.open_table(table) as reader, show_progress(quiet=as_json) as report:
            tables.require_column(loaded.target, reader.names, because="which holds the labels")
            n_rows = loaded.learn(_count(reader.batches, report), source)
        loaded.save(model)
    if as_json:
        answer = {"model": str(model), "n_learnt": n_rows, "n_rows": loaded.n_rows, "classes": loaded.classes.tolist()}
        print_json(answer | {"n_rows_since_report": loaded.n_rows_since_fit})
        return
    n_new = len(loaded.classes) - before
    more = f", {n_new} new {'class' if n_new == 1 else 'classes'}" if n_new else ""
    typer.echo(f"{n_rows:,} rows learnt{more}; {loaded.n_rows:,} in total.")
    if verbose:
        print_facts(tables.describe(loaded))
    if loaded.scores:
        typer.echo(
            f"{tables.REPORT_FILE} does not include the {loaded.n_rows_since_fit:,} rows learnt since the fit; "
            "'gaussify evaluate' scores the current model.",
            err=True,
        )


@app.command()
def evaluate(model: Model, table: Table, as_json: Json = False, verbose: Verbose = False) -> None:
    """Score a model on a table with labels: accuracy, NLL, ECE and Brier score.

    [bold]Examples[/bold]

    gaussify evaluate penguins-model test.csv

    gaussify evaluate penguins-model test.csv --json
    """
    check_installed("evaluate")
    loaded = tables.TableModel.load(model)
    with tables.open_table(table) as reader, show_progress(quiet=as_json) as report:
        tables.require_column(loaded.target, reader.names, because="which holds the labels")
        score, n_rows = tables.evaluate_rows(loaded, _count(reader.batches, report))
    if as_json:
        values = {name: value for name, value in score._asdict().items() if name not in ("name", "seconds")}
        print_json({"n_rows": n_rows, **values})
        return
    (row,) = tables.tabulate_scores([score])
    print_table([row | {"rows": n_rows}])
    if verbose:
        print_facts(tables.describe(loaded))


@app.command()
def merge(
    first: Annotated[Path, typer.Argument(help="Model folder.")],
    second: Annotated[Path, typer.Argument(help="Folder of a model that was fitted to other rows with --like FIRST.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write the merged model to.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing model.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Merge two models into one that has learnt the rows of both.

    The second model must have the columns, kernel and inducing points of the first: fit it with --like.

    [bold]Examples[/bold]

    gaussify fit north.csv -t returned --out north-model

    gaussify fit south.csv --like north-model --out south-model

    gaussify merge north-model south-model --out both-model
    """
    check_installed("merge")
    _check_is_free(out, overwrite)
    merged, other = (tables.TableModel.load(folder) for folder in (first, second))
    first_sources, second_sources = ({entry.source for entry in part.history} for part in (merged, other))
    merged.merge(other)
    for source in sorted(first_sources & second_sources - {_STDIN}):
        print_note(f"Both models have learnt rows of a table named {source}; a row in both counts twice.")
    (out / tables.REPORT_FILE).unlink(missing_ok=True)  # it describes the model that is replaced
    merged.save(out)
    if as_json:
        print_json({"model": str(out), "n_rows": merged.n_rows, "classes": merged.classes.tolist()})
        return
    typer.echo(f"{merged.n_rows:,} rows in total; saved in {out}.")
    if verbose:
        print_facts(tables.describe(merged))


@app.command()
def info(model: Model, as_json: Json = False, verbose: Verbose = False) -> None:
    """Print what a model predicts, from which columns, and which rows it has learnt.

    [bold]Examples[/bold]

    gaussify info penguins-model

    gaussify info penguins-model --json
    """
    check_installed("info")
    loaded = tables.TableModel.load(model)
    facts = tables.describe(loaded)
    if as_json:
        answer = {
            "target": loaded.target,
            "classes": loaded.classes.tolist(),
            "learnt": facts,
            "columns": loaded.encoder.packed(),
            "history": [{"source": entry.source, "n_rows": entry.n_rows} for entry in loaded.history],
            "scores": loaded.scores,
            "n_rows_since_report": loaded.n_rows_since_fit,
        }
        print_json(answer)
        return
    facts["classes"] = ", ".join(loaded.classes[:20].tolist()) + (", ..." if len(loaded.classes) > 20 else "")
    facts["learnt from"] = ", ".join(f"{entry.source} ({entry.n_rows:,} rows)" for entry in loaded.history)
    if score := loaded.scores.get("gaussify"):
        (row,) = tables.tabulate_scores([tables.Score(**score)])
        facts["scores on held-out rows"] = ", ".join(f"{name} {row[name]:.4g}" for name in ("accuracy", "NLL", "ECE"))
    if loaded.n_rows_since_fit:
        facts["rows learnt since the report"] = f"{loaded.n_rows_since_fit:,}"
    print_facts(facts)
    columns = loaded.encoder.columns_
    shown = columns if verbose else columns[:30]
    _print_columns(shown)
    if len(shown) < len(columns):
        typer.echo(f"{len(columns) - len(shown)} more columns with --verbose.", err=True)


def check_installed(command: str) -> None:
    """Raise an error that says what to install if a package for tables is missing."""
    for module in _NEEDED:
        import_optional(module, extra="table", needed_by=f"gaussify {command}")


def _default_folder(table: str) -> Path:
    if table == "-":
        raise InvalidArgumentError("gaussify fit needs --out FOLDER if the table comes from standard input.")
    path = Path(table)
    return path.with_name(f"{path.name.split('.')[0] or 'table'}-model")


class _JsonLines:
    """A writer that prints one JSON object per row."""

    def write_batch(self, batch: "pyarrow.RecordBatch") -> None:
        """Print the rows of a batch."""
        for row in batch.to_pylist():
            print_json(row, indent=None)


def _print_fitted(fitted: "tables.FittedTable", folder: Path, *, as_json: bool, verbose: bool) -> None:
    model, facts = fitted.model, tables.describe(fitted.model)
    if as_json:
        answer = {
            "model": str(folder),
            "report": str(folder / tables.REPORT_FILE),
            "target": model.target,
            "classes": model.classes.tolist(),
            "n_rows": model.n_rows,
            "n_train": fitted.n_train,
            "n_held_out": len(fitted.held_out.labels),
            "scores": [score._asdict() for score in fitted.scores],
            "caution": fitted.caution or None,
            "relevance": fitted.relevance,
            "learnt": facts,
        }
        print_json(answer)
        return
    print_table(tables.tabulate_scores(fitted.scores))
    if verbose:
        print_facts(facts)
        _print_columns(model.encoder.columns_)
    if fitted.caution:
        print_note(fitted.caution)
    left_out = [column.name for column in model.encoder.columns_ if not column.features()]
    if left_out:
        typer.echo(f"Columns left out: {', '.join(left_out)}; the report gives the reasons.", err=True)
    more = " and then also learnt" if fitted.learnt_all else ""
    n_held_out = len(fitted.held_out.labels)
    typer.echo(f"Model: {facts['model']}; {fitted.n_train:,} rows learnt, {n_held_out:,} held out{more}.", err=True)
    typer.echo(f"Saved in {folder}; open {folder / tables.REPORT_FILE} in a browser.", err=True)


def _print_columns(columns: list["tables.Column"]) -> None:
    print_table([{"column": column.name, "holds": str(column.kind), "": column.describe()} for column in columns])


def _check_is_free(folder: Path, overwrite: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise InvalidArgumentError(f"--out {folder} is a file, and a model needs a folder; choose another --out.")
    if (folder / tables.MODEL_FILE).exists() and not overwrite:
        raise InvalidArgumentError(f"There is already a model in {folder}; add --overwrite, or choose another --out.")


def _source(table: str) -> str:
    return _STDIN if table == "-" else Path(table).name


def _note_known(model: "tables.TableModel", source: str) -> None:
    """Print a note if the model has learnt a file of that name before."""
    n_rows = sum(entry.n_rows for entry in model.history if entry.source == source)
    if n_rows and source != _STDIN:
        print_note(
            f"The model has already learnt {n_rows:,} rows of a table named {source}; a row learnt twice counts twice."
        )


def _count(
    batches: Iterable["pyarrow.RecordBatch"], report: Callable[[str, float], None]
) -> Iterator["pyarrow.RecordBatch"]:
    """Yield the batches, and report the number of rows so far."""
    n_rows = 0
    for batch in batches:
        yield batch
        n_rows += batch.num_rows
        report(f"{n_rows:,} rows", 0.0)
