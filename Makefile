# Two commands do everything on a new machine: `make demo` and `make test`.
# Every target makes the virtual environment first when it is missing or out of date.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SPARK := $(VENV)/.spark
# For example PYTEST_ARGS="-k bundle", or --require-components, which fails instead of skipping.
PYTEST_ARGS ?=
# A file's tests share what is costly to make, so they stay in one process.
SPREAD ?= --numprocesses auto --maxprocesses 4 --dist loadfile
BENCH_ARGS ?=

.PHONY: help demo test test-live lint bench smoke proto docs clean

help:
	@echo "make demo       the main job from end to end, in under four minutes"
	@echo "make test       all tests but the live ones"
	@echo "make test-live  tests with real servers, clients and other environments"
	@echo "make lint       ruff and mypy"
	@echo "make bench      every benchmark, and the claims that do not hold (BENCH_ARGS=--quick)"
	@echo "make smoke      every benchmark and reproduction at tiny sizes; fails where one crashes"
	@echo "make proto      regenerate monitor/wire from proto/"
	@echo "make docs       regenerate the pages that are made from code, and the pictures"
	@echo "make clean      remove what these commands made"

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "evenhand needs Python 3.11 or newer; try make PYTHON=python3.11"; exit 1; }
	@echo "== making $(VENV) (a few minutes the first time: torch is large)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on \
		--constraint constraints.txt --editable '.[audit,dev]'
	@touch $@

# Spark is large, and only the live tests want it.
$(SPARK): $(READY)
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on \
		--constraint constraints.txt --editable '.[spark]'
	@touch $@

demo: $(READY)
	$(BIN)/evenhand demo --out build/demo

test: $(READY)
	$(BIN)/python -m pytest -m "not live" $(SPREAD) $(PYTEST_ARGS)

test-live: $(SPARK)
	$(BIN)/python -m pytest -m live $(SPREAD) $(PYTEST_ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

smoke: $(READY)
	$(BIN)/python -m benchmarks --smoke

proto: $(READY)
	$(BIN)/python -m grpc_tools.protoc -Imonitor/wire=proto --python_out=. --pyi_out=. \
		--grpc_python_out=. monitor/wire/open_inference.proto monitor/wire/evenhand.proto

docs: $(READY)
	$(BIN)/evenhand config reference > docs/reference/config.md
	$(BIN)/python -m benchmarks.pictures

clean:
	rm -rf $(VENV) .cache build evenhand-demo dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
