"""Running the tasks of an experiment so that a run can be killed, resumed and traced.

A folder ``OUT/NAME/PRESET`` holds ``results.csv`` (the records, task after task), ``metadata.json`` (what
made them, with one entry for each finished task), ``summary.csv`` and the figures. A task is done when its entry in
``metadata.json`` and all its rows exist; anything else is dropped and run again.
"""

import hashlib
import json
import platform
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gaussify._atomic import only_one, write_bytes
from gaussify.exceptions import GaussifyError, InvalidArgumentError
from gaussify.experiments._lab._bars import bars_in
from gaussify.experiments._lab._records import Record, format_value, read_records, write_records
from gaussify.experiments._lab._registry import Experiment, Settings, Task, look_up
from gaussify.experiments._lab._scratch import remove_scratch

RESULTS, SUMMARY, METADATA = "results.csv", "summary.csv", "metadata.json"


class TaskFailedError(GaussifyError, RuntimeError):
    """At least one task of an experiment raised; the first error is the cause."""


def run(
    experiment: Experiment,
    preset: str,
    out: Path,
    seed: int = 0,
    *,
    fresh: bool = False,
    dataset: str | None = None,
    console: Console | None = None,
) -> Path:
    """Run the tasks that are not done yet, and return the folder of the results.

    Parameters
    ----------
    experiment, preset
        The experiment to run, and with which settings.
    out
        The results go to the folder ``NAME/PRESET`` below this one.
    seed
        The seed of each task follows from this number and the task.
    fresh
        If true, earlier results and scratch files are removed, and the run starts over.
    dataset
        If given, only the tasks with this value in their column "dataset" are run, and removed by ``fresh``.
    console
        Shows the progress; by default, it writes to standard error.

    Raises
    ------
    InvalidArgumentError
        If the folder holds results made with other settings or another seed.
    GaussifyError
        If data or packages are missing that all tasks need. Nothing has been run or removed then.
    TaskFailedError
        If tasks failed. The others have been run, and their results are kept.
    """
    folder = result_folder(experiment, preset, out)
    settings = experiment.settings(preset)
    tasks = experiment.tasks(settings)
    if len({_key(task) for task in tasks}) < len(tasks):
        raise InvalidArgumentError(f"Two tasks of {experiment.name} are the same.")
    wanted = tasks if dataset is None else _tasks_of(experiment, preset, tasks, dataset)
    console, check = console or Console(stderr=True), experiment.check or (lambda settings: None)
    with _alone_in(folder):
        if fresh:
            check(settings)  # before anything is removed
        if fresh and dataset is None:
            for name in (RESULTS, SUMMARY, METADATA):  # figures will be replaced, and other files are not ours
                (folder / name).unlink(missing_ok=True)
            remove_scratch(experiment.name, settings)
        identity = {"experiment": experiment.name, "preset": preset, "settings": settings, "seed": seed}
        log = _RunLog(folder, json.loads(json.dumps(identity)), tasks)
        if fresh and dataset is not None:
            log.forget(wanted)
        pending = [task for task in wanted if not log.has(task)]
        if pending:
            if not fresh:
                check(settings)
            choice = "" if dataset is None else f" --dataset {dataset}"
            log.start_session(f"gaussify reproduce {experiment.name} --preset {preset} --seed {seed}{choice}")
            _tell_differences(experiment, preset, console)
            failures = _run_tasks(experiment, settings, pending, seed, log, console)
            log.finish_session([task for task, _ in failures])
            if failures:
                task, error = failures[0]
                others = f" and {len(failures) - 1} more" if len(failures) > 1 else ""
                n_done = len(wanted) - len(failures)
                raise TaskFailedError(
                    f"Task {_failure(task, error)}{others}; {n_done} done and kept, run again to retry the rest."
                ) from error
        if all(log.has(task) for task in tasks):  # what a killed run left, and what tasks shared
            remove_scratch(experiment.name, settings)
    return folder


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Make a folder and lock it against other runs."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(only_one(folder, waits=False))
        except BlockingIOError as error:
            raise GaussifyError(f"Another run writes to {folder}: wait for it, or choose another --out.") from error
        yield


def result_folder(experiment: Experiment, preset: str, out: Path) -> Path:
    """Return the folder of an experiment's results; it need not exist yet."""
    experiment.settings(preset)
    return out / experiment.name / preset


def load(folder: Path) -> list[Record]:
    """Return the records that a run left in ``folder``."""
    path = folder / RESULTS
    if not path.exists():
        raise InvalidArgumentError(f"There is no {RESULTS} in {folder} yet; run the experiment first.")
    return read_records(path)


