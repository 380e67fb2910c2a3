# The commands that a developer needs. Each sets up what it uses: `make test` on a fresh clone works.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DEMO_STAMP := .venv/.installed-demo
PROGRESS := $(PYTHON) scripts/progress.py

.PHONY: setup demo test test-pythons package check format changelog bench clean

setup: $(STAMP)

# Whole or not at all: what a failure leaves would be taken for the environment next time.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		(echo "Sagehen needs Python 3.11 or newer; this is $$($(PYTHON) --version)." \
		"Name another: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1)
	@echo "Making a virtual environment in .venv ..."
	@$(PYTHON) -m venv .venv || (rm -rf .venv; echo "python3-venv is missing: apt-get install python3-venv"; exit 1)
	@$(PROGRESS) "Updating pip" $(BIN)/python -m pip install --upgrade "pip>=25.1" || (rm -rf .venv; exit 1)

# Only what the demo needs: no test tools, so that the first run on a new machine is short.
$(DEMO_STAMP): pyproject.toml | $(BIN)/python
	@$(PROGRESS) "Installing Sagehen, XGBoost and scikit-learn into .venv (downloads 120 MB, takes 580 MB)" \
		$(BIN)/python -m pip install --editable ".[demo]"
	@touch $@

$(STAMP): pyproject.toml | $(BIN)/python
	@$(PROGRESS) "Installing Sagehen, all frameworks and the developer tools into .venv (several GB)" \
		$(BIN)/python -m pip install --editable ".[all-adapters]" --group dev
	@touch $@ $(DEMO_STAMP)

demo: $(DEMO_STAMP)
	@$(BIN)/sagehen demo

# By files, so that what a file's tests share is made once; the folders of short ones come last.
test: $(STAMP)
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# Installs the wheel for every Python that is found here, and runs it; then with the oldest libraries
# that its extras allow: minutes, and downloads.
test-pythons: $(STAMP)
	$(BIN)/python scripts/test_pythons.py
	INSTALL_FROM_INDEX=1 $(BIN)/python -m pytest tests/system/installed/test_readme_install.py

package: $(STAMP)
	$(BIN)/python -m build --no-isolation --outdir dist

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# At a release: moves the fragments in changelog.d into CHANGELOG.md.
changelog: $(STAMP)
	@test -n "$(VERSION)" || (echo "Name the version: make changelog VERSION=0.2.0"; exit 1)
	$(BIN)/towncrier build --yes --version $(VERSION)

bench: $(STAMP)
	$(BIN)/python benchmarks/throughput.py

clean:
	rm -rf .venv build dist
