# make setup | demo | test | lint | docs | lock | clean      (Python 3.11 to 3.13, no root)
SHELL := /bin/bash
PYTHON ?= python3
CONFIG ?= config/demo.yaml
# processes that tests run in side by side; 0 is this one alone
TEST_JOBS ?= 2
# some tests only: files, or pytest's options
TESTS ?=
# every page is read, and every warning is an error
SPHINX := --nitpicky --fail-on-warning --fresh-env --quiet -c docs/site -d site/.doctrees . site
CORES ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
export KALDI_ROOT ?= unset

.PHONY: setup demo test test-fast mutants lint format docs reference screenshots lock bench-training clean

setup: $(BIN)/.installed

$(BIN)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(not (3, 11) <= v < (3, 14) and f"Python {v[0]}.{v[1]} found, 3.11 to 3.13 needed: make setup PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python envs/installed.py
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
	$(BIN)/python envs/compiled.py
	@touch $@

demo: setup
	$(BIN)/snakemake --profile local --cores $(CORES) --configfile $(CONFIG)
	@$(BIN)/hadpsgd report --config $(CONFIG) --show

test: setup
	$(BIN)/pytest -n $(TEST_JOBS) --dist loadscope --no-loadscope-reorder $(TESTS)

test-fast: setup
	$(BIN)/pytest -n $(TEST_JOBS) --dist loadscope --no-loadscope-reorder -m 'not slow'

# small faults put into a copy of the code: do the tests notice? (docs/mutants.md)
mutants: setup
	PYTHONPATH=tests $(BIN)/python -m mutants $(MUTANTS)

lint: setup
	$(BIN)/ruff check workflow tests benchmarks envs docs
	$(BIN)/ruff format --check workflow tests benchmarks envs docs
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow/Snakefile workflow/rules
	$(BIN)/snakemake --lint --configfile config/demo.yaml
	$(BIN)/sphinx-build $(SPHINX)

# the documentation as a site: site/index.html; a broken link or a page in no menu is an error
docs: setup
	$(BIN)/sphinx-build $(SPHINX)
	@echo "open site/index.html"

# docs/reference/: every key of the config and every command, from the code
reference: setup
	$(BIN)/python docs/site/reference.py

# docs/pictures/: pages of the finished workflow of CONFIG and of the site; needs chromium
screenshots: docs
	$(BIN)/python docs/make_screenshots.py --config $(CONFIG)

format: setup
	$(BIN)/ruff check --fix workflow tests benchmarks envs docs
	$(BIN)/ruff format workflow tests benchmarks envs docs
	$(BIN)/snakefmt Snakefile workflow/Snakefile workflow/rules

# resolves pyproject.toml's requirements anew; needs the package uv
lock:
	$(PYTHON) envs/lock.py

bench-training: setup
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/time_to_loss.py

clean:
	rm -rf results checkpoints mlflow.db mlartifacts .snakemake site
