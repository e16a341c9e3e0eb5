# Everything a developer runs; `make` alone lists it.
# Needs a Python of 3.11 or later (PYTHON=... picks one) and a package index.

PYTHON ?= python3
WORKERS ?= auto
ARGS ?=

BIN := .venv/bin
PINNING := .venv-constraints
PIP_INSTALL := -m pip install -qq --disable-pip-version-check

# Two stamps: running the relay does not wait for the development tools.
RUNTIME := .venv/.stamp
DEV := .venv/.stamp-dev

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test lint types imports unit coverage fmt docs constraints clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-12s %s\n", $$1, $$2 }'

run: $(RUNTIME) ## Set up, then start a relay (ARGS="..." goes to `nodrop up`)
	$(BIN)/nodrop up $(ARGS)

test: lint types imports unit ## Set up, then check everything

lint: $(DEV) ## Formatting, lint, spelling
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/codespell

types: $(DEV) ## Type checking
	$(BIN)/basedpyright

imports: $(DEV) ## The import contracts of pyproject.toml
	$(BIN)/lint-imports --no-cache

unit: $(DEV) ## The tests (ARGS="..." goes to pytest, WORKERS=n sets the processes)
	$(BIN)/pytest -n $(WORKERS) $(ARGS)

coverage: $(DEV) ## The tests in one process, with branch coverage
	$(BIN)/coverage run -m pytest $(ARGS)
	$(BIN)/coverage report

fmt: $(DEV) ## Format, and fix what lint can fix
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

docs: $(DEV) ## Renew the pages and schemas that are made from the code
	$(BIN)/python docs/generate.py

# A fresh environment, so that nothing but our own bounds decides. The oldest supported Python
# makes it: its pins suit the later ones, the reverse need not hold.
constraints: ## Renew constraints.txt within the bounds of pyproject.toml (with Python 3.11)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "make constraints needs Python 3.11: set PYTHON=")'
	rm -rf $(PINNING)
	$(PYTHON) -m venv $(PINNING)
	$(PINNING)/bin/python $(PIP_INSTALL) '.[dev]'
	$(PINNING)/bin/python -m pip freeze --exclude nodrop > $(PINNING)/pins
	{ echo '# Versions the tests ran with. Made by `make constraints`; do not edit.'; cat $(PINNING)/pins; } > constraints.txt
	rm -rf $(PINNING)

clean: ## Remove the environment and everything generated
	rm -rf .venv $(PINNING) dist build .coverage .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Nodrop needs Python 3.11 or later, and $(PYTHON) is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.11")'
	@echo "Making .venv ..."
	@$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

$(RUNTIME): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing Nodrop ..."
	@$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e .
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing Nodrop and its development tools ..."
	@$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e '.[dev]'
	@touch $@ $(RUNTIME)
