# make demo   makes a lake, ingests through Spark, and shows what was skipped
# make test   every check: lint, types, import rules, tests (make test-all: the long suites too)
.PHONY: setup demo test test-all lint types imports unit spark bench docs clean
.DEFAULT_GOAL := test

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -q

setup: .venv/.ready
.venv/.ready: pyproject.toml scripts/setup.sh
	@bash scripts/setup.sh

demo: setup
	@$(BIN)/python examples/demo.py

# The JVM waits much, so Spark's tests run beside the others; each prints its results when it is done.
test: lint types imports
	@echo "Running the tests: results follow in several minutes ..."
	@$(MAKE) --no-print-directory -j2 --output-sync=target unit spark

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports

# The JVM's tests share one Spark session, so they run in one process of their own.
# A file's tests stay on one worker, which builds the file's lakes once.
unit: setup
	$(PYTEST) -n 2 --dist=loadfile --durations=25 -m "not slow and not spark"

spark: setup
	$(PYTEST) --durations=10 -m "spark and not slow"

test-all: lint types imports setup
	SKIPSTONE_RANDOM=1 SKIPSTONE_CASES=20000 $(PYTEST) -n 2 --dist=loadfile -m "not spark"
	$(PYTEST) -m spark

bench: setup
	$(BIN)/python -m benchmarks.judge
	$(BIN)/python -m benchmarks.prune_file
	$(BIN)/python -m benchmarks.selective_reads
	$(BIN)/python -m benchmarks.full_scans
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.index_build
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.planning
	$(BIN)/python -m benchmarks.iceberg_planning
	$(BIN)/python -m benchmarks.filtered_aggregation
	$(BIN)/python -m benchmarks.spark_reads
	$(BIN)/python -m benchmarks.ingest

docs: setup
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
