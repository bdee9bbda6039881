# make demo   install and run the five example problems end to end
# make test   every check and every test
# make random many more random graphs than make test takes, some minutes
# make replay whether every text that the compiler makes is as recorded; PROBLEMS=folder, UPDATE=1
# make docs   the site in build/site
# make dist   wheel and sdist in dist, the wheel tried in an environment of its own
#
# A fresh machine needs Python 3.11 or newer, git, make and a C++ compiler. No GPU: the emulator runs
# the kernels. Everything goes into VENV. Where PYTHON already has a torch (a GPU machine), the
# environment sees that one and installs none; elsewhere TORCH is installed first. PyPI's torch for
# Linux carries CUDA, some gigabytes: point PIP_EXTRA_INDEX_URL at PyTorch's index of CPU wheels to
# save them.
#
#     make test PYTHON=python3.12            another interpreter
#     make test-gpu VENV=                    no environment: the tools that are on PATH

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0

BIN := $(if $(VENV),$(VENV)/bin/)
INSTALLED := $(if $(VENV),$(VENV)/.installed)
# Without an environment nothing has been installed: Python finds the package where it lies.
export PYTHONPATH := $(if $(VENV),,src)
DEVICE_CODE := $(shell find src -name '*.cuh' -o -name '*.cu' -o -name '*.cpp' -o -name '*.h')
EXAMPLES := $(wildcard examples/*.py)

.PHONY: demo test lint style types pytest random replay test-gpu docs dist format clean
.DELETE_ON_ERROR:

demo: $(INSTALLED)
	@mkdir -p build/demo
	@set -e; for problem in $(filter-out %_new.py,$(EXAMPLES)); do \
	    name=$$(basename $$problem .py); \
	    echo; echo "kernelwright optimize $$problem -o build/demo/$${name}_new.py"; \
	    $(BIN)kernelwright optimize $$problem -o build/demo/$${name}_new.py; \
	done; echo; ls -l build/demo/*_new.py

# mypy takes one core for twenty seconds: the tests have the other meanwhile.
test: style
	$(MAKE) --no-print-directory --jobs=2 types pytest

lint: style types

style: $(INSTALLED)
	$(BIN)ruff check
	$(BIN)ruff format --check
	$(BIN)lint-imports
	$(BIN)clang-format --style=file --dry-run --Werror $(DEVICE_CODE)

types: $(INSTALLED)
	$(BIN)mypy

# Tests of one file mostly go to one worker: what they share is made once. So is bytecode, whatever the
# shell says of it: dozens of tests start processes that import all of the package. Of two workers one
# waits a fifth of the time, for a process that is to hang or die: a third has two cores busy.
pytest: $(INSTALLED)
	PYTHONDONTWRITEBYTECODE= $(BIN)python -m pytest -q -n 3 --dist worksteal -m "not gpu"

random: $(INSTALLED)
	$(BIN)python -m pytest -q -n 2 tests/test_random_graphs.py --random-graphs 5000

replay: $(INSTALLED)
	$(BIN)python tests/replay/replay.py $(if $(PROBLEMS),--problems $(PROBLEMS)) $(if $(UPDATE),--update)

test-gpu: $(INSTALLED)
	$(BIN)python3 -m pytest -q -m gpu

docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)mkdocs build --quiet --strict

# Isolated from the checkout: what the wheel lacks is not there. What it needs comes from VENV.
dist: $(INSTALLED)
	rm -rf dist build/installed
	$(BIN)python3 -m build --no-isolation --outdir dist >/dev/null
	$(BIN)python3 -m venv --without-pip --system-site-packages build/installed
	$(BIN)python3 -m pip --python build/installed/bin/python install --quiet --no-deps --no-index dist/*.whl
	$(BIN)python3 -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
	    > $$(build/installed/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/needed.pth
	cd build && PYTHONPATH= installed/bin/kernelwright --help >/dev/null
	cd build && PYTHONPATH= installed/bin/kernelwright doctor
	cd build && PYTHONPATH= installed/bin/kernelwright optimize --target cpu ../examples/scalar_mul.py \
	    --seeds 1 -o installed/scalar_mul_new.py
	ls -l dist

format: $(INSTALLED)
	$(BIN)ruff check --fix
	$(BIN)ruff format
	$(BIN)clang-format --style=file -i $(DEVICE_CODE)

$(VENV)/.installed: pyproject.toml
	if $(PYTHON) -c "import sys, torch; sys.exit(sys.prefix != sys.base_prefix)" 2>/dev/null; then \
	    $(PYTHON) -m venv --system-site-packages $(VENV); \
	else \
	    $(PYTHON) -m venv $(VENV) && $(BIN)pip install --quiet $(TORCH); \
	fi
	$(BIN)pip install --quiet --editable '.[dev,docs,ray]'
	touch $@

clean:
	rm -rf build dist
