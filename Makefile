# `make` prints what there is. Nothing here needs root.
#
# PYTHON       the interpreter that .venv is made with
# TORCH_INDEX  where torch comes from, if not from pip's own index; for the small CPU build:
#              make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu
# PYTEST_ARGS  passed to pytest:
#              make test PYTEST_ARGS='-k collectives -x'
# TESTS        how many tests run at a time
# PART         of `make slow`, such as 3/7: every seventh test function; MINUTES: begin none after so many
# MINUTES      how long a soak takes; SEED: of its plan, else a random one (in `make slow` the day's)
# EVENTS       in place of that, one run with so many resizes, kills, hand-overs and coordinator kills
# BUDGETS      in place of that, so many runs under random budgets and deaths
# MUTANTS      how many faults `make mutants` seeds

PYTHON ?= python3
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
PYTEST_ARGS ?=
TESTS ?= 2
PART ?=
MINUTES ?= 10
EVENTS ?=
BUDGETS ?=
MUTANTS ?= 200
SEED ?=

# Compiled files are kept, whatever the environment says: the tests start hundreds of programs.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

# A stamp says that its part of the environment is there; pyproject.toml makes the parts old.
MADE := $(VENV)/.made
TORCH_MADE := $(VENV)/.torch
DEMO_MADE := $(VENV)/.demo
TEST_MADE := $(VENV)/.test
FAST_MADE := $(VENV)/.fast
SLOW_MADE := $(VENV)/.slow

# What numba compiles.
COMPILED := src/dayfly/compiled.py src/dayfly/native.py $(wildcard src/dayfly/wire/loop/*.py) \
            $(wildcard src/dayfly/planning/choose/pipelines/*kernels.py) src/dayfly/planning/choose/pipelines/compiled.py

# Commands that the tests run, each with the Debian package that it comes with.
PROGRAMS := chromium:chromium tc:iproute2 redis-server:redis-server openssl:openssl
INSTALL_PROGRAMS := apt-get update && apt-get install -y --no-install-recommends

define CHECK_PYTHON
import os, sys
if sys.version_info < (3, 11):
    sys.exit("dayfly needs Python 3.11 or newer, but %s is %d.%d: install one, then make PYTHON=python3.X"
             % (sys.argv[1], sys.version_info[0], sys.version_info[1]))
try:
    import ensurepip, venv
except ImportError:
    name = os.path.basename(sys.argv[1])
    exact = name if name.startswith("python3") else "python3.%d" % sys.version_info[1]
    sys.exit("dayfly needs Python's venv package: sudo apt install %s-venv" % exact)
endef
export CHECK_PYTHON

.DEFAULT_GOAL := help
.PHONY: help venv demo test quick slow coverage costs mutants programs soak pictures docs lint format clean
# Each of the processes gets an equal part of the tests; who has done its own takes of another's.
PYTEST = $(BIN)/python -m pytest -n $(TESTS) --dist worksteal

help:  ## this list
	@sed -n 's/^\([a-z]*\):[^#]*##  */  make \1	/p' $(MAKEFILE_LIST)

venv: $(DEMO_MADE) $(FAST_MADE)  ## .venv with dayfly, what the demo needs, and a planner that is compiled
	@echo "dayfly is installed: $(BIN)/dayfly"

demo: $(DEMO_MADE)  ## train a small CNN on handwritten digits, on four local functions
	@$(BIN)/dayfly demo

test: TESTS = 4  # of the whole suite half are waiting for something
test: $(TEST_MADE) $(FAST_MADE) programs  ## the test suite, lint and type checks included
	@$(PYTEST) -m 'not slow' $(PYTEST_ARGS)

quick: $(TEST_MADE) $(FAST_MADE)  ## its pure tests, and a few runs that pass through each room
	@$(PYTEST) -m 'quick or not (slow or long)' $(PYTEST_ARGS)

slow: $(SLOW_MADE) programs  ## what is too slow for `make test`, or statistical; PART=2/7 of it
	@$(PYTEST) -m slow $(if $(PART),--part $(PART)) $(if $(SEED),--seed $(SEED)) \
		$(if $(filter command environment,$(origin MINUTES)),--minutes $(MINUTES)) $(PYTEST_ARGS)

coverage: $(TEST_MADE) programs  ## branches that run in the tests' own processes, by room
	@mkdir -p build
	@$(PYTEST) -m 'not slow' --cov dayfly --cov-branch --cov-report json:build/coverage.json $(PYTEST_ARGS)
	@$(BIN)/python -m tests.coverage build/coverage.json

costs: $(TEST_MADE) programs  ## CPU seconds of the suite by room, file and test: which cost most
	@mkdir -p build && rm -f build/costs.jsonl
	@$(PYTEST) -m 'not slow' --costs build/costs.jsonl $(PYTEST_ARGS)
	@$(BIN)/python -m tests.costs build/costs.jsonl

mutants: $(TEST_MADE) programs  ## MUTANTS=200 seeded faults: how many the rooms' own tests find
	@mkdir -p build
	@$(BIN)/python -m tests.mutants --number $(MUTANTS) --output build/mutants.jsonl $(if $(SEED),--seed $(SEED))

# Root gets what is missing; others are told, and the tests that need it are skipped.
programs:
	@missing=; for one in $(PROGRAMS); do command -v "$${one%%:*}" > /dev/null || missing="$$missing $${one##*:}"; done; \
	[ -z "$$missing" ] && exit; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		echo "installing$$missing"; \
		export DEBIAN_FRONTEND=noninteractive; log=$$(mktemp); \
		( $(INSTALL_PROGRAMS)$$missing ) > "$$log" 2>&1 || cat "$$log" >&2; rm -f "$$log"; \
	else \
		echo "to run all tests: sudo sh -c '$(INSTALL_PROGRAMS)$$missing'" >&2; \
	fi

soak: $(TEST_MADE)  ## ten minutes (or MINUTES=...) of random deaths: same bits, nothing left behind
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) \
		$(if $(EVENTS),--events $(EVENTS)) $(if $(BUDGETS),--budgets $(BUDGETS))

