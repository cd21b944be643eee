# `make run` and `make test` need only Python 3.11 (or 3.10) and make: they install what is missing first.
# To create .venv with another interpreter: make test PYTHON=/path/to/python3.11, after make distclean.
# ARGS goes to the command that a target runs: make test ARGS=tests/baselines.

.DEFAULT_GOAL := help
.PHONY: help install run test lint format bench lock clean distclean

PYTHON ?=
ARGS ?=
BIN := .venv/bin
COMPILE := $(BIN)/uv pip compile --quiet --python-platform x86_64-manylinux_2_28 --override overrides.txt \
	--custom-compile-command "make lock" requirements.in

# TensorFlow tells of missing GPU libraries at each start, as errors: they would hide our own lines.
export TF_CPP_MIN_LOG_LEVEL ?= 3

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

install:  ## create .venv and install the lock and the project, unless that is done
	@PYTHON="$(PYTHON)" sh scripts/install.sh

run: install  ## run the pipeline on the embedded emoji data set, into runs/pipeline/emoji
	@$(BIN)/python pipeline/run_local.py $(ARGS)

test: install  ## run the tests, on up to four cores
	@$(BIN)/python -m pytest --quiet --durations=10 --numprocesses=auto --maxprocesses=4 --dist=loadfile \
		--no-loadscope-reorder $(ARGS)

lint: install  ## check style, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy cmimh_tf

format: install  ## fix style and format where that is safe
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

bench: install  ## run every benchmark
	@for file in $$(grep -l '__main__' benchmarks/*.py); do \
		echo "== $$file"; $(BIN)/python $$file $(ARGS) || exit 1; \
	done

lock: install  ## compile both locks again; ARGS=--upgrade takes newer versions
	$(COMPILE) --python-version 3.11 --output-file requirements.txt $(ARGS)
	$(COMPILE) --python-version 3.10 --output-file requirements-3.10.txt $(ARGS)

clean:  ## remove caches and build products; .venv and results stay
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -path ./.venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## also remove .venv
	@rm -rf .venv
