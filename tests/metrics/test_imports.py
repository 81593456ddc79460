import subprocess
import sys


def test_metrics_and_plotting_load_neither_scikit_learn_nor_matplotlib():
    program = (
        "import sys, gaussify.metrics, gaussify.plotting\n"
        "print(sorted({'sklearn', 'matplotlib', 'pandas'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
