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

# How pip installs into .venv: the versions of constraints.txt. Compiling the 19,000 Python files of all packages would take
# most of a minute; Python compiles a file when it is first imported.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
ASSETS := src/sdssm/report/page/assets

.PHONY: help setup demo quick check pytest test test-gpu test-install browser chromium web web-check docs gallery notebooks format bench audit dist clean

help:
	@echo "make demo          train on a group of 60 states from short strings, test on long ones, prove a length, and write a page about it (2 minutes)"
	@echo "make setup         create the environment in .venv (the other targets do it when needed)"
	@echo "make quick         while editing: format, lint, types, and the tests listed in tests/quick.txt (30 seconds)"
	@echo "make test          before a change lands: format, lint, types, all tests (9 to 13 minutes on two cores)"
	@echo "make test-gpu      the tests of kernels, models and training on a GPU, with .venv or GPU_PYTHON=python3"
	@echo "make test-install  install from the package index and use it, also with the oldest versions (minutes, 2 GB)"
	@echo "make browser       install what the tests in a browser need: Chromium (Debian's packages) and playwright"
	@echo "make web           build the scripts of the report page from web/ (needs node and npm; the result is committed)"
	@echo "make web-check     check that the committed scripts are those that web/ builds"
	@echo "make docs          build the documentation site in site/ (half a minute; site/index.html, python3 -m http.server -d site to search)"
	@echo "make gallery       train, measure and draw the nine tasks of the gallery in docs/gallery (half an hour without its runs)"
	@echo "make notebooks     execute the notebooks of the documentation (a minute)"
	@echo "make format        format the code and apply the linter's fixes"
	@echo "make bench         run the benchmarks on this machine"
	@echo "make audit         ask for known vulnerabilities of the pinned packages (needs network and pipx)"
	@echo "make dist          build the wheel and the source distribution in dist/"
	@echo "make clean         remove .venv and caches"

# The environment is created again when its definition changes. Of sktime only a data set is used, see
# examples/time_series.py; what sktime needs in turn is left out.
.venv/done: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sdssm needs Python 3.11 or later; set PYTHON=")'
	@echo 'installing the environment in .venv (a minute)'
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable '.[dev]'
	$(INSTALL) --no-deps sktime
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

pytest: setup
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal --quiet

test: check pytest

test-gpu:
	$(GPU_PYTHON) -c 'import sys, torch; sys.exit(None if torch.cuda.is_available() else "torch finds no GPU here")'
	PYTHONPATH=src $(GPU_PYTHON) -m pytest --quiet $(GPU_TESTS)

test-install: setup
	$(BIN)/python -m tests.install_from_index $(if $(INSTALL_TESTS),--tests $(INSTALL_TESTS))

# Playwright downloads no browser: Chromium comes from the system's packages.
.venv/browser-done: .venv/done
	$(INSTALL) --editable '.[browser]'
	@touch $@

chromium:
	@tests/browser/install_chromium.sh

browser: chromium .venv/browser-done
	$(BIN)/python -m tests.browser

# Neither the package nor the demo needs node: what it builds is committed.
web/node_modules/.package-lock.json: web/package-lock.json
	@web/check_node.sh
	cd web && npm ci --no-audit --no-fund
	@touch $@

web: web/node_modules/.package-lock.json
	cd web && npm run build

web-check: web/node_modules/.package-lock.json
	web/compare_assets.sh $(ASSETS)

# The site and the notebooks need packages of their own, which make setup leaves out.
.venv/docs-done: .venv/done
	$(INSTALL) --editable '.[docs]'
	@touch $@

docs: .venv/docs-done
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "The documentation is in site/index.html; to search it: python3 -m http.server -d site"

# Trains the runs that are missing in runs/gallery. The page, the pictures and the report are committed, the runs are not.
gallery: setup
	$(BIN)/python -m docs.site.gallery

notebooks: .venv/docs-done
	$(BIN)/python -m docs.site.notebooks

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup
	$(BIN)/python benchmarks/tasks.py
	$(BIN)/python benchmarks/scan.py --sections targets
	$(BIN)/python -m benchmarks.train

# Not a part of make test: it asks the package index, and its answer changes from day to day.
audit:
	pipx run pip-audit --disable-pip --no-deps --requirement constraints.txt

dist: setup
	rm -rf dist
	$(BIN)/python -m hatchling build

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis demo examples-output dist site .cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
