"""``gaussify list`` and ``gaussify reproduce``: the experiments of the paper."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from gaussify.cli._app import app
from gaussify.exceptions import InvalidArgumentError


class Step(StrEnum):
    """A step of ``gaussify reproduce`` that can be repeated alone."""

    RUN = "run"
    DRAW = "draw"
    SUMMARISE = "summarise"


@app.command("list")
def list_experiments() -> None:
    """List the experiments that [bold]gaussify reproduce[/bold] knows."""
    from gaussify.experiments import all_experiments

    rows = [
        {"name": experiment.name, "title": experiment.title, "presets": ", ".join(experiment.presets)}
        for experiment in all_experiments()
    ]
    print_table(rows)


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="An experiment; 'gaussify list' shows them.")],
    preset: Annotated[
        str, typer.Option(help="How much to run: smoke (seconds), laptop (minutes) or paper (all of it).")
    ] = "laptop",
    out: Annotated[Path, typer.Option(help="Results go to OUT/NAME/PRESET.")] = Path("runs"),
    seed: Annotated[int, typer.Option(help="Seed from which the seed of each task follows.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Remove earlier results instead of resuming.")] = False,
    only: Annotated[Step | None, typer.Option(help="Do this step alone; the others use earlier results.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Run this data set alone; results of others stay.")] = None,
) -> None:
    """Run an experiment of the paper, draw its figures and print its table.

    A run that was stopped goes on where it ended. Figures and tables are made from results.csv alone.

    [bold]Examples[/bold]

    gaussify reproduce densities --preset smoke

    gaussify reproduce densities --preset paper --out results

    gaussify reproduce densities --preset paper --out results --only draw

    gaussify reproduce streaming --dataset fashion-mnist
    """
    reproduce_steps(name, preset, out, seed=seed, fresh=fresh, only=only, dataset=dataset)


def reproduce_steps(
    name: str,
    preset: str,
    out: Path,
    *,
    seed: int = 0,
    fresh: bool = False,
    only: Step | None = None,
    dataset: str | None = None,
) -> list[dict[str, Any]]:
    """Run, draw and summarise an experiment, or do one of these alone; return the summary."""
    from gaussify.experiments import get, load, result_folder, run, write_records

    if fresh and only in (Step.DRAW, Step.SUMMARISE):
        raise InvalidArgumentError(f"--fresh starts a run over, which --only {only} does not do.")
    if dataset is not None and only in (Step.DRAW, Step.SUMMARISE):
        raise InvalidArgumentError(f"--dataset chooses what is run, and --only {only} runs nothing.")
    experiment = get(name)
    folder = result_folder(experiment, preset, out)
    if only in (None, Step.RUN):
        run(experiment, preset, out, seed, fresh=fresh, dataset=dataset)
    if only in (None, Step.DRAW):
        experiment.draw(load(folder), folder)
    summary: list[dict[str, Any]] = []
    if only in (None, Step.SUMMARISE) and experiment.summarise is not None:
        summary = experiment.summarise(load(folder))
        write_records(folder / "summary.csv", summary)
        print_table(summary)
    typer.echo(f"Results are in {folder}.", err=True)
    return summary


def print_table(records: Sequence[Mapping[str, Any]]) -> None:
    """Print records as a table, numbers to the right with four digits."""
    table = Table(box=box.SIMPLE_HEAD)
    columns = list(dict.fromkeys(name for record in records for name in record))
    for column in columns:
        numeric = any(isinstance(record.get(column), int | float) for record in records)
        table.add_column(column, justify="right" if numeric else "left")
    for record in records:
        table.add_row(*(_cell(record.get(column)) for column in columns))
    console = Console()
    if not console.is_terminal:
        console.width = 200  # a file has no edge to wrap at
    console.print(table)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