def task_seed(seed: int, task: Task) -> int:
    """Return the seed of a task: 32 bits that depend on ``seed`` and on the task, not on its position in a list.

    Examples
    --------
    >>> task_seed(0, {"split": 1, "method": "moment"}) == task_seed(0, {"method": "moment", "split": 1})
    True
    >>> task_seed(0, {"split": 1}) == task_seed(0, {"split": 2})
    False
    """
    return int.from_bytes(hashlib.sha256(f"{seed} {_key(task)}".encode()).digest()[:4], "big")


class _RunLog:
    """The two files of a run, ``results.csv`` and ``metadata.json``, which always change together.

    Both are replaced as a whole, and hold the finished tasks in the order of the experiment.
    """

    def __init__(self, folder: Path, identity: dict[str, Any], tasks: Sequence[Task]) -> None:
        self._keys = [_key(task) for task in tasks]
        self._results, self._metadata = folder / RESULTS, folder / METADATA
        self._data: dict[str, Any] = identity | {"n_tasks": len(tasks), "sessions": [], "tasks": [], "failed": []}
        self._done: dict[str, tuple[dict[str, Any], list[Record]]] = {}  # entries and rows
        if self._results.exists():
            self._resume(folder, identity)

    def has(self, task: Task) -> bool:
        return _key(task) in self._done

    def forget(self, tasks: Sequence[Task]) -> None:
        """Drop the rows and the entries of these tasks."""
        if dropped := self._done.keys() & {_key(task) for task in tasks}:
            self._done = {key: done for key, done in self._done.items() if key not in dropped}
            self._save()

    def start_session(self, command: str) -> None:
        self._data["sessions"].append({"started": _now(), "finished": None, "command": command, **_environment()})
        self._save()

    def add(self, task: Task, seed: int, records: Sequence[Record], seconds: float) -> None:
        entry = {"task": dict(task), "seed": seed, "rows": len(records), "seconds": round(seconds, 3)}
        self._done[_key(task)] = entry, list(records)
        self._save()

    def finish_session(self, failed: Sequence[Task]) -> None:
        self._data["failed"] = [dict(task) for task in failed]
        self._data["sessions"][-1]["finished"] = _now()
        self._save()

    def _resume(self, folder: Path, identity: Mapping[str, Any]) -> None:
        remedy = "add --fresh to start over, or choose another --out."
        if not self._metadata.exists():
            raise InvalidArgumentError(f"{folder} holds {RESULTS} without {METADATA}; {remedy}")
        try:
            found = json.loads(self._metadata.read_text(encoding="utf-8"))
        except json.JSONDecodeError:
            raise InvalidArgumentError(f"{self._metadata} is damaged; {remedy}") from None
        for name, value in identity.items():
            if found[name] != value:
                made_with = f"{name} {_short(found[name])}, not {_short(value)}"
                raise InvalidArgumentError(f"{folder} holds results made with {made_with}; {remedy}")
        if strange := [entry["task"] for entry in found["tasks"] if _key(entry["task"]) not in self._keys]:
            raise InvalidArgumentError(
                f"{folder} holds results of a task that {identity['experiment']} no longer has "
                f"({_words(strange[0])}); {remedy}"
            )
        self._data["sessions"] = found["sessions"]
        records, start = read_records(self._results), 0
        for entry in sorted(found["tasks"], key=lambda entry: self._keys.index(_key(entry["task"]))):
            own = entry["task"].items()
            first = next((place for place in range(start, len(records)) if own <= records[place].items()), start)
            rows = records[first : first + entry["rows"]]
            if len(rows) == entry["rows"] and all(own <= row.items() for row in rows):
                self._done[_key(entry["task"])] = entry, rows
                start = first + len(rows)
        if sum(len(rows) for _, rows in self._done.values()) < len(records):
            self._save()

    def _save(self) -> None:
        # Each task rewrites both files, which is cheap: tasks are few, and most take seconds to hours.
        done = [self._done[key] for key in self._keys if key in self._done]
        entries = [entry for entry, _ in done]
        seconds = sum(entry["seconds"] for entry in entries)
        self._data |= {"tasks": entries, "elapsed_seconds": round(seconds, 3)}
        # Rows first, entries second: a kill in between leaves rows without an entry, which _resume drops.
        if done or self._results.exists():
            write_records(self._results, [row for _, rows in done for row in rows])
        write_bytes(self._metadata, (json.dumps(self._data, indent=1) + "\n").encode())


