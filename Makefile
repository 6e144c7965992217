# Everything a newcomer needs: Python 3.11+, make and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Exactly the versions of the lock file; what builds the package is installed first, for the same reason.
INSTALL := -m pip install --quiet --disable-pip-version-check
LOCKED := $(BIN)/python $(INSTALL) -c requirements-dev.lock

.PHONY: setup demo test check docs bench pages peers-env reproduce verify test-gpu test-bounds fuzz test-oldest lock licences sbom release clean

setup: $(READY)

$(READY): pyproject.toml requirements-dev.lock
	$(PYTHON) -c 'import sys; sys.exit("fastgcn needs Python 3.11 or newer: make PYTHON=python3.11 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(LOCKED) hatchling editables
	$(LOCKED) --no-build-isolation -e '.[dev]'
	touch $(READY)

demo: setup
	$(BIN)/fastgcn info digits
	$(BIN)/fastgcn train digits --epochs 60

test: setup
	$(BIN)/python -m pytest -n 2

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff check --preview --select PLW1514 src benchmarks tools
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# The site, in build/site: pages of the code are made anew and notebooks are run. Needs no network but for
# the first line; 70 MB, which is why `make setup` leaves it out.
docs: setup
	$(LOCKED) --no-build-isolation -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Measures what results/ lacks or what is stale there, and writes the pages in docs/.
bench: setup
	for name in import tables generate accuracy estimators speed; do $(BIN)/python -m benchmarks $$name || exit 1; done

# Writes the same pages from what is on file: needed when code has changed and results are stale.
pages: setup
	for name in import tables generate accuracy peers loader estimators speed 'speed --device cuda' reproduce readme; do \
	    $(BIN)/python -m benchmarks $$name --show >/dev/null || exit 1; done

# DGL, which benchmarks compare with, in an environment of its own: 5 GB with the CUDA libraries of torch 2.2.
PEERS ?= .venv-peers
peers-env:
	python3.11 -m venv $(PEERS)
	$(PEERS)/bin/python $(INSTALL) dgl==2.1.0 torch==2.2.1 torchdata==0.7.1 'numpy<2' pydantic pyyaml pandas \
	    scikit-learn scipy
	@echo 'Now: FASTGCN_DGL_PYTHON=$(PEERS)/bin/python python -m benchmarks peers'

reproduce: setup
	$(BIN)/python -m benchmarks reproduce

# The headline scores, trained again, in intervals of those on file (half an hour on two cores with the rest). And
# what the ordinary tests do in part, in full: the tutorial on 200,000 customers and 2 million payments, every
# damaged file, every network on the GPU interpreter, examples and studies in several processes.
verify: setup
	$(BIN)/python -m benchmarks verify
	FASTGCN_VERIFY=1 $(BIN)/python -m pytest -s tests/test_tutorial.py tests/fuzz tests/data/test_damaged_store.py \
	    tests/data/test_damaged_shards.py tests/train/test_damaged_run.py tests/train/test_unfinished.py tests/backends \
	    tests/serve/test_process.py tests/benchmarks/test_serve.py tests/test_examples.py tests/tuning/test_tune.py

test-gpu: setup
	$(BIN)/python -m pytest tests/backends/gpu

# Kernels that check every index. Compiled code is cached by its source, so it has a cache of its own.
test-bounds: setup
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(CURDIR)/build/bounds $(BIN)/python -m pytest -n 2 tests/kernels \
	    tests/proofs tests/data/test_store.py tests/data/test_damaged_store.py tests/data/test_damaged_shards.py \
	    tests/backends/ranks/test_shard.py

# The oldest versions that pyproject.toml allows, on Python 3.11; torch and triton stay at their pins,
# because older builds for the CPU are not on the usual index: torch 2.2 brings 2.5 GB of CUDA.
# Warnings are no errors here: old versions warn about newer ones of each other.
OLDEST := .venv-oldest
OLDEST_TESTS ?= tests/graph tests/data tests/kernels tests/model tests/cli tests/infer tests/train \
    tests/report/test_page.py tests/report/test_plots.py tests/test_estimator.py tests/test_text.py
test-oldest: setup
	python3.11 -m venv $(OLDEST)
	$(BIN)/python -m tools.dependencies oldest $(OLDEST)/oldest.txt
	$(OLDEST)/bin/python $(INSTALL) -c $(OLDEST)/oldest.txt '.[tensorboard,networkx,pyg]' \
	    pytest pytest-xdist pytest-timeout hypothesis jsonschema psutil
	PYTHONPATH=src:. NUMBA_CACHE_DIR=$(OLDEST)/numba $(OLDEST)/bin/python -m pytest -n 2 -o filterwarnings=default $(OLDEST_TESTS)

# About an hour on two cores: CASES of each format, from the case numbered SEED, then Atheris.
CASES ?= 60000
SEED ?= $(shell date +%s)
PARSERS := npy json manifest pickle npz toml assignment table nodes
fuzz: setup
	$(LOCKED) --no-build-isolation -e '.[fuzz]'
	$(BIN)/python -m tests.fuzz all --cases $(CASES) --seed $(SEED) --jobs 2
	for name in $(PARSERS); do \
	    $(BIN)/python -m tests.fuzz.parsers $$name -runs=$(CASES) -seed=$(SEED) || exit 1; done

# Resolves pyproject.toml and constraints.txt anew, and writes requirements-dev.lock.
lock:
	$(BIN)/python -m tools.dependencies lock

# Writes THIRD-PARTY.md.
licences: setup
	$(BIN)/python -m tools.dependencies licences

sbom: setup
	$(BIN)/python -m tools.dependencies sbom dist/fastgcn.cdx.json

# The wheel, the source and a software bill of materials, with their checksums, in dist/.
release: setup
	rm -rf dist
	$(BIN)/python -m hatchling build
	$(MAKE) sbom
	cd dist && sha256sum * > SHA256SUMS

clean:
	rm -rf $(VENV) $(OLDEST) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
