# Each target is self-sufficient: it makes what it needs and asks nothing. See packaging/bootstrap.

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast attacks fuzz check bench fresh clean distclean

BIN := .venv/bin
ARGS ?=

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## the main job on real input, told as it happens (ARGS=--json for programs)
	@packaging/bootstrap demo
	@$(BIN)/hermesd demo $(ARGS)

test: ## every test, real servers and containers too, with coverage by branch
	@packaging/bootstrap test
	$(BIN)/pytest --cov --cov-report=term:skip-covered $(ARGS)

test-fast: ## the tests that start no server, container or daemon
	@packaging/bootstrap test
	$(BIN)/pytest -m "not slow" $(ARGS)

attacks: ## every attack that must fail, each against the real thing (part of make test)
	@packaging/bootstrap test
	$(BIN)/pytest -m attack $(ARGS)

fuzz: ## on demand: a million requests against the validation and an oracle (ARGS="--requests N --seed N")
	@packaging/bootstrap test
	$(BIN)/python tests/e2e/attacks/fuzz.py $(ARGS)

check: ## linters, formatting, types, and which part may import which
	@packaging/bootstrap test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: ## the figures, as a table and in bench/out/latest.json
	@packaging/bootstrap test
	$(BIN)/python bench/run.py $(ARGS)

fresh: ## on demand: clone into an empty Debian container and run ARGS there (default: demo test)
	@packaging/try-fresh $(ARGS)

clean: ## remove what the targets above wrote, except .venv
	rm -rf bench/out .coverage .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean ## remove .venv too
	rm -rf .venv
