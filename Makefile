# Everything a newcomer needs: Python 3.11+, make and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test check bench pages reproduce test-gpu fuzz clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("fastgcn needs Python 3.11 or newer: make PYTHON=python3.11 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

demo: setup
	$(BIN)/fastgcn info digits
	$(BIN)/fastgcn train digits --epochs 60

test: setup
	$(BIN)/python -m pytest -n 2

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff check --preview --select PLW1514 src benchmarks
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Measures what results/ lacks or what is stale there, and writes the pages in docs/.
bench: setup
	for name in import generate accuracy estimators speed; do $(BIN)/python -m benchmarks $$name || exit 1; done

# Writes the same pages from what is on file: needed when code has changed and results are stale.
pages: setup
	for name in import generate accuracy estimators speed 'speed --device cuda' 'reproduce --readme README.md'; do \
	    $(BIN)/python -m benchmarks $$name --show >/dev/null || exit 1; done

reproduce: setup
	$(BIN)/python -m benchmarks reproduce --readme README.md

test-gpu: setup
	$(BIN)/python -m pytest tests/backends/gpu

# About an hour on two cores: CASES of each format, from the case numbered SEED, then Atheris.
CASES ?= 60000
SEED ?= $(shell date +%s)
PARSERS := npy json manifest pickle npz toml assignment table nodes
fuzz: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fuzz]'
	$(BIN)/python -m tests.fuzz all --cases $(CASES) --seed $(SEED) --jobs 2
	for name in $(PARSERS); do \
	    $(BIN)/python -m tests.fuzz.parsers $$name -runs=$(CASES) -seed=$(SEED) || exit 1; done

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
