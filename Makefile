# Everything a fresh Debian or Ubuntu machine with Python >= 3.11 needs:
#   make dry-run   the whole method in minutes on this machine
#   make quick     lint, types and the tests without TensorFlow and daemons: for the inner loop
#   make test      lint, types and all tests
#   make drill     heavier: kills, a disturbed SLURM cluster; results compared to the bit
#   make yardsticks  published figures and ours beside them, from results/reference
#   make perf      how fast it is here: a table and build/perf.json; no clock fails it
# Each sets up .venv first, once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

PACKAGES := slurmctld slurmd slurm-client slurmdbd munge mariadb-server-core mariadb-client-core chromium chromium-driver \
	default-jre-headless bindfs
PROGRAMS := slurmctld slurmd slurmdbd sbatch sacct munged mariadbd mariadb-install-db mariadb chromium chromedriver java bindfs

.PHONY: dry-run quick test drill perf yardsticks lint programs clean

dry-run: $(VENV)/.installed
	$(BIN)/lottery dry-run

# Two processes more than cores: the tests of SLURM wait most of the time.
WORKERS := $(shell echo $$(($$(nproc) + 2)))
# Hundreds of processes load the same code: it is compiled once, also where the environment says otherwise.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest
SPREAD := -n $(WORKERS) --dist loadgroup --no-loadscope-reorder  # in the order of tests/conftest.py

quick: lint
	PYTHONPATH=tests/without_tensorflow $(PYTEST) -n $(WORKERS) -q -o addopts=--strict-markers tests \
		-m "not tensorflow and not programs and not slow and not drill and not perf"

test: lint programs
	$(PYTEST) $(SPREAD) -m "not drill and not perf"

drill: $(VENV)/.installed-test programs
	$(PYTEST) $(SPREAD) -m drill

perf: $(VENV)/.installed-test programs
	$(PYTEST) -q -m perf

yardsticks:
	@$(PYTHON) benchmarks/yardsticks.py

# The tests run a SLURM of their own, a browser, Spark and a slow disk (bindfs). Without these they are skipped, and pytest lists them at the end.
programs:
	@PATH="$$PATH:/usr/sbin:/sbin"; missing=; for program in $(PROGRAMS); do \
		command -v $$program >/dev/null || missing="$$missing $$program"; done; test -z "$$missing" && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -q && apt-get install -y -q --no-install-recommends $(PACKAGES); \
	else echo "not installed, so tests will be skipped:$$missing (apt-get install $(PACKAGES))" >&2; fi

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
