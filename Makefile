# Works on a fresh clone with python3 and make: each target first builds the environment it needs.
#
#   make demo | test | slow-tests | lint | all-tests | bench | accuracy | notebooks | pictures | docs | faults | venv | clean
#   make bench-cluster | slurm-test | compose-test | record | shape
#   make test PYTHON=python3.13 VENV=.venv-3.13       another interpreter, in an environment of its own
#   make test PYTEST_ARGS="-k moments -x"             arguments for pytest
#   make bench BENCH_ARGS="--quick"                   arguments for the benchmark

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
BENCH_ARGS ?=
DEMO_ARGS ?=
NOTEBOOKS ?=
PICTURES ?=

BIN := $(VENV)/bin
# One BLAS thread a process: the tests run on all cores already, and small solves in two
# threads that compete are ten times slower.
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: venv demo test slow-tests lint all-tests bench accuracy notebooks write-notebooks pictures docs faults bench-cluster slurm-test compose-test record shape clean

venv: $(VENV)/.test-stamp

demo: $(VENV)/.test-stamp
	$(BIN)/rff-stream demo $(DEMO_ARGS)

test: $(VENV)/.test-stamp
	$(PYTEST) -n auto --dist worksteal $(PYTEST_ARGS)

# Those of a second or more. They and the fast ones are what a change must pass (.ci/run).
slow-tests: $(VENV)/.test-stamp
	$(PYTEST) -n auto --dist worksteal -m "slow and not long and not cluster and not optional" $(PYTEST_ARGS)

# Everything: long, accuracy, notebooks; what needs an absent package, a SLURM queue or an image skips.
all-tests: $(VENV)/.all-stamp
	$(PYTEST) -m "" $(PYTEST_ARGS)

accuracy: $(VENV)/.test-stamp
	$(BIN)/python tests/accuracy/bare.py
	$(BIN)/python tests/accuracy/bare.py --unseen
	$(BIN)/python tests/accuracy/levels.py
	$(BIN)/python tests/accuracy/regression.py --rivals
	$(BIN)/python tests/accuracy/maps.py
	$(BIN)/python tests/accuracy/maps.py --components 8192 --maps gaussian/orthogonal,gaussian/nystroem
	$(BIN)/python tests/accuracy/local.py --rivals
	$(BIN)/python tests/accuracy/local.py --auto --sets protein,kin40k,elevators,bike,keggdirected,heaton_sim
	$(BIN)/python tests/benchmarks/cells_growth.py --last 1000000
	$(BIN)/python tests/accuracy/relevance.py
	$(BIN)/python tests/accuracy/metric.py
	$(BIN)/python tests/accuracy/metric.py --made 10000,40000,100000
	$(BIN)/python tests/accuracy/metric.py --noise 60
	$(BIN)/python tests/accuracy/grid.py
	$(BIN)/python tests/accuracy/hermite.py
	$(BIN)/python tests/accuracy/hard_data.py
	$(BIN)/python tests/accuracy/gaps.py
	$(BIN)/python tests/accuracy/coverage.py --jobs 2
	$(BIN)/python tests/accuracy/rows.py
	$(BIN)/python tests/accuracy/classification.py --rivals
	$(PYTEST) -m accuracy tests $(PYTEST_ARGS)

notebooks: $(VENV)/.test-stamp
	$(PYTEST) -m notebook $(PYTEST_ARGS)

# Runs them and keeps their outputs: after a change of a notebook.
write-notebooks: $(VENV)/.notebook-stamp
	OPENBLAS_NUM_THREADS=1 $(BIN)/python notebooks/execute.py $(NOTEBOOKS)

# The pictures of docs/_static; PICTURES="flow speed" for some. The report needs Chromium.
pictures: $(VENV)/.docs-stamp
	OPENBLAS_NUM_THREADS=1 $(BIN)/python docs/pictures.py $(PICTURES)

docs: $(VENV)/.docs-stamp
	rm -rf docs/generated docs/_build
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	$(PYTEST) -q -n auto -m docs tests/docs/test_docs_site.py tests/docs/test_docs_browser.py tests/docs/test_docs_code.py

# Real schedulers and workers that are killed, starved and cut off, and the other tests that
# tests/faults.md names; the table at the end says what became of each fault.
faults: $(VENV)/.test-stamp
	$(PYTEST) --faults -n 2 --dist loadfile $(PYTEST_ARGS)

lint: $(VENV)/.dev-stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/shellcheck .ci/run deployments/*.sh deployments/*/*.sh deployments/*/*.sbatch

# The sbatch file on a SLURM of this machine; skips with the reason where there is none.
slurm-test: $(VENV)/.test-stamp
	$(PYTEST) -m slurm tests/deployments/test_slurm.py $(PYTEST_ARGS)

# The compose file on Docker of this machine, with an image of deployments/Dockerfile that was built before.
compose-test: export RFF_STREAM_IMAGE ?= rff-stream:0.1.0
compose-test: $(VENV)/.test-stamp
	$(PYTEST) -m compose tests/deployments/test_compose.py $(PYTEST_ARGS)

# Digests of what fits compute on this kind of machine: after a change that may change bits.
record: $(VENV)/.test-stamp
	$(BIN)/python tests/recording.py

# Files and functions that a fit passes through, classes above estimators, circles, idle names.
shape: $(VENV)/.test-stamp
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/shape.py

bench: $(VENV)/.test-stamp
	$(BIN)/python tests/benchmarks/bench.py $(BENCH_ARGS)

bench-cluster: $(VENV)/.test-stamp
	$(BIN)/python tests/benchmarks/cluster.py $(BENCH_ARGS)

# A stamp is newer than pyproject.toml when the environment holds what it asks for.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.test-stamp: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $@

$(VENV)/.dev-stamp: pyproject.toml | $(VENV)/.test-stamp
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

$(VENV)/.notebook-stamp: pyproject.toml | $(VENV)/.test-stamp
	$(BIN)/python -m pip install --quiet --editable ".[notebook]"
	touch $@

$(VENV)/.docs-stamp: pyproject.toml | $(VENV)/.test-stamp
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	touch $@

$(VENV)/.all-stamp: pyproject.toml | $(VENV)/.test-stamp
	$(BIN)/python -m pip install --quiet --editable ".[all,manifests,test]"
	touch $@

clean:
	rm -rf .venv .venv-* build dist docs/_build docs/generated docs/notebooks .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks
	find rff_stream tests -name __pycache__ -type d -prune -exec rm -rf {} +
