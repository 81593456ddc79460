"""What an experiment is, and the table of those there are."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gaussify.exceptions import InvalidArgumentError
from gaussify.experiments._lab._records import Record, Scalar

Task = Mapping[str, Scalar]
Settings = Mapping[str, Any]
Value = TypeVar("Value")

REQUIRED_PRESETS = ("smoke", "laptop", "paper")


@dataclass(frozen=True)
class Experiment:
    """One experiment: independent tasks that give records, and what is made of the records.

    Parameters
    ----------
    name, title
        The word given to ``gaussify reproduce``, and one line that says what is shown.
    presets
        Settings by preset, in values that JSON can hold; "smoke" (seconds, for tests), "laptop" and "paper"
        are required.
    tasks
        From the settings, the units of work: flat dictionaries such as
        ``{"dataset": "letter", "split": 3, "method": "variational"}``, all different.
    run
        From ``(settings, task, seed)``, the records of one task, as flat dictionaries of scalars. The columns
        of the task are added to each of them. The seed belongs to the task; what several tasks share, such as
        a data split, is to be drawn from a number in the task.
    draw
        From the records read back from the CSV file alone, figures written into a folder.
    summarise
        From the same records, those of the table that is printed and written to ``summary.csv``.
    check
        From the settings, an error with a remedy where data or packages are missing that every task needs; called once
        before the first of them.
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
        return look_up(self.presets, preset, f"preset of {self.name}")

    def differences(self, preset: str) -> dict[str, tuple[Any, Any]]:
        """Return the settings in which a preset differs from "paper": its value, and that of "paper".

        Examples
        --------
        >>> from gaussify.experiments import get
        >>> get("speed").differences("laptop")
        {'n_repeats': (5, 10)}
        """
        own, paper = self.settings(preset), self.settings("paper")
        names = [name for name in dict.fromkeys([*own, *paper]) if own.get(name) != paper.get(name)]
        return {name: (own.get(name), paper.get(name)) for name in names}


_EXPERIMENTS: dict[str, Experiment] = {}


def register(experiment: Experiment) -> Experiment:
    """Add an experiment to the table, under its name."""
    if experiment.name in _EXPERIMENTS:
        raise InvalidArgumentError(f"There is already an experiment called {experiment.name!r}.")
    _EXPERIMENTS[experiment.name] = experiment
    return experiment


def get(name: str) -> Experiment:
    """Return the experiment of this name.

    Examples
    --------
    >>> from gaussify.experiments import get
    >>> get("densties")
    Traceback (most recent call last):
        ...
    gaussify.exceptions.InvalidArgumentError: 'densties' is no experiment; did you mean 'densities'?
    """
    return look_up(_EXPERIMENTS, name, "experiment")


def all_experiments() -> list[Experiment]:
    """Return every registered experiment, by name."""
    return [_EXPERIMENTS[name] for name in sorted(_EXPERIMENTS)]


def look_up(table: Mapping[str, Value], name: str, kind: str) -> Value:
    """Return the value under a name; an unknown name is answered with the nearest, or with all there are."""
    if name in table:
        return table[name]
    nearest = difflib.get_close_matches(name, table, n=1)
    known = ", ".join(repr(key) for key in table)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {known}."
    raise InvalidArgumentError(f"{name!r} is no {kind}; {hint}")
