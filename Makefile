# Everything runs in .venv, made on first use; it needs Python 3.11 or newer and make, and nothing else.
PYTHON ?= python3
VENV := .venv
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)
READY := $(VENV)/.ready

.PHONY: demo test test-slow coverage lowest lint format bench docs paper results dist clean

demo: $(READY)
	$(BIN)/tensorswitch compare --data digits

test: $(READY)
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow"  # a core for each worker

# A thousand examples of every property, damaged files, a hundred kills, the largest matrices.
test-slow: $(READY)
	$(BIN)/python -m pytest -m slow -o faulthandler_timeout=3600
	$(BIN)/python -m pytest -k "properties or fuzz" --hypothesis-profile slow -o faulthandler_timeout=3600

# Lines and branches that `make test` does not reach, in htmlcov/index.html.
coverage: $(READY)
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow" --cov --cov-report=term:skip-covered --cov-report=html $(TESTS)

# The tests with the lowest versions that pyproject.toml allows, in an environment of its own. Such versions warn about each other.
# TORCH=torch==2.13.0 takes another torch, where there is no build of the lowest one; TESTS=tests/nn runs a part.
LOWEST ?= .venv-lowest
TORCH ?= torch
lowest: $(LOWEST)/.ready
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(LOWEST)/$(SCRIPTS)/python -m pytest -n 2 --dist loadgroup -m "not slow" -o filterwarnings=default $(TESTS)

$(LOWEST)/.ready: pyproject.toml
	test -x $(LOWEST)/$(SCRIPTS)/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/$(SCRIPTS)/python -m pip install --quiet uv
	$(LOWEST)/$(SCRIPTS)/uv pip install --python $(LOWEST)/$(SCRIPTS)/python --quiet --resolution lowest-direct '$(TORCH)' --editable '.[test]'
	touch $@

# The wheel and the source distribution, checked.
dist:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	rm -rf dist
	$(BIN)/python -m pip install --quiet build twine
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	for script in benchmarks/[a-z]*.py; do $(BIN)/python -m benchmarks.$$(basename $$script .py) || exit 1; done

# Builds docs/_build/html, running the tutorials; warnings are errors. Needs no network once the packages are there.
docs: $(VENV)/.docs
	rm -rf docs/_build docs/api docs/gallery
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going --quiet docs docs/_build/html

# Runs the experiments of the paper that have no record yet, or goes on with them: about 16 hours on two cores in all.
paper: $(READY)
	$(BIN)/python -m reproduction all --scale small --out docs/results

# Moves new records to docs/results/runs.jsonl.gz and regenerates table, figures and report from it; runs no experiments.
results: $(READY)
	$(BIN)/python -m reproduction compact docs/results/runs
	$(BIN)/python -m reproduction all --scale small --out docs/results --no-run

clean:
	rm -rf $(VENV) $(LOWEST) .coverage* htmlcov .pytest_cache .mypy_cache .ruff_cache dist docs/_build docs/api docs/gallery

# torch comes first and pinned, so that set-up takes the build that the tests know and no newer one.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'tensorswitch needs Python 3.11 or newer; set PYTHON=/path/to/python3.11')"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,docs]'
	touch $@
