# Everything runs in .venv, made on first use; only Python (3.11 or later) and make are needed.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo example gallery test test-all lint bench docs serve matrix release clean

demo: .venv/train  ## the paper's spiral, trained and reported, in about a minute; results in runs/
	$(BIN)/lagrax reproduce spiral

example: .venv/train  ## learn a delay from noisy data; figure in out/
	$(BIN)/python -m examples.demo

gallery: .venv/gallery  ## runs all examples, and puts their pictures and what they print into docs/
	$(BIN)/python -m examples

test: .venv/dev  ## in about ten minutes
	$(BIN)/python -m pytest

test-all: .venv/dev .venv/docs .venv/gallery  ## the slow ones too
	$(BIN)/python -m pytest -m "slow or not slow"

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/bench .venv-tvboptim/done  ## side by side with torchdde, JiTCDDE, tvboptim, diffrax and torchdiffeq; writes benchmarks/results.json
	$(BIN)/python -m benchmarks

docs: .venv/docs  ## the site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

serve: .venv/docs
	$(BIN)/mkdocs serve

matrix:  ## the quick tests with the Pythons at hand, and the oldest and newest packages; environments in .matrix/
	$(PYTHON) scripts/matrix.py

release: lint test docs  ## all checks, then the wheel and the sdist, tried in new environments; dist/
	$(BIN)/python scripts/release.py

# One marker per extra: `make test` installs the development tools once, and again when pyproject.toml changes.
.venv/%: pyproject.toml | .venv/bin/python
	@echo "Installing lagrax[$*] into .venv …"
	@$(BIN)/python -m pip install --quiet --editable ".[$*]"
	@touch $@

# A peer whose dependencies would not go together with lagrax's.
.venv-tvboptim/done:
	$(PYTHON) -m venv .venv-tvboptim
	@.venv-tvboptim/bin/python -m pip install --quiet tvboptim==0.4.0
	@touch $@

# Another, for `python -m benchmarks.forecasts`.
.venv-statsforecast/done:
	$(PYTHON) -m venv .venv-statsforecast
	@.venv-statsforecast/bin/python -m pip install --quiet statsforecast==2.1.1
	@touch $@

.venv/bin/python:
	$(PYTHON) -m venv .venv

clean:
	rm -rf .venv .venv-tvboptim .matrix site out runs build dist .cache .pytest_cache .ruff_cache .mypy_cache .hypothesis
