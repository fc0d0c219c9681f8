.PHONY: help setup demo test daily test-all check lint types imports unit spark bench first-hour docs lock hooks clean
.DEFAULT_GOAL := help

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -q
# On two cores: two workers and one for Spark, which mostly waits for the JVM.
WORKERS ?= 3

# Without byte code every worker and every process under test compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

help:  ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/make \1	\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: .venv/.ready  ## create .venv with the locked versions (every other target does it when needed)
.venv/.ready: pyproject.toml requirements-dev.lock scripts/setup.sh
	@bash scripts/setup.sh all,dev,bench ready

# The demo needs less: make test adds the rest to the same .venv.
.venv/.demo: pyproject.toml requirements-dev.lock scripts/setup.sh
	@bash scripts/setup.sh spark,iceberg demo

demo: .venv/.demo  ## write a lake and a table to demo/, ingest through Spark and show what queries skip
	@$(BIN)/python examples/demo.py demo

test: lint imports  ## run every check: lint, types, import rules and tests, with samples of the long suites
	@$(MAKE) --no-print-directory -j2 types daily

daily: setup
	$(PYTEST) -n $(WORKERS) --durations=25 -m "not slow"

test-all: check  ## run every check with the long suites in full (hours)
	SKIPSTONE_RANDOM=1 SKIPSTONE_CASES=20000 $(PYTEST) -n $(WORKERS) --durations=25

check: setup  ## lint, check types and import rules
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint types imports

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports --no-logo

unit: setup  ## run the tests that need no Java
	$(PYTEST) -n $(WORKERS) --durations=25 -m "not slow and not spark"

spark: setup  ## run the Spark tests
	$(PYTEST) --durations=25 -m "not slow" tests/spark

bench: setup  ## run every benchmark
	$(BIN)/python -m benchmarks.judge
	$(BIN)/python -m benchmarks.prune_file
	$(BIN)/python -m benchmarks.selective_reads
	$(BIN)/python -m benchmarks.full_scans
	$(BIN)/python -m benchmarks.semi_joins
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.index_build
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.planning
	$(BIN)/python -m benchmarks.iceberg_planning
	$(BIN)/python -m benchmarks.filtered_aggregation
	$(BIN)/python -m benchmarks.engine_bridges
	$(BIN)/python -m benchmarks.spark_reads
	$(BIN)/python -m benchmarks.ingest
	$(BIN)/python -m benchmarks.compaction
	$(BIN)/python -m benchmarks.keyed_tables
	$(BIN)/python -m benchmarks.overlay_scans
	$(BIN)/python -m benchmarks.plan_server

first-hour: setup  ## play a new user's first hour: install, base and with each extra, and run what README and docs show
	$(BIN)/python scripts/first_hour.py

docs: setup  ## build the documentation site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lock: setup  ## record the installed versions in requirements-dev.lock
	$(BIN)/python -m pip list --format=freeze --exclude-editable --exclude pip --exclude setuptools > requirements-dev.lock

hooks: setup  ## run the checks before every commit
	$(BIN)/pre-commit install

clean:  ## remove everything that is not in the repository
	rm -rf .venv demo build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
