# make run      the get-up on two cores, from config/getUp.npz to results/getUp/eval.json
# make test     everything but the slow tests;  make test-slow: those
# make lint     style, types, workflow
# make docs     what the documentation says that the code says too: tables of settings, config/schema.json, rule graph
# make tensorboard    the curves of all training runs, in a browser
# make clean    the environment and caches; results/ stays (snakemake clean removes it)
#
# Each makes its own environment first, with the torch that was tested: make TORCH="torch==2.8.0" PYTHON=python3.12 run
# The oldest supported physics: make VENV=.venv-oldest MUJOCO="mujoco==3.17.0" test

PYTHON ?= python3.11
TORCH ?= torch==2.13.0
MUJOCO ?=
VENV ?= .venv
CORES ?= 2

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: run test test-slow lint docs tensorboard clean

run: $(INSTALLED)
	$(BIN)/snakemake results/getUp/eval.json --cores $(CORES) --configfile config/laptop.yaml

test: $(INSTALLED)
	$(BIN)/python -m pytest -m "not slow" --numprocesses 2 --dist loadfile

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint

docs: $(INSTALLED)
	$(BIN)/python docs/make.py
	$(BIN)/python -m tests.unit.learn.device_cases

tensorboard: $(INSTALLED)
	$(BIN)/tensorboard --logdir results

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache
	find q1pipe tests -name __pycache__ -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "$(TORCH)" $(if $(MUJOCO),"$(MUJOCO)")
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@
