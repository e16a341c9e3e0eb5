# Everything a developer runs; `make` alone lists it.
# Needs a Python of 3.11 or later (PYTHON=... picks one) and a package index.

PYTHON ?= python3
# More than there are cores: many tests wait for processes, clocks and disks.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 2)')
ARGS ?=

# Where it is set, each of the hundreds of processes that the tests start compiles the product again.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
PINNING := .venv-constraints
PIP_INSTALL := -m pip install -qq --disable-pip-version-check

# Two stamps: running the relay does not wait for the development tools.
RUNTIME := .venv/.stamp
DEV := .venv/.stamp-dev
PEERS := .venv-bench/.stamp
FRAMEWORKS := .venv-frameworks/.stamp
SERVERS := .venv/.stamp-servers
RELEASE := .venv-release/.stamp
# The dashboard's page, built from web/ into the package. Two stamps: building it does not wait for
# the tools that test it. The relay itself never needs Node.
PAGE := src/nodrop/servers/http/dist/index.html
PAGE_SOURCES := web/index.html web/package.json web/vite.config.ts $(shell find web/src -type f -not -name schema.ts)
NODE := web/node_modules/.stamp
NODE_DEV := web/node_modules/.stamp-dev
NPM := npm --prefix web --loglevel error --no-audit --no-fund
CHROMIUM ?= $(shell command -v chromium || echo /usr/bin/chromium)
# The MCP SDK of before, beside ours and hidden from it: clients are still built on it.
MCP_1 := .venv/mcp-1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run page page-or-not built wheel release first-hour test test-frameworks test-servers test-browser bench-browser lint types imports unit coverage conformance test-a2a-js openclaw prove bench fmt docs constraints clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-15s %s\n", $$1, $$2 }'

run: $(RUNTIME) page-or-not ## Set up, then start a relay (ARGS="..." goes to `nodrop up`)
	$(BIN)/nodrop up $(ARGS)

page: $(PAGE) ## Build the dashboard's page (needs Node 20.19, 22.12 or later, and a registry)

page-or-not:
	@if command -v npm >/dev/null; then \
	  $(MAKE) -s --no-print-directory $(PAGE) || echo "Going on without the dashboard: its page could not be built. 'make page' tries again."; \
	elif [ ! -e $(PAGE) ]; then \
	  echo "Going on without the dashboard: there is no npm to build its page with."; \
	fi

built: $(RUNTIME) $(PAGE)
	rm -rf dist
	NODROP_PAGE=required $(BIN)/python -m pip wheel -qq --disable-pip-version-check --no-deps --wheel-dir dist . ./proof
	$(BIN)/python tests/install/archives.py dist

wheel: built ## Build both wheels, with the dashboard inside, and try them in an empty environment
	$(BIN)/python tests/install/first_hour.py dist --base

