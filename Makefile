# `make run` and `make test` need only Python 3.11 (or 3.10) and make: they install what is missing first.
# To create .venv with another interpreter: make test PYTHON=/path/to/python3.11, after make distclean.
# ARGS is passed to the command that a target runs: make test ARGS=tests/baselines.

.DEFAULT_GOAL := help
.PHONY: help install run demo test test-fast fuzz soak docs lint format bench lock clean distclean

PYTHON ?=
ARGS ?=
BIN := .venv/bin
# Closed forms, parsers, messages and formats; no training beyond a few steps, no pipeline and no server.
# Files of all packages that take at most 3 seconds each.
FAST := tests/test_codes.py tests/test_command_line.py tests/test_config.py tests/test_dependencies.py tests/test_files.py \
	tests/test_hashing.py tests/test_layers.py tests/test_losses.py tests/test_ops.py tests/test_optimizers.py tests/test_progress.py \
	tests/test_stored_rows.py tests/metrics tests/baselines/test_cca_hashers.py tests/baselines/test_pdh.py \
	tests/data/test_pairs.py tests/data/test_splits.py tests/data/test_tables.py tests/data/test_tfrecord.py \
	tests/experiments/test_paper.py tests/experiments/test_results.py tests/experiments/test_tables.py \
	tests/features/test_bag_of_words.py tests/features/test_descriptor.py tests/features/test_registry.py \
	tests/reports/test_html.py tests/search/test_filters.py tests/search/test_nearest.py tests/search/test_ranking.py \
	tests/search_service/test_pictures.py tests/serving/test_batcher.py tests/serving/test_json_codec.py \
	tests/serving/test_settings.py tests/training/test_dataset.py tests/training/test_evaluation.py \
	tests/training/test_run_folder.py tests/tuner/test_results.py tests/tuner/test_search_space.py \
	tests/pipeline/test_root.py tests/pipeline/components/test_pusher.py
COMPILE := $(BIN)/uv pip compile --quiet --python-platform x86_64-manylinux_2_28 --override overrides.txt \
	--custom-compile-command "make lock" requirements.in

# At each start TensorFlow reports missing GPU libraries as errors, which would hide our own lines.
export TF_CPP_MIN_LOG_LEVEL ?= 3

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

install:  ## create .venv and install the lock and the project, unless that is done
	@PYTHON="$(PYTHON)" sh scripts/install.sh

run: install  ## run the pipeline on the embedded emoji data set, into runs/pipeline/emoji
	@$(BIN)/python pipeline/run_local.py $(ARGS)

demo: install  ## build the model and index of the emoji if they are missing, and serve the search page
	@$(BIN)/python scripts/demo.py $(ARGS)

test: install  ## run the tests, on up to four cores
	@$(BIN)/python -m pytest --quiet --durations=10 --numprocesses=auto --maxprocesses=4 --dist=loadfile \
		--no-loadscope-reorder $(ARGS)

test-fast: install  ## run the quick tests of all packages, a verdict in 90 seconds on two cores
	@$(BIN)/python -m pytest --quiet --durations=5 --numprocesses=2 --dist=loadfile --no-loadscope-reorder \
		$(FAST) $(ARGS)

fuzz: install  ## send 100,000 random requests to each service, about 10 minutes
	@FUZZ_REQUESTS=100000 $(BIN)/python -m pytest --quiet -s tests/serving/test_fuzz.py tests/search_service/test_fuzz.py $(ARGS)

soak: install  ## inject faults into everything for hours; ARGS="--corruptions 200 --kills 20 --fault-seed 1"
	@$(BIN)/python -m pytest --quiet --no-header --capture=no tests/faults --soak $(ARGS)

lint: install  ## check style, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: install  ## fix style and format where that is safe
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

docs: install  ## build the documentation with an API reference into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: install  ## run every benchmark
	@for file in $$(grep -l '__main__' benchmarks/*.py); do \
		echo "== $$file"; $(BIN)/python $$file $(ARGS) || exit 1; \
	done

lock: install  ## compile both locks again; ARGS=--upgrade takes newer versions
	$(COMPILE) --python-version 3.11 --output-file requirements.txt $(ARGS)
	$(COMPILE) --python-version 3.10 --output-file requirements-3.10.txt $(ARGS)

clean:  ## remove caches and build products; .venv and results stay
	@rm -rf build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -path ./.venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## also remove .venv
	@rm -rf .venv
