import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


def run_code(page: Path, at_least: int = 2) -> dict[str, object]:
    """Names after all Python blocks of a page were run in one go."""
    matplotlib.use("Agg")
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= at_least
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page.name, "exec"), names)
    return names


def test_the_code_of_the_readme_runs_from_top_to_bottom():
    names = run_code(README)
    assert names["model"].score(names["X"][1::2], names["y"][1::2]) > 0.95
    assert names["stream"].n_rows_seen_ == 178


def test_the_code_of_the_four_files_runs_from_top_to_bottom():
    names = run_code(ROOT / "docs" / "how-it-works.md")
    assert (names["probs"].argmax(1).numpy() == names["y"]).mean() > 0.95


def test_the_code_about_networks_runs_from_top_to_bottom():
    names = run_code(ROOT / "docs" / "neural-networks.md")
    assert names["model"].head.n_rows_seen_ == 1500


def test_the_code_about_streams_runs_from_top_to_bottom():
    pytest.importorskip("river")
    names = run_code(ROOT / "docs" / "streaming.md")
    assert names["loss"][0.995] < names["loss"][1.0]


def test_the_code_about_gaussian_processes_runs_from_top_to_bottom():
    names = run_code(ROOT / "docs" / "gaussian-processes.md")
    assert names["custom"].score(names["X"], names["y"]) > 0.9


def test_the_code_about_active_learning_runs_from_top_to_bottom():
    names = run_code(ROOT / "docs" / "active-learning.md")
    assert names["learner"].estimator_.score(names["X"], names["y"]) > 0.85


def test_the_code_of_the_first_page_runs():
    names = run_code(ROOT / "docs" / "index.md", at_least=1)
    assert names["model"].score(names["X"], names["y"]) > 0.95


def test_the_code_of_the_tour_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the model is saved
    names = run_code(ROOT / "docs" / "tour.md")
    nll = [
        names["metrics"].nll(names[model].predict_proba(names["X_test"]), names["y_test"]) for model in ("gp", "model")
    ]
    assert nll[0] < nll[1] < 0.2


def test_the_code_about_tables_runs_from_top_to_bottom():
    pytest.importorskip("pandas")
    names = run_code(ROOT / "docs" / "tables.md")
    assert names["metrics"].nll(names["probs"], names["truth"]) < 0.6
    plt.close("all")


def test_the_code_of_the_derivations_holds():
    assert "left_out" in run_code(ROOT / "docs" / "derivations.md")


@pytest.mark.parametrize("page", [README, *(ROOT / "docs").glob("*.md")], ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page):
    targets = re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("command", ["pip install", "make demo", "make test"])
def test_the_readme_begins_with_installation_demo_and_tests(command):
    assert command in README.read_text(encoding="utf-8").split("\n## ")[0]


def test_the_commands_for_tables_run_as_they_are_typed(tmp_path):
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    section = README.read_text(encoding="utf-8").split("## A table")[1]
    commands = re.search(r"```sh\n(.*?)```", section, flags=re.DOTALL).group(1)
    functions = f'gaussify() {{ "{sys.executable}" -m gaussify "$@"; }}\npython() {{ "{sys.executable}" "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-e", "-c", functions + commands], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "rows learnt; " in done.stdout
    assert (tmp_path / "wine-model" / "report.html").exists()
