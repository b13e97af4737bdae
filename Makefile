# Everything a fresh Debian or Ubuntu machine with Python >= 3.11 needs:
#   make dry-run   the whole method in minutes on this machine
#   make test      lint, types and all tests
# Both set up .venv first, once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: dry-run test drill lint clean

dry-run: $(VENV)/.installed
	$(BIN)/lottery dry-run

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not drill and not alone"
	$(BIN)/python -m pytest -m alone

# Heavier than the tests: the dry run killed ten times, results compared to the bit.
drill: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m drill

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than 3.11; name a newer one: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { test "$$(id -u)" = 0 && apt-get update -q && apt-get install -y -q python3-venv; } || \
		{ echo "Python's venv module is missing: apt-get install python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) install --constraint constraints.txt --editable '.[test]'
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
