# Two commands do everything on a fresh machine: make demo and make test.
PYTHON ?= python3
BIN := .venv/bin
# Threads that wait do not spin: with other programs on the same cores that makes torch many times slower.
export OMP_WAIT_POLICY ?= passive
# Compiled Python is kept, whatever the environment says: else each program that a test starts compiles the package anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo test format bench clean

help:
	@echo "make demo    learn a group of 60 states from short strings, test it on long ones, prove it (2 minutes)"
	@echo "make test    every check: format, lint, types, tests"
	@echo "make setup   the environment alone, in .venv"
	@echo "make format  put the code into the house format"
	@echo "make bench   the benchmarks of this machine"
	@echo "make clean   remove .venv and what the tools left behind"

# The environment is made anew whenever what it is made from changes.
.venv/done: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sdssm needs Python 3.11 or later; set PYTHON=")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

setup: .venv/done

demo: setup
	$(BIN)/python examples/demo.py

test: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal --quiet

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup
	$(BIN)/python benchmarks/tasks.py
	$(BIN)/python benchmarks/scan.py --sections targets
	$(BIN)/python -m benchmarks.train

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
