"""Output of the commands: tables for people, JSON for programs, and a progress bar."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print more details.")]


def print_table(records: Sequence[Mapping[str, object]]) -> None:
    """Print records as a table, with numbers right-aligned and rounded to four digits; brackets are plain text."""
    table = Table(box=box.SIMPLE_HEAD)
    columns = list(dict.fromkeys(name for record in records for name in record))
    for column in columns:
        numeric = any(
            isinstance(record.get(column), int | float) or "±" in str(record.get(column)) for record in records
        )
        table.add_column(Text(column), justify="right" if numeric else "left")
    for record in records:
        table.add_row(*(Text(_cell(record.get(column))) for column in columns))
    console = Console()
    if not console.is_terminal:
        console.width = 200  # a file has no right edge
    console.print(table)


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values as a table."""
    print_table([{"": name, " ": value} for name, value in facts.items()])


def print_json(answer: object, *, indent: int | None = 1) -> None:
    """Print JSON; values that JSON cannot hold become text."""
    typer.echo(json.dumps(_finite(answer), indent=indent, allow_nan=False, default=str))


@contextmanager
def show_progress(*, quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """Yield a function of a step's name and the share done: it moves a bar on a terminal and does nothing elsewhere."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda step, share: None
        return
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=None)

        def report(step: str, share: float) -> None:
            progress.update(bar, description=step, completed=share, total=1.0 if share else None)

        yield report


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _finite(value: object) -> object:
    """Return the value with None for numbers that JSON cannot hold, such as an infinite NLL."""
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
