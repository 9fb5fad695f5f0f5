# Everything a developer runs. `make help` lists it.
# A fresh machine needs Python 3.11 to 3.13, JDK 17 and make; the rest comes from the package registries.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.9
SETUP := $(VENV)/.setup
JVM_JAR := src/lakefeed/lakefeed-jvm.jar
VENDOR := packages/dashboard/src/lakefeed_dashboard/static/vendor
# Each worker has servers and a Spark session of its own. WORKERS=0 runs the tests one after the other.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup jvm page demo examples bench test test-general-path test-runtimes test-jvm test-unit test-full test-all faults mutants audit wheels lint docs docs-site screenshots clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 14

setup: $(SETUP) jvm page ## environment in .venv, locked jars in the per-user cache, the JVM module, charts, references
	@$(BIN)/python -m tools.references

$(SETUP): pyproject.toml uv.lock $(wildcard packages/*/pyproject.toml)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet uv==$(UV_VERSION)
	$(BIN)/uv sync --frozen --quiet
	@touch $(SETUP)

jvm: $(SETUP) ## build the JVM module if its sources changed
	@$(BIN)/python tools/build_jvm.py

page: $(SETUP) ## fetch the chart library of the dashboard's page
	@$(BIN)/python -m tools.build_page

demo: setup ## the main job from end to end on the embedded stack, verified
	$(BIN)/lakefeed local demo $(ARGS)

bench: setup ## a measurement against real servers: ARGS="s3-requests --workload steady", ARGS=--help lists them
	$(BIN)/lakefeed-bench $(ARGS)

test: setup ## lint, types, all unit tests, and each feature once on real servers: 8 minutes
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint test-jvm
	$(PYTEST) -m "quick and not slow" $(ARGS)

test-full: setup ## the tests that make test leaves out, but for the slow ones: half an hour; CI runs both
	$(PYTEST) -m "not quick and not slow" $(ARGS)

test-general-path: setup ## the tests of feeds with fast_path: off; ARGS="tests/faults/test_kill_points.py" runs some
	LAKEFEED_TESTS_FAST_PATH=off $(PYTEST) -m "not slow" $(if $(ARGS),,tests/faults tests/integration) $(ARGS)

test-runtimes: setup ## the quick tests on Python 3.12 and 3.13, Java 21, Iceberg 1.11: ARGS="java-21 -- tests/spark" runs some
	$(BIN)/python -m tools.runtimes $(ARGS)

test-jvm: setup ## the JVM module's unit tests: seconds; NAMES="Position Ledger" runs some
	@$(BIN)/python -m tools.test_jvm $(NAMES)

test-unit: setup ## the tests that need no JVM: seconds
	$(PYTEST) tests/unit $(ARGS)

test-all: setup lint test-jvm ## all tests, the slow ones too: stores built from source, long runs, notebooks
	$(BIN)/uv sync --frozen --quiet --group notebooks --group servers
	$(PYTEST) $(ARGS)

examples: setup ## run every example on real servers and show the results: ARGS="anomaly taxi" runs some
	$(BIN)/python -m tools.examples $(ARGS)

faults: setup ## kills and bad days of servers at random: SEEDS=3 draws three seeds, SEED=17 repeats one
	SEEDS="$(SEEDS)" SEED="$(SEED)" $(PYTEST) tests/faults/test_sweep.py -s $(ARGS)

mutants: setup ## disable each guard in turn in a copy; the tests must notice: ARGS="fence topic" runs some
	$(BIN)/python -m tools.mutants $(ARGS)

audit: setup ## a bill of materials of both locks, and the known vulnerabilities in it: ARGS=--offline asks no service
	$(BIN)/python -m tools.audit $(ARGS)

wheels: setup ## the source archive and the wheels of core and plug-ins, in dist/
	$(BIN)/python -m tools.build_wheels

lint: setup ## formatting, style, layers, words, lines of each part, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	@$(BIN)/python tools/check_words.py
	@$(BIN)/python tools/check_sql.py
	@$(BIN)/python tools/check_sizes.py
	$(BIN)/mypy

docs: setup ## regenerate what docs/ has from the code, and the locks of the image
	$(BIN)/python -m tools.generate_docs
	$(BIN)/python tools/lock_requirements.py

docs-site: setup ## the documentation as a site in build/site, searchable; a broken link fails it
	$(BIN)/uv sync --frozen --quiet --inexact --group site
	$(BIN)/python -m tools.build_site

screenshots: setup ## take the pictures of dashboard and terminal again, of real feeds
	LAKEFEED_SCREENSHOTS=$(CURDIR)/docs/images $(BIN)/python -m pytest packages/dashboard/tests/browser/test_screenshots.py tests/integration/test_terminal_picture.py

clean: ## remove what was built; the per-user cache stays
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis $(JVM_JAR) packages/*/src/*/lakefeed-*.jar bench/src/*/lakefeed-*.jar $(VENDOR) \
	  docs/pipeline-reference.md docs/commands.md docs/metrics-reference.md docs/python-reference.md docs/errors.md