pictures: $(TEST_MADE) programs  ## the pictures of the docs again: the papers' figures, a run's report
	@$(BIN)/dayfly bench papers --pictures docs/papers
	@rm -rf build/pictured
	@$(BIN)/dayfly train examples/digits.py --workers 4 --batch-size 128 --run-dir build/pictured \
		--lifetime 9 --uplink 20 --downlink 20 --latency 10
	@$(BIN)/dayfly report build/pictured
	@chromium --headless=new --disable-gpu --hide-scrollbars --window-size=1200,760 \
		$(if $(filter 0,$(shell id -u)),--no-sandbox) --screenshot=docs/report.png \
		file://$(CURDIR)/build/pictured/report.html

docs: $(TEST_MADE)  ## the documentation as a site, in build/site; warnings are errors
	@$(BIN)/python docs/generated.py
	@$(BIN)/python -m sphinx -q -W --keep-going -n -d build/doctrees docs build/site
	@echo "the site: build/site/index.html"

lint: $(TEST_MADE)  ## ruff and mypy, as the tests run them
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(TEST_MADE)  ## sort imports and lay out the code
	@$(BIN)/ruff check --select I --fix .
	@$(BIN)/ruff format .

clean:  ## remove .venv, caches and build outputs; the runs stay
	@rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(MADE):
	@command -v $(PYTHON) > /dev/null || \
		{ echo "dayfly needs Python 3.11 or newer: sudo apt install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) -c "$$CHECK_PYTHON" $(PYTHON)
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# torch comes first and by itself, so that which build it is does not depend on the rest.
$(TORCH_MADE): $(MADE) pyproject.toml
	@echo "installing $(TORCH); this takes a few minutes"
	@$(PIP) install $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $(TORCH)
	@touch $@

$(DEMO_MADE): $(TORCH_MADE)
	@echo "installing dayfly"
	@$(PIP) install -e '.[digits]'
	@touch $@

$(TEST_MADE): $(TORCH_MADE)
	@echo "installing dayfly and its test tools"
	@$(PIP) install -e '.[digits,dev]'
	@touch $(DEMO_MADE) $@

$(SLOW_MADE): $(TEST_MADE)
	@echo "installing trainers that scripts use"
	@$(PIP) install -e '.[digits,dev,trainers]'
	@touch $@

# What numba compiles is kept beside the loops, for this CPU: no plan has to wait for it.
$(FAST_MADE): $(DEMO_MADE) $(COMPILED)
	@$(PIP) install -e '.[digits,fast]'
	@$(BIN)/python -m dayfly.planning.choose.pipelines.compiled
	@touch $@
