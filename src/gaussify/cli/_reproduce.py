"""``gaussify list`` and ``gaussify reproduce``: the experiments of the paper and the benchmarks."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from gaussify.cli._app import app
from gaussify.cli._output import Json, print_json, print_table
from gaussify.exceptions import InvalidArgumentError


class Step(StrEnum):
    """A step of ``gaussify reproduce`` that can be repeated separately."""

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
    name: Annotated[str, typer.Argument(help="The name of an experiment; 'gaussify list' prints all names.")],
    preset: Annotated[
        str, typer.Option(help="The settings: smoke (seconds), laptop (minutes to hours) or paper (days).")
    ] = "laptop",
    out: Annotated[Path, typer.Option(help="The folder for results, which go to OUT/NAME/PRESET.")] = Path("runs"),
    seed: Annotated[int, typer.Option(help="The seed; the seed of each task follows from it.")] = 0,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Remove earlier results and start over, instead of resuming.")
    ] = False,
    only: Annotated[
        Step | None, typer.Option(help="Do only this step; draw and summarise use earlier results.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Run only this data set; the results of others stay.")] = None,
    as_json: Json = False,
) -> None:
    """Run an experiment, draw its figures and print its table.

    A run that was stopped continues where it ended. Figures and tables are made only from results.csv.

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
    """Return the rows with standard errors beside their means, and without empty columns; the file has all columns."""
    known = {name for row in summary for name, value in row.items() if value is not None}
    empty = {name for row in summary for name in row} - known
    errors = {f"{name}_se" for row in summary for name in row if f"{name}_se" in row}

    def shown(row: dict[str, Any], name: str) -> Any:
        error = row.get(f"{name}_se")
        return row[name] if error is None else f"{row[name]:.4g} ± {error:.2g}"

    return [{name: shown(row, name) for name in row if name not in empty | errors} for row in summary]


class Reproduced(NamedTuple):
    """The results of an experiment: their folder, and the table."""

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
    """Run, draw and summarise an experiment, or do only one of these steps."""
    from gaussify.experiments import get, load, result_folder, run, write_records

    if fresh and only in (Step.DRAW, Step.SUMMARISE):
        raise InvalidArgumentError(f"--fresh starts the run over, but --only {only} runs nothing.")
    if dataset is not None and only in (Step.DRAW, Step.SUMMARISE):
        raise InvalidArgumentError(f"--dataset chooses the tasks to run, but --only {only} runs nothing.")
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