release: $(RUNTIME) $(PAGE) $(RELEASE) ## Build what would be uploaded (wheels, sdists) and check it; uploads nothing
	rm -rf dist
	NODROP_PAGE=required .venv-release/bin/python -m build --outdir dist .
	.venv-release/bin/python -m build --outdir dist ./proof
	.venv-release/bin/twine check --strict dist/*
	$(BIN)/python tests/install/archives.py dist

WITHIN ?= 60
first-hour: built ## Time pip install to the first answered handoff, then run every line of the README with nodrop[relay]
	$(BIN)/python tests/install/first_hour.py dist --within $(WITHIN) $(ARGS)

test-browser: $(RUNTIME) $(NODE_DEV) $(PAGE) ## The dashboard: types, component tests, stories in Chromium (apt, as root)
	@if [ ! -x "$(CHROMIUM)" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing chromium ..." && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; \
	  else echo "test-browser needs Chromium: install the package 'chromium', or set CHROMIUM=" && exit 1; fi; \
	fi
	cd web && npm run -s check
	cd web && npm run -s test
	cd web && CHROMIUM="$(CHROMIUM)" npm run -s stories -- $(ARGS)

bench-browser: $(RUNTIME) $(NODE_DEV) $(PAGE) ## The dashboard with 100,000 handoffs and 200 events/s, in Chromium (ARGS="--minutes 10")
	$(BIN)/python web/bench/run.py $(ARGS)

test: lint imports ## Set up, then check everything
	@$(MAKE) --no-print-directory -j2 types unit

test-frameworks: $(FRAMEWORKS) ## The adapters with their frameworks, each with each (about 1.4 GB the first time)
	.venv-frameworks/bin/basedpyright --project tests/frameworks
	.venv-frameworks/bin/pytest --timeout 300 $(ARGS) tests/frameworks

test-servers: $(SERVERS) ## Behind a real PgBouncer, and deployment files (needs the system's `pgbouncer`, systemd)
	$(BIN)/pytest --timeout 300 $(ARGS) tests/deployment

lint: $(DEV) ## Formatting, lint, spelling
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/codespell

types: $(DEV) ## Type checking
	$(BIN)/basedpyright

imports: $(DEV) ## The import contracts of pyproject.toml
	$(BIN)/lint-imports --no-cache

unit: $(DEV) ## The tests (ARGS="..." goes to pytest, WORKERS=n sets the processes)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(ARGS)

coverage: $(DEV) ## The tests in one process, with branch coverage
	$(BIN)/coverage run -m pytest $(ARGS)
	$(BIN)/coverage report

# The TCK is yours: a folder with its branch 1.0-dev or 0.3.x, and an environment in which it is installed.
TCK ?=
TCK_PYTHON ?= $(TCK)/.venv/bin/python
conformance: $(DEV) ## The A2A TCK against a relay (TCK=folder, TCK_PYTHON=its Python)
	$(BIN)/python tests/conformance/run.py --tck "$(TCK)" --python "$(TCK_PYTHON)" $(ARGS)

test-a2a-js: $(DEV) ## The JavaScript SDK of A2A against a relay (needs node and npm)
	$(BIN)/python tests/conformance/javascript.py

openclaw: $(DEV) ## OpenClaw for real, over A2A and MCP (needs npm; ARGS="--folder ..." reuses one)
	$(BIN)/python tests/conformance/openclaw.py $(ARGS)

# Seeds are fixed, so that a finding can be looked at again. A quiet machine takes about three hours.
PROVE := $(BIN)/nodrop prove
prove: $(DEV) ## The long runs of docs/reliability.md, one after the other
	$(PROVE) chaos mix --seconds 3600 --seed 20261115 --json
	$(PROVE) chaos six-hours --seed 20261116 --json
	$(PROVE) simulate --six-hours --seed 20261116 --json
	$(PROVE) chaos relay-kill --count 1050 --seed 20261115 --json
	$(PROVE) chaos relay-kill --count 100 --open 100000 --seed 20261115 --json
	$(PROVE) chaos worker-kill --count 500 --seed 20261115 --json
	$(PROVE) chaos network-cut --count 200 --seed 20261115 --json
	$(PROVE) chaos node-kill --count 300 --nodes 3 --seed 20261115 --json
	$(PROVE) chaos node-kill --count 60 --nodes 2 --seed 20261116 --json
	$(PROVE) chaos failover --count 20 --seed 20261115 --json
	$(PROVE) chaos store-cut --count 100 --seed 20261115 --json
	$(PROVE) chaos disk-full --count 100 --seed 20261115 --json
	$(PROVE) chaos slow-consumer --count 5 --seed 20261115 --json
	$(PROVE) chaos power-cut --count 20000 --seed 20261115 --json
	$(PROVE) sync-order --commits 1000
	$(PROVE) emergence evaluate
	$(PROVE) emergence same
	$(PROVE) emergence speed
	$(PROVE) storm --sweep
	$(PROVE) backup --count 20
	$(PROVE) simulate --seed 1 --hours 24 --runs 100 --json
	NODROP_MODEL_RUNS=500 NODROP_LOCKSTEP_SCRIPTS=300 NODROP_SAME_KEY_ROUNDS=2000 \
	  $(BIN)/pytest --timeout 7200 tests/proof/test_model.py tests/proof/test_lockstep.py tests/behaviour/test_same_key.py
	$(PROVE) fuzz http --requests 10000 --seed 7
	$(PROVE) fuzz decoders --runs 1000000 --seed 7
	$(PROVE) chaos patroni --count 12 --seed 20261115 --json  # needs `patroni` and `etcd-server`

bench: $(DEV) $(PEERS) ## Nodrop beside its peers (ARGS="--only nats,..." picks, ARGS="growth" is another)
	$(BIN)/nodrop prove bench $(ARGS)

fmt: $(DEV) ## Format, and fix what lint can fix
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

docs: $(DEV) ## Renew the pages and schemas that are made from the code
	$(BIN)/python docs/generate.py

# A fresh environment, so that nothing but our own bounds decides. The oldest supported Python
# makes it: its pins suit the later ones, the reverse need not hold.
constraints: ## Renew constraints.txt within the bounds of both pyproject.toml (with Python 3.11)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "make constraints needs Python 3.11: set PYTHON=")'
	rm -rf $(PINNING)
	$(PYTHON) -m venv $(PINNING)
	$(PINNING)/bin/python $(PIP_INSTALL) '.[dev]' './proof[postgres,fuzz]'
	$(PINNING)/bin/python -m pip freeze --exclude nodrop --exclude nodrop-proof > $(PINNING)/pins
	{ echo '# Versions the tests ran with. Made by `make constraints`; do not edit.'; cat $(PINNING)/pins; } > constraints.txt
	rm -rf $(PINNING)

clean: ## Remove the environment and everything generated
	rm -rf .venv .venv-bench .venv-frameworks .venv-release $(PINNING) dist build proof/dist src/nodrop/servers/http/dist web/node_modules .coverage .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src proof tests examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Nodrop needs Python 3.11 or later, and $(PYTHON) is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.11")'
	@echo "Making .venv ..."
	@$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

$(NODE): web/package-lock.json web/.npmrc
	@echo "Installing what builds the dashboard ..."
	@$(NPM) ci --omit=dev --ignore-scripts >/dev/null
	@touch $@

$(NODE_DEV): web/package-lock.json web/.npmrc
	@echo "Installing what tests the dashboard ..."
	@$(NPM) ci --ignore-scripts >/dev/null
	@touch $@ $(NODE)

$(PAGE): $(PAGE_SOURCES) $(NODE)
	@$(NPM) run --silent build -- --logLevel warn

$(RUNTIME): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing Nodrop ..."
	@$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e '.[relay]'
	@touch $@

# Restate's server is on npm; where there is no npm, Restate counts as not installed. Without scripts:
# the only one there is reports the installation.
RESTATE := @restatedev/restate-server
NPM_INSTALL := npm install --loglevel error --no-audit --no-fund --ignore-scripts
$(PEERS): pyproject.toml proof/pyproject.toml
	@echo "Installing the peers ..."
	@$(PYTHON) -m venv .venv-bench
	@.venv-bench/bin/python $(PIP_INSTALL) -e . -e './proof[bench]'
	@if command -v npm >/dev/null; then \
	  $(NPM_INSTALL) --prefix .venv-bench '$(RESTATE)@>=1.7.12 <2' >/dev/null && \
	  cd .venv-bench/bin && ln -sf ../node_modules/$(RESTATE)-*/bin/restate-server .; \
	fi
	@touch $@

