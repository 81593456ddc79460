from fresh_python import in_fresh_python


def test_metrics_and_plotting_load_neither_scikit_learn_nor_matplotlib():
    program = (
        "import sys, gaussify.metrics, gaussify.plotting\n"
        "print(sorted({'sklearn', 'matplotlib', 'pandas'} & set(sys.modules)))"
    )
    assert in_fresh_python(program) == "[]"
