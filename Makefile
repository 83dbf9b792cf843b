# On a fresh machine two commands are enough: make demo and make test.
PYTHON ?= python3
BIN := .venv/bin
# Waiting threads sleep instead of spinning: with other programs on the same cores, spinning makes torch many times slower.
export OMP_WAIT_POLICY ?= passive
# Keep compiled Python files even if the environment forbids it; otherwise each program that a test starts compiles the package.
export PYTHONDONTWRITEBYTECODE :=
# The GPU tests also run where nothing can be installed: torch, triton, numpy, safetensors and pytest are enough.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
GPU_TESTS ?= tests/ops tests/layers tests/laws tests/models tests/tasks tests/training tests/evaluation

.PHONY: help setup demo quick check test test-gpu test-install format bench dist clean

help:
	@echo "make demo          train on a group of 60 states from short strings, test on long ones, prove a length (2 minutes)"
	@echo "make setup         create the environment in .venv (the other targets do it when needed)"
	@echo "make quick         while editing: format, lint, types, and the tests listed in tests/quick.txt (30 seconds)"
	@echo "make test          before a change lands: format, lint, types, all tests (8 minutes on two cores)"
	@echo "make test-gpu      the tests of kernels, models and training on a GPU, with .venv or GPU_PYTHON=python3"
	@echo "make test-install  install from the package index and use it, also with the oldest versions (minutes, 2 GB)"
	@echo "make format        format the code and apply the linter's fixes"
	@echo "make bench         run the benchmarks on this machine"
	@echo "make dist          build the wheel and the source distribution in dist/"
	@echo "make clean         remove .venv and caches"

# The environment is created again when its definition changes. Of sktime only a data set is used, see
# examples/time_series.py; what sktime needs in turn is left out.
.venv/done: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sdssm needs Python 3.11 or later; set PYTHON=")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps --no-compile sktime
	@touch $@

setup: .venv/done

demo: setup
	$(BIN)/python examples/demo.py

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

quick: check
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal --quiet @tests/quick.txt

test: check
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal --quiet

test-gpu:
	$(GPU_PYTHON) -c 'import sys, torch; sys.exit(None if torch.cuda.is_available() else "torch finds no GPU here")'
	PYTHONPATH=src $(GPU_PYTHON) -m pytest --quiet $(GPU_TESTS)

test-install: setup
	$(BIN)/python -m tests.install_from_index $(if $(INSTALL_TESTS),--tests $(INSTALL_TESTS))

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup
	$(BIN)/python benchmarks/tasks.py
	$(BIN)/python benchmarks/scan.py --sections targets
	$(BIN)/python -m benchmarks.train

dist: setup
	rm -rf dist
	$(BIN)/python -m hatchling build

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis demo examples-output dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
