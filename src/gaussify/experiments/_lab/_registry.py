"""The definition of an experiment, and the table of all experiments."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gaussify.exceptions import InvalidArgumentError
from gaussify.experiments._lab._records import Record

Task = Mapping[str, Any]
"""A unit of work: a flat dictionary of scalars, such as ``{"dataset": "letter", "split": 3}``."""

Settings = Mapping[str, Any]
"""The settings of a preset, in values that JSON can hold."""

Value = TypeVar("Value")

REQUIRED_PRESETS = ("smoke", "laptop", "paper")


@dataclass(frozen=True)
class Experiment:
    """One experiment: independent tasks that give records, and figures and a table drawn from the records.

    Parameters
    ----------
    name, title
        The argument of ``gaussify reproduce``, and one line that describes the experiment.
    presets
        Settings by preset, see :func:`presets`. "smoke" (seconds, for tests), "laptop" and "paper" are required.
    tasks
        Returns the tasks for given settings, all different.
    run
        Returns the records of one task, as flat dictionaries of scalars, from ``(settings, task, seed)``. The columns
        of the task are added to each record. Each task has its own seed. Tasks that share something random, such as a
        data split, must draw it from a number in the task.
    draw
        Draws figures into a folder, from the records in the CSV file alone.
    summarise
        Returns the rows of the table that is printed and written to ``summary.csv``, from the same records.
    check
        Raises an error that names the remedy if data or packages are missing that every task needs. It is called once,
        before the first task.
    """

    name: str
    title: str
    presets: Mapping[str, Settings]
    tasks: Callable[[Settings], list[Task]]
    run: Callable[[Settings, Task, int], list[Record]]
    draw: Callable[[list[Record], Path], None]
    summarise: Callable[[list[Record]], list[Record]] | None = None
    check: Callable[[Settings], object] | None = None

    def __post_init__(self) -> None:
        missing = [preset for preset in REQUIRED_PRESETS if preset not in self.presets]
        if missing:
            raise InvalidArgumentError(f"Experiment {self.name!r} lacks the preset {missing[0]!r}.")

    def settings(self, preset: str) -> Settings:
        """Return the settings of a preset."""
        return look_up(self.presets, preset, "preset", f" of {self.name}")

    def differences(self, preset: str) -> dict[str, tuple[Any, Any]]:
        """Return the settings in which a preset differs from "paper": its own value and that of "paper".

        Examples
        --------
        >>> from gaussify.experiments import get
        >>> get("speed").differences("laptop")
        {'n_repeats': (5, 10)}
        """
        own, paper = self.settings(preset), self.settings("paper")
        names = [name for name in dict.fromkeys([*own, *paper]) if own.get(name) != paper.get(name)]
        return {name: (own.get(name), paper.get(name)) for name in names}


def presets(common: Settings, **own: Settings) -> dict[str, Settings]:
    """Return the settings of each preset: its own, and those that all presets have in common.

    Examples
    --------
    >>> presets({"n_rows": 400}, smoke={"n_rows": 60, "n_seeds": 1}, laptop={"n_seeds": 5})
    {'smoke': {'n_rows': 60, 'n_seeds': 1}, 'laptop': {'n_rows': 400, 'n_seeds': 5}}
    """
    return {name: {**common, **settings} for name, settings in own.items()}


_EXPERIMENTS: dict[str, Experiment] = {}


def register(experiment: Experiment) -> Experiment:
    """Add an experiment to the table, under its name."""
    if experiment.name in _EXPERIMENTS:
        raise InvalidArgumentError(f"There is already an experiment called {experiment.name!r}.")
    _EXPERIMENTS[experiment.name] = experiment
    return experiment


def get(name: str) -> Experiment:
    """Return the experiment of this name; the error for an unknown name suggests the nearest one."""
    return look_up(dict(sorted(_EXPERIMENTS.items())), name, "experiment")


def all_experiments() -> list[Experiment]:
    """Return every registered experiment, by name."""
    return [_EXPERIMENTS[name] for name in sorted(_EXPERIMENTS)]


def look_up(table: Mapping[str, Value], name: str, kind: str, where: str = "") -> Value:
    """Return the value under a name; the error for an unknown name suggests the nearest one, or lists all names."""
    if name in table:
        return table[name]
    nearest = difflib.get_close_matches(name, table, n=1)
    known = ", ".join(repr(key) for key in table)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"choose one of {known}."
    raise InvalidArgumentError(f"There is no {kind} {name!r}{where}; {hint}")
