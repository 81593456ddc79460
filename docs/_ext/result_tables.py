"""Directives that show what is committed under ``results/``, so that no number of a page can drift from it.

``result-table`` shows rows and columns of an experiment's ``summary.csv``; ``experiment`` its title, command, files
and figures; ``experiment-list`` all experiments that there are.
"""

import json
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from result_files import RESULTS, command, markdown_row, read_metadata, run_time, table
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gaussify.exceptions import InvalidArgumentError
from gaussify.experiments import Experiment, all_experiments, get


class ShowResults(SphinxDirective):
    """What the directives share."""

    def depend_on(self, experiment: str) -> None:
        """Have the page built anew when the results change."""
        for name in ("summary.csv", "metadata.json"):
            self.env.note_dependency(str(RESULTS / experiment / "laptop" / name))

    def parse(self, lines: list[str]) -> list[nodes.Node]:
        """Return Markdown as nodes."""
        container = nodes.container()
        self.state.nested_parse(StringList(lines, source=self.env.docname), self.content_offset, container)
        return container.children


class ResultTable(ShowResults):
    """Rows and columns of a committed ``summary.csv``, and below them the command that made it."""

    required_arguments = 1
    option_spec: ClassVar = {
        "columns": directives.unchanged_required,
        "where": directives.unchanged_required,
        "rename": directives.unchanged_required,
        "digits": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        """Return the table and its source."""
        (experiment,) = self.arguments
        self.depend_on(experiment)
        try:
            lines = table(experiment, self.options)
        except (OSError, LookupError) as error:
            raise self.error(f"{experiment}: {error}") from error
        link = f"[all of it](../results/{experiment}/laptop/summary.csv)"
        return self.parse([*lines, "", f"*Made by* `{command(experiment)}`: {link}."])


class ShowExperiment(ShowResults):
    """Title, command, cost and files of an experiment, and its figures."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return what is known about the experiment."""
        try:
            experiment = get(self.arguments[0])
        except InvalidArgumentError as error:
            raise self.error(str(error)) from error
        self.depend_on(experiment.name)
        lines = [f"*{experiment.title}.*", "", "```sh", command(experiment.name), "```", "", *presets(experiment), ""]
        folder, metadata = RESULTS / experiment.name / "laptop", read_metadata(experiment.name)
        if metadata is None:
            return self.parse([*lines, "No results are committed yet."])
        files = sorted(path.name for path in folder.iterdir() if path.suffix in {".csv", ".json"})
        links = ", ".join(f"[{name}](../results/{experiment.name}/laptop/{name})" for name in files)
        commits = ", ".join(sorted({session["git_commit"][:7] for session in metadata["sessions"]}))
        lines += [f"`laptop`: {run_time(metadata)}, commit {commits}. Files: {links}.", ""]
        for path in sorted(folder.glob("*.png")):
            lines += [f"![{path.stem}](../results/{experiment.name}/laptop/{path.name})", ""]
        return self.parse(lines)


def presets(experiment: Experiment) -> list[str]:
    """Return a table of what differs between the presets ``laptop`` and ``paper``."""
    laptop, paper = (experiment.settings(name) for name in ("laptop", "paper"))
    rows = [["tasks", *(str(len(experiment.tasks(settings))) for settings in (laptop, paper))]]
    for name, values in experiment.differences("laptop").items():
        rows.append([f"`{name}`", *(f"`{json.dumps(value)}`" for value in values)])
    return [markdown_row(["", "`laptop`", "`paper`"]), markdown_row(["---"] * 3), *map(markdown_row, rows)]


class ExperimentList(ShowResults):
    """All experiments that ``gaussify list`` names, with what their committed run took."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        lines = [markdown_row(["experiment", "what it shows", "`laptop` took"]), markdown_row(["---"] * 3)]
        for experiment in all_experiments():
            self.depend_on(experiment.name)
            metadata = read_metadata(experiment.name)
            took = "not committed" if metadata is None else run_time(metadata)
            lines.append(markdown_row([f"[{experiment.name}](#{experiment.name})", experiment.title, took]))
        return self.parse(lines)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directives."""
    app.add_directive("result-table", ResultTable)
    app.add_directive("experiment", ShowExperiment)
    app.add_directive("experiment-list", ExperimentList)
    return {"parallel_read_safe": True}
