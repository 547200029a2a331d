# Every target sets up what it needs in .venv, and does nothing twice.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest
# Tests mostly wait: six at a time. One at a time where they share a ComfyUI that is running already.
AT_ONCE := $(if $(E3_COMFYUI_URL),,-n 6 --dist worksteal)
# Tests of promises about seconds run alone. Only their files are collected: that takes long for all.
TIMED = $(shell grep -rl --include='test_*.py' 'mark\.timing' tests)
# Tests start hundreds of processes: compiled modules are kept between them, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=
# Tests in a browser keep a loop running in their process, which others could not bear.
BROWSERS := -n 2 --dist loadfile

.PHONY: demo test lint rewritten bench faults screenshots clean help

help:
	@echo "make demo    render a few pictures with the built-in simulator"
	@echo "make test    lint and every test that is quick enough for each change"
	@echo "make faults  the long fault runs"
	@echo "make bench   measurements, goal and reached side by side"
	@echo "make screenshots  the pictures of the web page in docs/screenshots"
	@echo "make lint    ruff, mypy, import-linter"
	@echo "make clean   remove .venv and what the other targets left"

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "E3 needs Python 3.10 or newer; this is %s. Try: make PYTHON=python3.12" % sys.version.split()[0])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable . --group dev
	@if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --no-save --prefix $(VENV)/typescript \
		typescript@5.9.3 openapi-typescript@7.13.0 || echo "npm cannot install: what is in TypeScript is not checked"; fi
	@touch $@

demo: $(STAMP)
	@$(BIN)/e3 demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The first run of a checkout rewrites the assertions of every test module, once here and not in each of six workers.
rewritten: $(STAMP)
	@$(PYTEST) --collect-only -q tests >/dev/null 2>&1 || true

test: $(STAMP)
	@$(MAKE) --no-print-directory -j 2 lint rewritten
	$(PYTEST) -m "not slow and not timing" --ignore tests/browser $(AT_ONCE)
	$(PYTEST) -m "timing and not slow" $(TIMED)
	$(PYTEST) -m "not slow" tests/browser $(BROWSERS)

faults: $(STAMP)
	$(PYTEST) -m "not timing" tests/faults $(AT_ONCE)
	$(PYTEST) -m "slow and not timing" --ignore tests/faults --ignore tests/browser $(AT_ONCE)
	$(PYTEST) -m "timing and slow" $(TIMED)
	$(PYTEST) -m slow tests/browser

bench: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group bench
	$(BIN)/python bench/run.py

screenshots: $(STAMP)
	E3_SCREENSHOTS=docs/screenshots $(PYTEST) tests/browser -k screenshots

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis demo_output
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
