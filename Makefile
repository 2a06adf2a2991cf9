# `make up` and `make test` cover daily use; `make help` lists all targets.
PYTHON ?= python3
VENV := .venv/bin/python
SANDBOX := $(VENV) -m sandbox
STACK ?= local

.PHONY: help up interrupt status down clean test reference check soak bench preview env wheel
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

env: ## create the Python environments
	@$(PYTHON) sandbox/bootstrap.py

up: env ## start the cluster, deploy the local stack, watch its first run
	@$(SANDBOX) up

interrupt: env ## reclaim spot nodes under runs, with and without notice
	@$(SANDBOX) drill

status: env ## show services, nodes, runs and firing alerts
	@$(SANDBOX) status

down: env ## stop all processes; keep all data
	@$(SANDBOX) down

clean: env ## stop all processes and delete all data
	@$(SANDBOX) clean

preview: env ## preview a stack with policies: make preview STACK=dev (default local)
	@$(SANDBOX) preview $(STACK)

wheel: ## build dist/trainyard-VERSION-py3-none-any.whl: pip install "dist/...whl[cli]"
	@rm -rf build
	@$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir dist .

reference: env ## write docs/schemas and docs/reference from the models
	@$(VENV) -m tools.reference

check: env ## run lint, type checks, and what a change can break of the unit, golden and policy tests
	@$(VENV) -m ruff check .
	@$(VENV) -m ruff format --check .
	@$(VENV) -m mypy bootstrap components infra trainer training trainyard sandbox ops bench tools tests __main__.py
	@cd policies && ../$(VENV) -m mypy --config-file ../pyproject.toml --python-executable .venv/bin/python .
	@$(VENV) -m tools.run_tests gate

test: check ## run what CI runs: check, then the core of the live tests and those nearest to the change
	@$(SANDBOX) build --tests
	@$(VENV) -m tools.run_tests live

soak: env ## run the fault tests with full counts
	@$(VENV) -m pytest -q tests/trainer tests/sandbox --full
	@$(VENV) -m bench storm --scale full

bench: env ## run all benchmarks in full; write bench/RESULTS.md
	@$(VENV) -m bench --scale full --results bench/RESULTS.md
