"""``gaussify fit``, ``predict``, ``update``, ``evaluate``, ``merge`` and ``info``: for people with a table."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from gaussify._atomic import only_one
from gaussify._optional import import_optional
from gaussify.cli._app import app, print_note
from gaussify.cli._output import Json, Verbose, print_facts, print_json, print_table, show_progress
from gaussify.exceptions import InvalidArgumentError, TableError
from gaussify.tables import FitOptions, ModelKind

_NEEDED = ("pyarrow", "matplotlib")
_STDIN = "standard input"
_DEFAULT = FitOptions()
_DEFAULT_KIND = ModelKind(_DEFAULT.model)

Table = Annotated[str, typer.Argument(help="CSV, TSV or Parquet, also gzipped; - is standard input.")]
Model = Annotated[Path, typer.Argument(help="A model folder that 'gaussify fit' has made.")]


@app.command()
def fit(
    table: Table,
    target: Annotated[str | None, typer.Option("--target", "-t", help="The column that holds labels.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Model folder; TABLE-model by default.")] = None,
    model: Annotated[ModelKind, typer.Option(help="auto compares both on rows of training set aside.")] = _DEFAULT_KIND,
    category: Annotated[
        list[str] | None, typer.Option(help="A column of numbers that are names; may be repeated.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")] = None,
    test_share: Annotated[
        float, typer.Option(min=0.01, max=0.9, help="Share of rows held out for the report.")
    ] = _DEFAULT.test_share,
    use_all: Annotated[
        bool, typer.Option("--use-all", help="Learn the rows held out as well, once they are predicted.")
    ] = _DEFAULT.use_all,
    compare: Annotated[
        bool, typer.Option(help="Whether to fit other kinds of models to the same rows.")
    ] = _DEFAULT.compare,
    n_inducing: Annotated[
        int, typer.Option(min=1, help="Inducing points of a Gaussian process.")
    ] = _DEFAULT.n_inducing,
    max_iter: Annotated[int, typer.Option(min=0, help="Iterations of its search.")] = _DEFAULT.max_iter,
    like: Annotated[
        Path | None, typer.Option(help="A model whose columns, kernel and inducing points to take; for 'merge'.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a model that is there already.")] = False,
    seed: Annotated[
        int, typer.Option(min=0, help="Of the rows held out, and of all else left to chance.")
    ] = _DEFAULT.seed,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Train on a table, hold out a part of it, report, and save.

    Numbers, categories, truth values, dates and missing cells are seen from the cells. Accuracy, NLL, ECE and Brier
    score are of rows held out, beside other models on the same rows. A folder gets model.safetensors and report.html.

    [bold]Examples[/bold]

    gaussify fit penguins.csv --target species

    gaussify fit sales.parquet -t returned --category shop --ignore order_id --out returns-model

    zcat clicks.csv.gz | gaussify fit - -t clicked --model linear --out clicks-model --json
    """
    if target is None and like is None:
        raise InvalidArgumentError("gaussify fit needs --target COLUMN: which column holds the labels?")
    tables = tables_for("fit")
    folder = out if out is not None else _default_folder(table)
    _check_is_free(folder, tables, overwrite)
    base = None if like is None else tables.TableModel.load(like)
    if base is not None and target not in (None, base.target):
        raise InvalidArgumentError(f"The model in {like} predicts {base.target!r}; leave --target out.")
    if base is not None and (model is not _DEFAULT_KIND or category or ignore):
        raise InvalidArgumentError(
            "--like takes columns and the kind from its model; leave out --model, --category, --ignore."
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
        if base is None:
            fitted = tables.fit_table(rows, target, options, source=source, report=report)
        else:
            fitted = tables.fit_like(base, rows, options, source=source, report=report)
        report("report", 0.0)
        tables.save_fitted(fitted, folder, source)
    _print_fitted(tables, fitted, folder, as_json=as_json, verbose=verbose)


@app.command()
def predict(
    model: Model,
    table: Table,
    out: Annotated[str, typer.Option("--out", "-o", help="CSV, TSV or Parquet by its ending; - prints CSV.")] = "-",
    keep: Annotated[list[str] | None, typer.Option(help="A column of the table to keep; may be repeated.")] = None,
    keep_all: Annotated[bool, typer.Option("--keep-all", help="Keep all columns of the table.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print rows as JSON, one a line; with --out, what was written.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Predict the rows of a table: label, its probability, uncertainty, and the probability of each class.

    entropy is that of the predicted probabilities, in nats; epistemic is the part of it that more rows could remove.
    Rows are read and written a batch at a time, so that a table may be larger than memory.

    [bold]Examples[/bold]

    gaussify predict penguins-model new.csv

    gaussify predict penguins-model new.csv.gz --keep id --out predictions.parquet

    cat new.csv | gaussify predict penguins-model - | head

    gaussify predict penguins-model new.csv --json
    """
    tables = tables_for("predict")
    loaded = tables.TableModel.load(model)
    prints_json = as_json and out == tables.STANDARD_STREAM
    n_rows, new = 0, Counter[str]()
    with tables.open_table(table) as reader, show_progress(quiet=as_json) as report:
        kept = reader.names if keep_all else keep or []
        for name in kept:
            tables.require_column(name, reader.names)

        def predictions() -> Iterator[Any]:
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
        typer.echo(f"Column {name!r}: {count:,} cells have a level that training did not know.", err=True)
    if as_json and not prints_json:
        print_json({"out": out, "n_rows": n_rows, "new_levels": dict(new)})
    elif verbose:
        typer.echo(f"{n_rows:,} rows predicted by a model that has learnt {loaded.n_rows:,}.", err=True)


@app.command()
def update(model: Model, table: Table, as_json: Json = False, verbose: Verbose = False) -> None:
    """Learn the rows of a table as well, in closed form.

    Columns, kernel and inducing points stay; alpha_eps and temperature of a linear model are those that suit all rows.
    Classes may be new. The model on disk is the old one until the new is complete; two updates of it wait for each
    other. report.html stays that of the fit.

    [bold]Examples[/bold]

    gaussify update penguins-model more.csv
    """
    tables, source = tables_for("update"), _source(table)
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
    typer.echo(f"{n_rows:,} rows learnt{more}; {loaded.n_rows:,} in all.")
    if verbose:
        print_facts(tables.describe(loaded))
    if loaded.scores:
        typer.echo(
            f"{tables.REPORT_FILE} does not know of the {loaded.n_rows_since_fit:,} rows learnt since the fit; "
            "'gaussify evaluate' judges the model as it is.",
            err=True,
        )


@app.command()
def evaluate(model: Model, table: Table, as_json: Json = False, verbose: Verbose = False) -> None:
    """Compare predictions with the labels of a table: accuracy, NLL, ECE and Brier score.

    [bold]Examples[/bold]

    gaussify evaluate penguins-model test.csv

    gaussify evaluate penguins-model test.csv --json
    """
    tables = tables_for("evaluate")
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
    first: Annotated[Path, typer.Argument(help="A model folder.")],
    second: Annotated[Path, typer.Argument(help="Another, fitted with --like the first, to other rows.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the model that has learnt both.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a model that is there already.")] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Merge two models into the one that has learnt the rows of both.

    [bold]Examples[/bold]

    gaussify fit north.csv -t returned --out north-model

    gaussify fit south.csv --like north-model --out south-model

    gaussify merge north-model south-model --out both-model
    """
    tables = tables_for("merge")
    _check_is_free(out, tables, overwrite)
    merged, other = (tables.TableModel.load(own) for own in (first, second))
    first_sources, second_sources = ({own.source for own in part.history} for part in (merged, other))
    merged.merge(other)
    for source in sorted(first_sources & second_sources - {_STDIN}):
        print_note(f"Both models have learnt rows of a table named {source}; rows that are in both count twice.")
    (out / tables.REPORT_FILE).unlink(missing_ok=True)  # of the model that is replaced
    merged.save(out)
    if as_json:
        print_json({"model": str(out), "n_rows": merged.n_rows, "classes": merged.classes.tolist()})
        return
    typer.echo(f"{merged.n_rows:,} rows in all; saved in {out}.")
    if verbose:
        print_facts(tables.describe(merged))


@app.command()
def info(model: Model, as_json: Json = False, verbose: Verbose = False) -> None:
    """Tell what a model predicts, from which columns, and what it has learnt.

    [bold]Examples[/bold]

    gaussify info penguins-model

    gaussify info penguins-model --json
    """
    tables = tables_for("info")
    loaded = tables.TableModel.load(model)
    facts = tables.describe(loaded)
    if as_json:
        answer = {
            "target": loaded.target,
            "classes": loaded.classes.tolist(),
            "learnt": facts,
            "columns": loaded.encoder.packed(),
            "history": [{"source": own.source, "n_rows": own.n_rows} for own in loaded.history],
            "scores": loaded.scores,
            "n_rows_since_report": loaded.n_rows_since_fit,
        }
        print_json(answer)
        return
    facts["classes"] = ", ".join(loaded.classes[:20].tolist()) + (", ..." if len(loaded.classes) > 20 else "")
    facts["learnt from"] = ", ".join(f"{own.source} ({own.n_rows:,} rows)" for own in loaded.history)
    if own := loaded.scores.get("gaussify"):
        (row,) = tables.tabulate_scores([tables.Score(**own)])
        facts["rows held out by fit"] = ", ".join(f"{name} {row[name]:.4g}" for name in ("accuracy", "NLL", "ECE"))
    if loaded.n_rows_since_fit:
        facts["learnt since these scores and the report"] = f"{loaded.n_rows_since_fit:,} rows"
    print_facts(facts)
    columns = loaded.encoder.columns_
    shown = columns if verbose else columns[:30]
    _print_columns(shown)
    if len(shown) < len(columns):
        typer.echo(f"{len(columns) - len(shown)} more columns with --verbose.", err=True)


def tables_for(command: str) -> Any:
    """The package of tables, or what to install for it."""
    for module in _NEEDED:
        import_optional(module, extra="table", needed_by=f"gaussify {command}")
    import gaussify.tables

    return gaussify.tables


def _default_folder(table: str) -> Path:
    if table == "-":
        raise InvalidArgumentError("gaussify fit needs --out FOLDER where the table comes from standard input.")
    path = Path(table)
    return path.with_name(f"{path.name.split('.')[0] or 'table'}-model")


class _JsonLines:
    """Prints rows as JSON, one a line."""

    def write_batch(self, batch: Any) -> None:
        """Print a batch."""
        for row in batch.to_pylist():
            print_json(row, indent=None)


def _print_fitted(tables: Any, fitted: Any, folder: Path, *, as_json: bool, verbose: bool) -> None:
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
        typer.echo(f"Columns left out: {', '.join(left_out)} (the report says why).", err=True)
    more = ", then learnt as well" if fitted.learnt_all else ""
    n_held_out = len(fitted.held_out.labels)
    typer.echo(f"{facts['model']}; {fitted.n_train:,} rows learnt, {n_held_out:,} held out{more}.", err=True)
    typer.echo(f"Saved in {folder}; look at {folder / tables.REPORT_FILE}.", err=True)


def _print_columns(columns: list[Any]) -> None:
    print_table([{"column": own.name, "holds": str(own.kind), "": own.describe()} for own in columns])


def _check_is_free(folder: Path, tables: Any, overwrite: bool) -> None:
    if (folder / tables.MODEL_FILE).exists() and not overwrite:
        raise InvalidArgumentError(f"There is a model in {folder} already; add --overwrite, or choose another --out.")


def _source(table: str) -> str:
    return _STDIN if table == "-" else Path(table).name


def _note_known(model: Any, source: str) -> None:
    """Tell that rows may count twice: a file of that name was learnt before."""
    n_rows = sum(own.n_rows for own in model.history if own.source == source)
    if n_rows and source != _STDIN:
        print_note(
            f"{n_rows:,} rows of a table named {source} were learnt before; rows that are learnt twice count twice."
        )


def _count(batches: Iterable[Any], report: Callable[[str, float], None]) -> Iterator[Any]:
    """Pass batches on, and tell how many rows they had."""
    n_rows = 0
    for batch in batches:
        yield batch
        n_rows += batch.num_rows
        report(f"{n_rows:,} rows", 0.0)