def _tell_differences(experiment: Experiment, preset: str, console: Console) -> None:
    """Print how a preset differs from "paper", before a run that may take hours."""
    if differences := experiment.differences(preset):
        console.print(f"The preset {preset} differs from the preset paper:")
        for name, (own, paper) in differences.items():
            text = f"  {name}: {_setting(own, paper)} (paper: {_setting(paper, own)})"
            console.print(text, markup=False, highlight=False, soft_wrap=True)


def _setting(value: object, other: object) -> str:
    """Return a setting as text; ``other`` is its value in another preset."""
    return "all" if value is None and isinstance(other, int) else json.dumps(value)


def _run_tasks(
    experiment: Experiment, settings: Settings, tasks: Sequence[Task], seed: int, log: _RunLog, console: Console
) -> list[tuple[Task, Exception]]:
    failures: list[tuple[Task, Exception]] = []
    with _progress(console, experiment.name, len(tasks)) as report:
        for task in tasks:
            report(task, None)
            own_seed = task_seed(seed, task)
            torch.manual_seed(own_seed)  # so that code without its own generator repeats too
            start = time.perf_counter()
            try:
                records = _records_of(experiment, settings, task, own_seed)
            except Exception as error:  # a failure at night must not cost the tasks after it
                failures.append((task, error))
                console.print(f"[red]failed[/red] {escape(_failure(task, error))}", soft_wrap=True)
                if not isinstance(error, GaussifyError):
                    console.print(traceback.format_exc(), markup=False, soft_wrap=True)
            else:
                log.add(task, own_seed, records, time.perf_counter() - start)
                remove_scratch(experiment.name, settings, task)  # not before the result is on disk
            report(task, time.perf_counter() - start)
    return failures


def _records_of(experiment: Experiment, settings: Settings, task: Task, seed: int) -> list[Record]:
    records = experiment.run(settings, task, seed)
    if not records:
        raise InvalidArgumentError(f"A task of {experiment.name} gave no records.")
    for record in records:
        for name in task.keys() & record.keys():
            if record[name] != task[name]:
                raise InvalidArgumentError(f"A record of {experiment.name} changes the column {name!r} of its task.")
        for name, value in record.items():
            format_value(value, column=name)  # refused here, a bad value fails its task and not the file
    return [{**task, **record} for record in records]


@contextmanager
def _progress(console: Console, name: str, n_tasks: int) -> Iterator[Callable[[Task, float | None], None]]:
    """Yield a function to call before each task (with None) and after it (with its seconds).

    It shows a bar on a terminal, and prints lines elsewhere.
    """
    if not console.is_terminal:
        counter = iter(range(1, n_tasks + 1))

        def line(task: Task, seconds: float | None) -> None:
            if seconds is not None:
                console.print(escape(f"[{next(counter)}/{n_tasks}] {_words(task)} {seconds:.1f} s"), soft_wrap=True)

        yield line
        return
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    description = TextColumn("{task.description}", markup=False)
    with Progress(*columns, description, console=console) as progress, bars_in(progress):
        bar = progress.add_task(name, total=n_tasks)

        def advance(task: Task, seconds: float | None) -> None:
            progress.update(bar, description=f"{name} {_words(task)}", advance=0 if seconds is None else 1)

        yield advance


def _failure(task: Task, error: Exception) -> str:
    return f"({_words(task)}): {type(error).__name__}: {str(error).rstrip('.')}"


def _tasks_of(experiment: Experiment, preset: str, tasks: Sequence[Task], dataset: str) -> list[Task]:
    by_dataset: dict[str, list[Task]] = {}
    for task in tasks:
        if "dataset" in task:
            by_dataset.setdefault(str(task["dataset"]), []).append(task)
    if not by_dataset:
        raise InvalidArgumentError(f"{experiment.name} has no data sets to choose from; leave out --dataset.")
    return look_up(by_dataset, dataset, "data set", f" in {experiment.name} with the preset {preset}")


def _environment() -> dict[str, Any]:
    """Return versions and platform, and nothing that names a machine, a user or a folder."""
    commit = _git("rev-parse", "HEAD") if _git("ls-files", "--error-unmatch", Path(__file__).name) else None
    return {
        "git_commit": commit,
        "git_dirty": None if commit is None else _git("status", "--porcelain", "--", "../..") != "",
        "versions": {"python": platform.python_version()}
        | {package: _version(package) for package in ("gaussify", "torch", "numpy", "scipy")},
        "platform": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    """Return the output of git in the folder of this file, or None outside of a checkout of gaussify."""
    command = ["git", "--no-optional-locks", *arguments]
    try:
        answer = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()


def _key(task: Mapping[str, Any]) -> str:
    return json.dumps(task, sort_keys=True)


def _words(task: Task) -> str:
    return ", ".join(f"{name}={value}" for name, value in task.items())


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
