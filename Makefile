# make run   the program on your own data      make test   everything that must be true
# make demo  the program on invented data      make bench  measurements, printed as ratios
#
# Needs Python 3.11 or newer with venv, nothing else. PYTHON names another interpreter, ARGS goes to the command:
#   make run PYTHON=python3.13 ARGS="--port 5000"
#
# Kept within GNU make 3.81, which macOS ships: no .ONESHELL, no $(file), no grouped targets.

PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: run demo test lint bench clean
.DEFAULT_GOAL := run
.DELETE_ON_ERROR:

run: $(VENV)/.installed
	@exec $(BIN)/opencode-memory serve $(ARGS)

demo: $(VENV)/.installed
	@exec $(BIN)/opencode-memory demo $(ARGS)

test: $(VENV)/.installed-test
	$(BIN)/python tests/e2e/ensure_browser.py
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	rm -rf test-results
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal $(ARGS)

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(VENV)/.installed-test
	@exec $(BIN)/python -m bench $(ARGS)

clean:
	rm -rf $(VENV) build dist test-results .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An installation is renewed when pyproject.toml or constraints.txt is newer than its stamp, else left alone. The project
# itself is installed as a link to this folder, so a change in the code needs no installation.

# Scripts in an environment name its absolute path, so one whose folder was moved, or whose Python was removed, goes.
STALE := $(shell [ ! -e $(VENV)/.installed ] || \
  { [ -x $(BIN)/python ] && grep -qxF '$(CURDIR)' $(VENV)/.installed; } || rm -rf $(VENV))

$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing what opencode-memory needs into $(VENV) ..."
	@$(PIP) --editable .
	@echo '$(CURDIR)' > $@

$(VENV)/.installed-test: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing what opencode-memory and its tests need into $(VENV) ..."
	@$(PIP) --editable '.[test]'
	@echo '$(CURDIR)' > $(VENV)/.installed
	@touch $@

# Debian's python3 without python3-venv has the module venv but not ensurepip, and would leave half an environment.
$(BIN)/python:
	@$(PYTHON) -c '' 2>/dev/null || \
	  { echo "make: cannot run $(PYTHON): install Python 3.11 or newer, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: $(PYTHON) is $$($(PYTHON) -V 2>&1), 3.11 or newer is needed; name another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "make: $(PYTHON) has no venv module; on Debian or Ubuntu: apt install python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }
