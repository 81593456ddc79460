"""Files about the project agree with each other: versions, make targets, hooks and bounds of dependencies."""

import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from gaussify import __version__

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *GITHUB.rglob("*.md")]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIREMENTS = [
    Requirement(text)
    for texts in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for text in texts
    if Requirement(text).name != PROJECT["name"]  # extras name each other
]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def load(path: Path):
    return yaml.safe_load(read(path))


# --- versions ------------------------------------------------------------------------------------------------------


def test_the_version_and_its_date_are_the_same_everywhere():
    citation = load(ROOT / "CITATION.cff")
    assert citation["version"] == __version__
    released = re.search(r"^## (\d\S*) \((\d{4}-\d\d-\d\d)\)$", read(ROOT / "CHANGELOG.md"), flags=re.MULTILINE)
    assert released, "CHANGELOG.md has no section such as '## 0.1.0 (2026-11-19)'"
    assert released.groups() == (__version__, citation["date-released"])


def test_the_licence_is_that_of_the_project():
    assert load(ROOT / "CITATION.cff")["license"] == PROJECT["license"]


# --- make ----------------------------------------------------------------------------------------------------------

TARGETS = set(re.findall(r"^([a-z][a-z-]*):", read(ROOT / "Makefile"), flags=re.MULTILINE))


def make_commands(text: str) -> set[str]:
    """Targets of the commands in a text: what begins a line of code, or a span of code."""
    return set(re.findall(r"(?:^\s*|`|run: )make (?:[A-Z]+=\S+ )*([a-z][a-z-]*)", text, flags=re.MULTILINE))


@pytest.mark.parametrize(
    "path", [*WORKFLOWS, ROOT / ".ci" / "run", *PAGES], ids=lambda path: str(path.relative_to(ROOT))
)
def test_make_commands_have_a_target(path):
    assert make_commands(read(path)) <= TARGETS


def test_make_commands_are_found():
    assert make_commands("`make check` is quick\n  run: make docs\nmake PYTHON=python3.12 test\nmakes make up") == {
        "check",
        "docs",
        "test",
    }


def test_the_workflow_runs_what_a_change_must_pass():
    assert make_commands(read(GITHUB / "workflows" / "test.yml")) >= {"test", "coverage", "oldest", "docs", "dist"}


# --- continuous integration ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_job_checks_out_the_code_before_it_runs_something(path):
    for job in load(path)["jobs"].values():
        first, *others = job["steps"]
        assert first["uses"].startswith("actions/checkout@")
        assert any("run" in step for step in others)


def test_the_tests_run_on_the_oldest_python_that_is_supported():
    versions = load(GITHUB / "workflows" / "test.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert f">={versions[0]}" == PROJECT["requires-python"]
    assert versions == sorted(versions, key=Version)


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms_ask_something(path):
    form = load(path)
    assert {"name", "description", "body"} <= set(form)
    assert all(part["attributes"]["label"] and part["type"] == "textarea" for part in form["body"])
    assert any(part.get("validations", {}).get("required") for part in form["body"])


HOOKS = [hook for repo in load(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_hooks_call_commands_of_the_environment_that_make_check_calls_too(hook):
    pytest.importorskip("importlinter", reason="needs the extra dev")
    folder, _, command = hook["entry"].split()[0].rpartition("/")
    assert (folder, hook["language"]) == (".venv/bin", "system")
    assert shutil.which(command, path=Path(sys.executable).parent)
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", read(ROOT / "Makefile"), flags=re.MULTILINE).group(1)
    assert f"$(BIN)/{command}" in recipe


WHOLE = [hook for hook in HOOKS if not hook.get("pass_filenames", True)]


@pytest.mark.parametrize("hook", WHOLE, ids=lambda hook: hook["id"])
def test_hooks_for_the_whole_package_also_run_if_only_their_settings_change(hook):
    assert all(re.search(hook["files"], path) for path in ("src/gaussify/__init__.py", "pyproject.toml"))
    assert not re.search(hook["files"], "README.md")


# --- dependencies --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=str)
def test_every_dependency_has_a_lower_bound(requirement):
    """Which the tests with the oldest versions install."""
    assert any(specifier.operator in (">=", "==") for specifier in requirement.specifier)


def test_pinned_versions_are_within_the_bounds():
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", read(ROOT / "constraints.txt"), flags=re.MULTILINE))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    for requirement in REQUIREMENTS:
        version = pins.get(canonicalize_name(requirement.name))
        assert version is None or requirement.specifier.contains(version), requirement
