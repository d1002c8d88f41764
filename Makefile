# Needs python3 (3.11 or newer), pip and make. `make study` and `make test` set up .venv by themselves.
#
#   make study METHOD=pabee DEMO= ARGS="--task rte"     # without the options of the demonstration
#   make fast-test ARGS="-k tables"
#   make table STUDY=runs/NAME
#   make results ARGS="--scale cpu --glue FOLDER --minutes 60"

SHELL := /bin/bash
METHOD ?= albert,palbert,deebert
DEMO ?= --epochs 12 --select-by at:3
STUDY ?= $(firstword $(shell ls -td runs/*/ 2>/dev/null))
PYTHON ?= python3
ARGS ?=

# Without files of compiled code, each of the many processes that tests start would compile the project again.
unexport PYTHONDONTWRITEBYTECODE

INSTALLED := .venv/installed
WITH_TOOLS := .venv/installed-dev

.PHONY: study test fast-test long-test bounds-test cluster-test lint fix table results soak release docs
.DEFAULT_GOAL := study

study: $(INSTALLED)
	.venv/bin/python -m study.launch --method $(METHOD) $(DEMO) $(ARGS)

test: $(WITH_TOOLS)
	.venv/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not long" $(ARGS)

# Tests that neither train a whole trial nor start Ray or a server, for use between two edits.
fast-test: $(WITH_TOOLS)
	.venv/bin/python -m pytest -n logical --dist loadfile --no-loadscope-reorder -m "not slow and not long" $(ARGS)

# Whole studies that are killed, disconnected or moved. These take longer than all other tests together.
long-test: $(WITH_TOOLS)
	.venv/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m long $(ARGS)

# The fast tests, a study on Ray and MLflow's tests, with the lowest and the newest versions that pyproject.toml allows.
# Once a month, `make bounds-test ENDS=beyond` tries the newest of everything, whatever pyproject.toml allows. Each
# run ends with a list of the tests that failed, and of the packages with other versions than the tested ones.
ENDS := lowest newest
BOUNDED := tests/study/test_whole_study.py tests/study/mlflow_mirror
bounds-test: $(ENDS:%=build/bounds/%/installed)
	is_broken=; for end in $(ENDS); do python=build/bounds/$$end/bin/python; \
	  $$python -m pytest -n logical --dist loadfile -m "not slow and not long" $(ARGS) || is_broken=1; \
	  $$python -m pytest $(BOUNDED) || is_broken=1; \
	  echo "$$end:"; PYTHONPATH=tests $$python -m helpers.requirements versions; \
	done; [ -z "$$is_broken" ]

# On simulated hosts. This needs root and Debian's openssh-server, rsync and iproute2; otherwise the tests are skipped.
cluster-test: $(WITH_TOOLS) build/cluster/installed
	.venv/bin/python -m pytest -n 2 --dist loadfile tests/cluster $(ARGS)

lint: $(WITH_TOOLS)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

fix: $(WITH_TOOLS)
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

table: $(INSTALLED)
	.venv/bin/python -m analysis.tables $(STUDY) $(ARGS)

# Compare the methods with a pretrained backbone on real GLUE, in pieces.
results: $(WITH_TOOLS)
	.venv/bin/python -m benchmarks.real_results $(ARGS)

soak: $(WITH_TOOLS)
	PYTHONPATH=.:tests .venv/bin/python -m helpers.kills --kills 50
	PYTHONPATH=.:tests .venv/bin/python -m helpers.power_cuts --cuts 9
	PYTHONPATH=.:tests .venv/bin/python -m helpers.faults --faults 35
	PYTHONPATH=.:tests .venv/bin/python -m helpers.bit_flips --flips 200
	PYTHONPATH=.:tests .venv/bin/python -m helpers.kills --kills 50 --driver local
	PYTHONPATH=.:tests .venv/bin/python -m helpers.faults --faults 35 --driver local

# The docs as a site in build/site; a dead link is an error.
docs: $(WITH_TOOLS)
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build

# Build the wheel and the source archive of this version, test their content, and tag the commit.
release: $(WITH_TOOLS)
	@[ -z "$$(git status --porcelain)" ] || { echo 'commit all changes first'; exit 1; }
	rm -rf dist
	.venv/bin/python -m build --no-isolation
	RELEASE=dist .venv/bin/python -m pytest -q tests/house/test_release.py
	git tag "v$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)"

# A stamp is written last, and `--clear` removes old ones first: an interrupted install is never taken for a good one.
$(INSTALLED): pyproject.toml constraints.txt
	@echo 'installing into .venv: some 2 GB (more where PyTorch brings CUDA), a few minutes'
	$(PYTHON) -m venv --clear .venv
	.venv/bin/python -m pip install -c constraints.txt -e '.[train]'
	touch $@

# Adds the tools for tests, linters and notebooks.
$(WITH_TOOLS): $(INSTALLED)
	.venv/bin/python -m pip install -c constraints.txt -e '.[dev]'
	touch $@

build/bounds/lowest/installed: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install -c constraints-lowest.txt -e '.[dev]'
	touch $@

# Without a stamp: a package may have a newer version each time.
.PHONY: build/bounds/newest/installed build/bounds/beyond/installed
build/bounds/newest/installed:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --upgrade --upgrade-strategy eager -e '.[dev]'

build/bounds/beyond/installed:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install -e '.[dev]'
	PYTHONPATH=tests $(@D)/bin/python -m helpers.requirements names | \
	  xargs $(@D)/bin/python -m pip install --upgrade --upgrade-strategy eager

# What the extra `cluster` adds to .venv, apart from it: Ray starts a dashboard wherever it finds one.
build/cluster/installed: $(INSTALLED)
	rm -rf build/cluster
	.venv/bin/python -m pip install --prefix build/cluster -c constraints.txt 'ray[default]' boto3
	touch $@

# An environment whose python is missing (upgraded, or a copied folder) is built again, however new its stamp is.
ifneq ($(shell .venv/bin/python -c 'print("ok")' 2>/dev/null),ok)
.PHONY: $(INSTALLED)
endif
