# The commands of this repository. `make check` is what CI runs.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: setup train check test slow lint types golden clean

setup: $(BIN)/counterpoint

$(BIN)/counterpoint: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch $@

train: setup
	$(BIN)/counterpoint train

check: lint types test

test: setup
	$(BIN)/pytest

slow: setup
	$(BIN)/pytest -m slow

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup
	$(BIN)/mypy

golden: setup  ## rewrite tests/golden/ from the present code; read the diff before committing it
	$(BIN)/python scripts/golden.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
