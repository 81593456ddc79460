import re
from pathlib import Path

import matplotlib
import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_code_of_the_readme_runs_from_top_to_bottom():
    matplotlib.use("Agg")
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert len(blocks) >= 4
    assert names["metrics"].accuracy(names["probs"], names["y"]) > 0.95


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_first_commands_of_the_readme_are_demo_and_test(command):
    first_block = re.search(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert command in first_block.group(1)
