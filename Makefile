# Every target prepares the machine itself: system packages, .venv, then the work.
# PYTHON=python3.12 chooses another interpreter, PYTEST_ARGS="-n 0 -k window" other ways to run the tests.
PYTHON ?= python3
# Two processes for each processor: tests wait for two fifths of their time. Each begins with tests that lie
# beside each other, which share what they prepare.
TESTERS := $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))
IN_PARALLEL := -n $(TESTERS) --dist worksteal
# Tests start commands by the hundred, each of which would compile the sources anew.
export PYTHONDONTWRITEBYTECODE :=
VENV   := .venv
BIN    := $(VENV)/bin
SOURCES := softswitch controller hostlib bmv2_topos ina examples benchmarks p4src tests docs

.PHONY: help demo test slow thorough lint check docs bench bench-schedulers experiments-quick clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    train on 4 workers, every gradient summed in a P4 switch; no root needed"
	@echo "make test    run the tests, except the slow ones"
	@echo "make slow    run the slow tests: other launchers, installed packages, runs of pages, kills of machines"
	@echo "make thorough   run all tests, and try every random case, where 'make test' and 'make slow' try a share"
	@echo "make lint    formatting, lint rules and types"
	@echo "make check   make lint, then make test"
	@echo "make docs    the pages of docs/ as a site: build/site/index.html"
	@echo "make bench   pipeline, allreduce (beside gloo), several jobs at once, fallback server"
	@echo "make bench-schedulers   the scheduling tables, on shipped samples; TRACES=DIR: on the public traces"
	@echo "make experiments-quick   a short trial of every page of benchmarks/pages"
	@echo "make clean   remove .venv and build products"

demo: $(VENV)/examples
	$(BIN)/ina demo

test: $(VENV)/dev
	$(BIN)/python -m pytest $(or $(PYTEST_ARGS),$(IN_PARALLEL) -m "not slow")

slow: $(VENV)/dev
	$(BIN)/python -m pytest $(IN_PARALLEL) -m slow

thorough: $(VENV)/dev
	$(BIN)/python -m pytest $(or $(PYTEST_ARGS),$(IN_PARALLEL)) --thorough

lint: $(VENV)/dev
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

check: lint test

# Material warns of MkDocs 2, which the extra excludes.
docs: $(VENV)/dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

bench: $(VENV)/bench
	$(BIN)/ina bench pipeline --lanes 256
	$(BIN)/ina bench pipeline --lanes 32
	$(BIN)/ina bench pipeline --program shared --lanes 256
	$(BIN)/ina bench allreduce -np 4 --size 64MB --baseline gloo,openmpi,mpich
	$(BIN)/ina bench allreduce -np 4 --size 4KB --baseline gloo,openmpi,mpich
	$(BIN)/python -m benchmarks.speed fallback

# RESULTS=docs/results writes the published pages anew.
RESULTS ?= build/results
experiments-quick: $(VENV)/dev
	$(BIN)/python -m benchmarks.pages all --quick --output $(RESULTS)

bench-schedulers: $(VENV)/dev
	$(BIN)/python -m benchmarks.speed grouping --jobs 1000
	$(BIN)/python -m benchmarks.speed schedulers
	$(BIN)/python -m benchmarks.schedulers.reproduce $(if $(TRACES),--traces $(TRACES)) --output $(RESULTS)
	$(BIN)/python -m benchmarks.schedulers.sharing models
	$(BIN)/python -m benchmarks.schedulers.sharing schedule --seeds 5

clean:
	rm -rf $(VENV) build *.egg-info hostlib/_native/*.so

# The host library needs a C compiler, and the switch is slow without; venv is a package of its own on Debian.
$(VENV)/created: Makefile
	@if ! command -v cc >/dev/null || ! $(PYTHON) -c 'import ensurepip' 2>/dev/null; then \
	    apt="apt-get"; [ "$$(id -u)" = 0 ] || apt="sudo -n apt-get"; \
	    $$apt update -qq && $$apt install -y -qq python3 python3-venv gcc libc6-dev \
	    || { echo "install these, then run make again: python3-venv gcc libc6-dev"; exit 1; }; \
	fi
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/examples: $(VENV)/created pyproject.toml
	@echo "installing into $(VENV), and compiling: this takes some minutes"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[examples]'
	@touch $@

# The CPU build of torch lets the gloo comparison be tested too; few indexes offer it, so it may be missing.
$(VENV)/dev: $(VENV)/created pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@$(BIN)/python -c 'import torch' 2>/dev/null \
	    || $(BIN)/python -m pip install --quiet --disable-pip-version-check 'torch==2.13.0+cpu' 2>/dev/null \
	    || echo "no CPU build of torch here: the comparison with gloo is not tested"
	@command -v mnexec >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get install -y -qq --no-install-recommends mininet >/dev/null 2>&1; } \
	    || echo "no Mininet here: testbeds in it are not tested"
	@touch $@

$(VENV)/bench: $(VENV)/created pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[examples,bench]'
	@touch $@
