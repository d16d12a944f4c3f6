# Lockstep. One word each:
#
#   make lab     a fleet and a cluster on this machine, brought into step by `pulumi up`, then audited
#   make test    every test: fast ones, lab nodes, engine, cluster
#   make check   format, lint, types, layers, generated docs
#   make slow    long builds, every kill point and many seeds, before a release
#   make docs    write the generated references anew
#
# Everything is set up on the way, each step once: `.venv` with hashed requirements, the Debian
# packages of requirements/debian.txt (said before, root only), the programs of tools/ (built once
# per machine). Words may be given on: make test ARGS='-k audit'

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help

PYTHON ?= python3
ARGS ?=
# Files of tests that run at the same time: most of them wait for machines. Each has labs of its own.
JOBS ?= $(shell n=$$(nproc); echo $$((n < 4 ? n : 4)))
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
export VIRTUAL_ENV := $(CURDIR)/.venv
# Stamps are named by the content of what they stand for: an edit makes a new one, a checkout's times do not.
mark = .venv/.$(1)-$(shell cat $(2) | sha256sum | cut -c 1-16)
VENV := $(call mark,venv,requirements/uv.txt requirements/all.txt requirements/venv.sh pyproject.toml)
DEBIAN := $(call mark,debian,requirements/debian.txt requirements/debian.sh)

.NOTPARALLEL:
.PHONY: help lab test check slow docs setup tools requirements

help:
	@sed -n '/^#   make/s/^#   //p' Makefile

lab: setup
	lockstep lab up
	lockstep up lab
	lockstep audit lab

test: setup
	pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

slow: setup
	pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m slow $(ARGS)

check: $(VENV)
	ruff format --check .
	ruff check .
	mypy
	lint-imports
	python docs/generate.py --check

docs: $(VENV)
	python docs/generate.py

setup: $(VENV) $(DEBIAN) tools

tools: $(VENV)
	@lockstep tools build --quiet --link $(BIN)

$(VENV):
	@requirements/venv.sh $(PYTHON)
	touch $@

$(DEBIAN): | $(VENV)
	@requirements/debian.sh
	touch $@

# Writes the hashed requirement files from pyproject.toml, keeping the pins that they hold; UPGRADE=1 takes the newest.
COMPILE = uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links $(if $(UPGRADE),--upgrade)
requirements:
	test -x $(BIN)/uv || requirements/venv.sh $(PYTHON)
	$(COMPILE) pyproject.toml -o requirements/base.txt
	$(COMPILE) --all-extras pyproject.toml -o requirements/all.txt
	for group in uv go kubectl; do $(COMPILE) --group pyproject.toml:$$group -o requirements/$$group.txt; done
