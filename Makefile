# The five commands a developer needs. Each sets up what it uses: `make test` on a fresh clone works.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DEMO_STAMP := .venv/.installed-demo

.PHONY: setup demo test check format bench clean

setup: $(STAMP)

# Whole or not at all: what a failure leaves would be taken for the environment next time.
$(BIN)/python:
	$(PYTHON) -m venv .venv || (rm -rf .venv; echo "python3-venv is missing: apt-get install python3-venv"; exit 1)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1" || (rm -rf .venv; exit 1)

# Only what the demo needs: no test tools, so that the first run on a new machine is short.
$(DEMO_STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[demo]"
	touch $@

$(STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[all-adapters]" --group dev
	touch $@ $(DEMO_STAMP)

demo: $(DEMO_STAMP)
	$(BIN)/sagehen demo

# By files, so that what a file's tests share is made once; the folders of short ones come last.
test: $(STAMP)
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)
	$(BIN)/python benchmarks/throughput.py

clean:
	rm -rf .venv build dist
