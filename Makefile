# `make up` and `make test` are all one needs; every other target is listed by `make help`.
PYTHON ?= python3
VENV := .venv/bin/python
SANDBOX := $(VENV) -m sandbox
# Two files at a time, the longest first: one half of the tests mostly waits for a cluster.
PYTEST := $(VENV) -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder
STACK ?= local

.PHONY: help up interrupt status down clean test reference check fast sandbox-test soak bench preview env
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

env: ## the Python environments only
	@$(PYTHON) sandbox/bootstrap.py

up: env ## from nothing to a model in training: toolchain, cluster, stack, first run
	@$(SANDBOX) up

interrupt: env ## take a spot node away under a run, with notice and without
	@$(SANDBOX) drill

status: env ## what runs
	@$(SANDBOX) status

down: env ## stop everything; what was stored stays
	@$(SANDBOX) down

clean: env ## stop everything and remove what was stored
	@$(SANDBOX) clean

preview: env ## what would change, with policies: make preview STACK=dev (default local)
	@$(SANDBOX) preview $(STACK)

reference: env ## write docs/schemas and docs/reference from the models
	@$(VENV) -m tools.reference

check: env ## the gate, under a minute: lint, types, import rules, unit and golden tests
	@$(VENV) -m ruff check .
	@$(VENV) -m ruff format --check .
	@$(VENV) -m mypy infra training sandbox ops bench tools tests __main__.py
	@cd policies && ../$(VENV) -m mypy --config-file ../pyproject.toml --python-executable .venv/bin/python .
	@$(PYTEST) tests/unit tests/golden tests/policy

test: check ## everything that CI runs
	@$(PYTEST) tests/sandbox tests/trainer tests/aws

soak: env ## the fault suites with full counts
	@$(VENV) -m pytest -q tests/trainer tests/sandbox --full
	@$(VENV) -m bench storm --scale full

bench: env ## the benchmarks, in full; writes bench/RESULTS.md
	@$(VENV) -m bench --scale full --results bench/RESULTS.md
