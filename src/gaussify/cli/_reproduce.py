"""``gaussify list`` and ``gaussify reproduce``: the experiments of the paper."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from gaussify.cli._app import app
from gaussify.cli._output import Json, print_json, print_table
from gaussify.exceptions import InvalidArgumentError


class Step(StrEnum):
    """A step of ``gaussify reproduce`` that can be repeated alone."""

    RUN = "run"
    DRAW = "draw"
    SUMMARISE = "summarise"


@app.command("list")
def list_experiments(as_json: Json = False) -> None:
    """List the experiments that [bold]gaussify reproduce[/bold] knows.

    [bold]Examples[/bold]

    gaussify list

    gaussify list --json
    """
    from gaussify.experiments import all_experiments

    rows = [{"name": own.name, "title": own.title, "presets": list(own.presets)} for own in all_experiments()]
    if as_json:
        print_json(rows)
    else:
        print_table([row | {"presets": ", ".join(row["presets"])} for row in rows])


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="An experiment; 'gaussify list' shows them.")],
    preset: Annotated[
        str, typer.Option(help="How much to run: smoke (seconds), laptop (minutes to hours) or paper (all of it).")
    ] = "laptop",
    out: Annotated[Path, typer.Option(help="Results go to OUT/NAME/PRESET.")] = Path("runs"),
    seed: Annotated[int, typer.Option(help="Seed from which the seed of each task follows.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Remove earlier results instead of resuming.")] = False,
    only: Annotated[Step | None, typer.Option(help="Do this step alone; the others use earlier results.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Run this data set alone; results of others stay.")] = None,
    as_json: Json = False,
) -> None:
    """Run an experiment of the paper, draw its figures and print its table.

    A run that was stopped goes on where it ended. Figures and tables are made from results.csv alone.

    [bold]Examples[/bold]

    gaussify reproduce densities --preset smoke

    gaussify reproduce densities --preset paper --out results

    gaussify reproduce densities --preset paper --out results --only draw

    gaussify reproduce streaming --dataset fashion-mnist
    """
    done = reproduce_steps(name, preset, out, seed=seed, fresh=fresh, only=only, dataset=dataset)
    if as_json:
        print_json({"folder": str(done.folder), "summary": done.summary})
    elif done.summary:
        print_table(_for_people(done.summary))


def _for_people(summary: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Standard errors beside their means, and no column without values; the file has all there is."""
    known = {name for row in summary for name, value in row.items() if value is not None}
    empty = {name for row in summary for name in row} - known
    errors = {f"{name}_se" for row in summary for name in row if f"{name}_se" in row}

    def shown(row: dict[str, Any], name: str) -> Any:
        error = row.get(f"{name}_se")
        return row[name] if error is None else f"{row[name]:.4g} ± {error:.2g}"

    return [{name: shown(row, name) for name in row if name not in empty | errors} for row in summary]


class Reproduced(NamedTuple):
    """What an experiment ends with."""

    folder: Path
    summary: list[dict[str, Any]]


def reproduce_steps(
    name: str,
    preset: str,
    out: Path,
    *,
    seed: int = 0,
    fresh: bool = False,
    only: Step | None = None,
    dataset: str | None = None,
) -> Reproduced:
    """Run, draw and summarise an experiment, or do one of these alone."""
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
    typer.echo(f"Results are in {folder}.", err=True)
    return Reproduced(folder, summary)
