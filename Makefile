# `make run` opens the shell, `make test` runs all checks; both create .venv and update it only when dependencies change.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(firstword $(foreach name,python3.13 python3.12 python3.11 python3,$(shell \
	$(name) -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v $(name))))
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt
# uv, where it is present, installs faster.
INSTALL := $(if $(shell command -v uv),uv pip install --python $(BIN)/python,$(BIN)/python -m pip install)
CODE := ecoshell plugins tests docs

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# Each command that a test starts would compile the program again.
unexport PYTHONDONTWRITEBYTECODE
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc 2>/dev/null || echo 2)
# llama.cpp's code for Intel AMX crashes when compiled with GCC (llama.cpp pull request 26954).
export CFLAGS += -U__AMX_INT8__
export CXXFLAGS += -U__AMX_INT8__
# Without its multimodal and common libraries, which ecoshell does not use, llama.cpp compiles in less than half the time.
export CMAKE_ARGS += -DLLAVA_BUILD=OFF "-DCMAKE_PROJECT_llama_cpp_INCLUDE=$(CURDIR)/ecoshell/models/llama.cmake"

# Many tests wait for a process, a frame or a limit, so four workers keep two cores busy.
WORKERS ?= 4

.PHONY: run test test-all check docs dist lock clean

# The chat opens as soon as the core is installed; llama.cpp compiles meanwhile in the background.
run: $(VENV)/.core
	@test $(VENV)/.local -nt pyproject.toml || $(BIN)/python -m ecoshell.models.local_build $(VENV)/.local \
		$(INSTALL) --verbose --constraint constraints.txt --editable '.[local]'
	@$(BIN)/ecoshell

test: check
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal

# Also the tests marked slow: more rounds of hostile input, full disks, kills and faults.
test-all: check
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal -m ""

check: $(VENV)/.dev
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache

# Generated pictures, reference and event schema, then the site in site/.
docs: $(VENV)/.docs
	$(BIN)/python docs/screen.py docs
	$(BIN)/python docs/readme.py README.md
	$(BIN)/python docs/reference.py docs/reference
	$(BIN)/ecoshell events --schema > docs/events.schema.json
	$(BIN)/mkdocs build --strict

# The wheel and the source distribution, checked in a clean environment.
dist: $(VENV)/.dist
	rm -rf dist
	$(BIN)/python -m hatchling build --directory dist
	$(BIN)/twine check --strict dist/*
	ECOSHELL_DIST=dist $(BIN)/python -m pytest tests/test_release.py tests/test_wheel.py

# Stamp files record what is installed: .core the shell, .local the shell with the embedded model, .dev also the development tools,
# .docs the site generator, .dist the release tools.
$(VENV)/.core: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing the core; this takes about a minute."
	$(INSTALL) --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.local: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing; the first time, compiling llama.cpp takes some minutes."
	$(PIP) --editable '.[local]'
	@touch $@ $(VENV)/.core

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing; the first time, compiling llama.cpp takes some minutes."
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.local $(VENV)/.core

$(VENV)/.docs: $(VENV)/.local
	$(PIP) --editable '.[local,docs]'
	@touch $@

$(VENV)/.dist: $(VENV)/.dev
	$(PIP) 'twine>=6.1'
	@touch $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "ecoshell needs Python 3.11 or newer, with its venv module; set PYTHON=/path/to/python3." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Record versions that work together, from a fresh environment.
lock:
	rm -rf $(VENV)-lock
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet '.[dev,docs]'
	$(VENV)-lock/bin/python -m pip freeze --exclude ecoshell | grep -E '^[A-Za-z0-9._-]+==' > constraints.txt
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) $(VENV)-lock build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
