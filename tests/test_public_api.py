import doctest
import importlib
import inspect

import pytest

import gaussify
from fresh_python import in_fresh_python

PACKAGES = [
    "gaussify",
    "gaussify.active",
    "gaussify.datasets",
    "gaussify.gp",
    "gaussify.interop.gpytorch",
    "gaussify.likelihoods",
    "gaussify.linear",
    "gaussify.linear.baselines",
    "gaussify.matching",
    "gaussify.metrics",
    "gaussify.nn",
    "gaussify.nn.functional",
    "gaussify.plotting",
    "gaussify.posterior",
    "gaussify.tables",
]
PUBLIC = sorted(
    {
        f"{package}.{name}"
        for package in PACKAGES
        for name in importlib.import_module(package).__all__
        if inspect.isclass(value := getattr(importlib.import_module(package), name)) or inspect.isfunction(value)
    }
)
HEAVY = ["gpytorch", "matplotlib", "pandas", "polars", "pyarrow", "river", "sklearn", "typer"]
ESTIMATORS = {
    "ActiveLearner",
    "BayesianLogisticRegression",
    "GPClassifier",
    "LastLayer",
}  # which load scikit-learn and what it loads
LIGHT = ", ".join(sorted(set(gaussify.__all__) - ESTIMATORS))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_in_all_exists(package):
    module = importlib.import_module(package)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_all_has_no_repeats(package):
    names = importlib.import_module(package).__all__
    assert len(names) == len(set(names))


def test_the_promised_names_are_public():
    promised = {
        "BayesianLogisticRegression",
        *("match", "to_basis", "register_match", "metrics"),
        *("SoftmaxLikelihood", "LogisticLikelihood", "PoissonLikelihood", "BinomialLikelihood"),
        *("GPClassifier", "MatchedCrossEntropyLoss", "MatchedBCEWithLogitsLoss", "LastLayer", "ActiveLearner"),
    }
    assert promised <= set(gaussify.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_have_a_docstring_with_an_example(name):
    package, _, attribute = name.rpartition(".")
    docstring = inspect.getdoc(getattr(importlib.import_module(package), attribute)) or ""
    examples = doctest.DocTestParser().get_examples(docstring)
    assert any(example.want for example in examples), f"{name} shows no example with a result"


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_explain_themselves_in_a_sentence(name):
    package, _, attribute = name.rpartition(".")
    docstring = inspect.getdoc(getattr(importlib.import_module(package), attribute)) or ""
    assert docstring.splitlines()[0].strip().endswith((".", ":"))


def heavy_after(imports: str) -> str:
    return in_fresh_python(f"import sys; {imports}; print(sorted(set({HEAVY}) & set(sys.modules)))")


def test_import_loads_none_of_the_heavy_packages():
    packages = "gaussify.interop, gaussify.metrics, gaussify.plotting"
    assert heavy_after(f"from gaussify import {LIGHT}; import {packages}") == "[]"


def test_the_check_of_heavy_packages_can_fail():
    assert heavy_after("import typer, gaussify") == "['typer']"


def test_import_takes_at_most_three_tenths_of_a_second_beyond_torch():
    program = (
        f"import time, torch; start = time.process_time(); from gaussify import {LIGHT}; "
        "print(time.process_time() - start)"
    )
    assert min(float(in_fresh_python(program)) for _ in range(3)) < 0.3  # the best: other work only ever adds time
