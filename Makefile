# Two commands do everything: `make demo` and `make test`. They need Python 3.11 to 3.13 and make, nothing else.
.DEFAULT_GOAL := help
SHELL := /bin/sh

PYTHON ?= python3.13 python3.12 python3.11 python3 python
MODULES ?=
BIN := .venv/bin
READY := .venv/.ready
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile
PYTEST := $(BIN)/python -m pytest -qq -n auto --dist loadfile
SUITABLE := import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))

# Sets the shell variable `python` to the first suitable interpreter, or stops with one sentence.
FIND_PYTHON = python=; for candidate in $(PYTHON); do \
	if $$candidate -c '$(SUITABLE)' >/dev/null 2>&1; then python=$$candidate; break; fi; done; \
	if [ -z "$$python" ]; then \
	echo "Blindsight needs Python 3.11, 3.12 or 3.13 with its venv module: install one, or name yours with PYTHON=..." >&2; \
	exit 1; fi

.PHONY: help
help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1 \t\2/p' $(MAKEFILE_LIST) | expand -t 18

.PHONY: setup
setup: $(READY) ## make .venv from the pinned lock, once

.PHONY: demo
demo: $(READY) ## set up, then run the main job on embedded data
	@$(BIN)/blindsight demo

.PHONY: fleet-demo
fleet-demo: $(READY) ## set up, then find a fault over three sites in processes of their own; needs nats-server
	@$(BIN)/python examples/fleet_demo.py

.PHONY: test
test: $(READY) ## set up, then every test that is not slow
	@$(PYTEST) -m "not slow"

.PHONY: docs
docs: site ## build the documentation as a site in site/html, and run every example on its pages, the long ones too
	@$(BIN)/python -m pytest -q -n0 tests/test_docs.py

.PHONY: site
site: $(READY) ## build the site only, with its links checked; it loads nothing from elsewhere
	@$(BIN)/python .ci/website.py

.PHONY: check
check: lint test docs ## what a change must pass: style, types, tests and the examples in the docs

.PHONY: test-all
test-all: $(READY) ## every test, the slow ones too, with more examples of each law and code compiled as users have it
	@JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(PYTEST) --timeout=3600 --hypothesis-profile=thorough

.PHONY: coverage
coverage: $(READY) ## which lines and branches do the tests that are not slow reach?
	@$(PYTEST) -m "not slow" --cov=blindsight --cov-report=term-missing:skip-covered

.PHONY: lint
lint: $(READY) ## style, format and types only
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/pyright --project pyproject.toml

.PHONY: mutants
mutants: $(READY) ## which faults in the privacy code would no test notice? MODULES=planted or "src/blindsight/trees.py ..."
	@$(BIN)/python .ci/mutants.py $(MODULES)

.PHONY: lock
lock: ## pin the dependencies anew (LOCK=--upgrade for the newest)
	@$(FIND_PYTHON); scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && \
	$$python -m venv "$$scratch" && "$$scratch/bin/pip" install -qq --disable-pip-version-check "uv==0.13.*" && \
	"$$scratch/bin/uv" pip compile -q --universal --python-version 3.11 --extra dev --generate-hashes --no-annotate \
	--no-header --no-emit-index-url --no-emit-find-links $(LOCK) -o requirements.lock pyproject.toml

.PHONY: clean
clean: ## remove what these commands made; runs and ledgers stay
	@rm -rf .venv site .hypothesis .pytest_cache .ruff_cache .coverage dist mutants
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements.lock pyproject.toml
	@$(BIN)/python -c '$(SUITABLE)' >/dev/null 2>&1 || { $(FIND_PYTHON); \
	echo "Setting up .venv with $$($$python --version); once, a minute or two."; $$python -m venv --clear .venv; }
	@# the lock is whole: resolving again would let an older pip stumble over a release newer than its pins
	@$(PIP) --no-deps --require-hashes -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@
