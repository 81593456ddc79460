"""What the documentation promises, as far as that can be checked without building it."""

import doctest
import importlib
import importlib.util
import re
from pathlib import Path

import pytest

from gaussify.experiments import all_experiments

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
PROSE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "GLOSSARY.md", "CHANGELOG.md")] + PAGES
EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))
MOST_WORDS = 30  # of a sentence

PAPER = DOCS / "paper.md"


def load(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


api_pages, result_files = load("api_pages"), load("result_files")


def directives(page: Path, name: str) -> list[tuple[str, dict[str, str]]]:
    """Argument and options of every directive of this name on a page."""
    blocks = re.findall(rf"```{{{name}}} (\S+)\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [(argument, dict(re.findall(r":(\w+): (.+)", options))) for argument, options in blocks]


TABLES = [
    pytest.param(experiment, options, id=f"{page.stem}-{experiment}-{number}")
    for page in PAGES
    for number, (experiment, options) in enumerate(directives(page, "result-table"))
]


@pytest.mark.parametrize("module", [api_pages, result_files], ids=lambda module: module.__name__)
def test_the_examples_of_the_extensions_hold(module):
    done = doctest.testmod(module)
    assert done.attempted > 0
    assert done.failed == 0


@pytest.mark.parametrize("module", api_pages.public_modules())
def test_every_public_name_is_on_the_page_of_its_module(module):
    page = api_pages.page(module)
    missing = [name for name in importlib.import_module(module).__all__ if not re.search(rf"(?<!\w){name}(?!\w)", page)]
    assert missing == []


def test_the_public_modules_are_those_that_promise_names():
    promised = {
        "gaussify",
        *(f"gaussify.{name}" for name in ("active", "datasets", "exceptions", "gp", "likelihoods", "linear")),
        *(f"gaussify.{name}" for name in ("matching", "metrics", "nn", "plotting", "posterior", "tables")),
        *("gaussify.interop.gpytorch", "gaussify.interop.river", "gaussify.linear.baselines", "gaussify.nn.functional"),
    }
    assert promised <= set(api_pages.public_modules())


def test_pages_are_written_once_and_removed_with_their_module(tmp_path):
    (tmp_path / "gaussify.gone.rst").write_text("no longer there")
    api_pages.write_pages(tmp_path)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert {path.stem for path in written} == {"index", *api_pages.public_modules()}
    api_pages.write_pages(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == written


@pytest.mark.parametrize(("experiment", "options"), TABLES)
def test_tables_of_results_find_their_rows_and_columns(experiment, options):
    assert len(result_files.table(experiment, options)) > 2


@pytest.mark.parametrize(
    "options", [{"columns": "no such column"}, {"columns": "model", "where": "model = no such model"}]
)
def test_tables_of_results_without_their_rows_or_columns_are_errors(options):
    with pytest.raises(LookupError, match="no such"):
        result_files.table("digits", options)


def test_every_experiment_has_a_section_of_its_own_for_those_who_read_the_paper():
    shown = re.findall(
        r"^### (\S+)\n\n```{experiment} (\S+)\n```$", PAPER.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert sorted(shown) == [(experiment.name, experiment.name) for experiment in all_experiments()]


def anchors(page: Path) -> set[str]:
    """Names under which the headings of a page can be linked to, as GitHub and Sphinx make them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_to_headings_lead_somewhere(page):
    links = re.findall(r"\]\(([\w-]+\.md)?#([\w-]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if link[1] not in anchors(DOCS / (link[0] or page.name))] == []


def sentences(text: str) -> list[str]:
    """Sentences of a page in Markdown; code, tables, formulas, pictures and headings are left out.

    An inline formula, a piece of code and the text of a link are kept as words. An item of a list begins a sentence.
    """
    text = re.sub(r"^(```+).*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL)
    text = re.sub(r"^(\||#|    ).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"!\[[^]]*\]\([^)]*\)|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"\$[^$]*\$", "formula", text)
    units = re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.)\s", text, flags=re.MULTILINE)
    found = (part.strip() for unit in units for part in re.split(r"(?<=[.!?])[\"*)]*\s+", unit))
    return [" ".join(part.split()) for part in found if part]


def too_long(text: str) -> list[str]:
    """Return the sentences that have more words than they may."""
    return [sentence for sentence in sentences(text) if len(re.findall(r"\w[^\s]*", sentence)) > MOST_WORDS]


def test_sentences_are_found_between_code_tables_and_formulas():
    page = "# Title\n\nSee [this page](page.md). Two:\n\n- an item, `some code`.\n\n| a | b |\n\n"
    page += "```sh\nls.\n```\n$$x.$$\nAnd $y$"
    assert sentences(page) == ["See this page.", "Two:", "an item, code.", "And formula"]


def test_a_sentence_that_is_too_long_is_found():
    assert too_long("One two. " + "word " * 31 + "end.") == ["word " * 31 + "end."]
    assert too_long("word " * 29 + "end.") == []


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.stem)
def test_sentences_of_the_guides_are_short(page):
    assert too_long(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_sentences_of_the_examples_are_short(example):
    text = example.read_text(encoding="utf-8")
    introduction = text.split('"""')[1].replace("::\n", ".\n").replace("=\n", "=\n\n")
    cells = [
        re.sub("^# ", "", cell, flags=re.MULTILINE) for cell in re.findall(r"^# %%\n((?:# .*\n)+)", text, re.MULTILINE)
    ]
    assert too_long("\n\n".join([introduction, *cells])) == []


def test_the_readme_fits_on_a_few_screens():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