$(FRAMEWORKS): pyproject.toml
	@echo "Installing the frameworks ..."
	@$(PYTHON) -m venv .venv-frameworks
	@.venv-frameworks/bin/python $(PIP_INSTALL) -e '.[frameworks]' pytest pytest-timeout anyio basedpyright
	@touch $@

$(RELEASE): Makefile
	@echo "Installing what builds and checks archives ..."
	@$(PYTHON) -m venv .venv-release
	@.venv-release/bin/python $(PIP_INSTALL) 'build>=1.3,<2' 'twine>=6.2,<7'
	@touch $@

$(SERVERS): $(DEV)
	@echo "Installing what checks deployment files ..."
	@$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e '.[dev,servers]' -e './proof[postgres,fuzz]'
	@touch $@

$(MCP_1): Makefile | $(BIN)/python
	@rm -rf $@
	@$(BIN)/python $(PIP_INSTALL) --no-deps --target $@ mcp==1.30.0 httpx-sse==0.4.3
	@touch $@

$(DEV): pyproject.toml proof/pyproject.toml constraints.txt $(MCP_1) | $(BIN)/python
	@echo "Installing Nodrop and its development tools ..."
	@$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e '.[dev]' -e './proof[postgres,fuzz]'
	@touch $@ $(RUNTIME)
