# Everything a newcomer needs: Python 3.11+, make and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test check bench test-gpu clean

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
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Each script prints one JSON object a line; the lines are kept.
bench: setup
	mkdir -p results
	$(BIN)/python benchmarks/bench_import.py | tee -a results/import.jsonl
	$(BIN)/python benchmarks/bench_generate.py | tee -a results/generate.jsonl
	$(BIN)/fastgcn bench accuracy
	$(BIN)/fastgcn bench accuracy --preset best
	$(BIN)/fastgcn bench estimators
	$(BIN)/fastgcn bench speed

test-gpu: setup
	$(BIN)/python -m pytest tests/gpu tests/test_gpu.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
