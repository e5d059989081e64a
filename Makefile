# `make demo` and `make test` do their own set-up; Python 3.10+ is all they need
# (and a C++ compiler for the native core).
PYTHON    ?= python3
SAN_CXX   ?= g++
FUZZ_ARGS ?=

VENV  := .venv
PY    := $(VENV)/bin/python
PIP   := $(PY) -m pip install -qq --disable-pip-version-check -c constraints.txt
TORCH := $(shell sed -n '/^torch==/p' constraints.txt)
READY := $(VENV)/.fenchel
CODE  := $(shell find src CMakeLists.txt -not -name '__pycache__' -not -name '*.pyc')
CPP   := $(shell find src/fenchel/kernels/csrc tests/fuzz -name '*.h' -o -name '*.cpp')
SAN   := $(CURDIR)/build/sanitize
SAN_SETS  ?= avx2;avx512
SANITIZED ?= $(addprefix tests/,kernels maps structures solvers regularizers losses attention nn testing)

.PHONY: help setup demo demo-maps test lint bench docs sanitize sanitize-quick fuzz sanitized-core sanitized-tests wheel clean
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

setup: $(READY) ## create .venv, install torch and fenchel with its test tools

demo: $(VENV)/.extra-demo ## train on English and Russian words, list all forms, draw into out/
	@$(PY) examples/demo_inflection.py

demo-maps: $(VENV)/.extra-plot ## show the maps: values, speed, pictures in out/
	@$(PY) examples/demo_maps.py

test: $(READY) ## all tests, then the examples in the docstrings
	@echo "==> tests"
	@$(PY) -m pytest -n 2 --dist loadgroup tests
	@echo "==> docstring examples"
	@$(PY) -m pytest -q --doctest-modules --pyargs fenchel

lint: $(VENV)/.extra-dev ## ruff, mypy and clang-format
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/clang-format --dry-run -Werror $(CPP)

bench: $(VENV)/.extra-bench ## speed against torch and the entmax package
	@$(PY) -m benchmarks.maps --peers --out out/bench.jsonl
	@$(PY) -m benchmarks.losses --peers --out out/bench.jsonl
	@$(PY) -m benchmarks.output_layer --peers --out out/bench.jsonl
	@$(PY) -m benchmarks.attention --peers --out out/bench.jsonl
	@$(PY) -m benchmarks.group_maps
	@$(PY) -m benchmarks.structures_sequence --peers
	@$(PY) -m benchmarks.structures_tree
	@$(PY) -m benchmarks.structures_alignment
	@$(PY) -m benchmarks.structures_sparsemap --large
	@$(PY) -m benchmarks.estimators

docs: $(VENV)/.extra-docs ## the documentation, strictly, into docs/_build/html
	$(PY) -m sphinx -W --keep-going -n -b html docs docs/_build/html

# All folders whose tests enter the core (above nn/ nothing enters it in another way).
sanitize: sanitized-core ## tests that enter the core, and fuzzing, under AddressSanitizer and UBSan
	@$(MAKE) --no-print-directory sanitized-tests fuzz

# For every change: 4 minutes on two cores, with the build.
sanitize-quick: ## the same in 4 minutes: one instruction set, the kernels' tests, and a shorter fuzzing
	@$(MAKE) --no-print-directory sanitized-tests fuzz SAN_SETS=avx2 SANITIZED=tests/kernels \
	 FUZZ_ARGS=1000

# The runtime of the sanitizers must come first in the process, and libstdc++ with it: otherwise
# it cannot intercept the exceptions that torch throws. --capture=sys lets its reports through.
# Left out: what measures time or memory, or starts processes of its own.
sanitized-tests: sanitized-core
	@echo "==> tests on the sanitized core"
	@FENCHEL_LIBRARY=$(SAN)/libfenchel_core.so \
	 LD_PRELOAD="$$($(SAN_CXX) -print-file-name=libasan.so):$$($(SAN_CXX) -print-file-name=libstdc++.so)" \
	 ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	 $(PY) -m pytest -n 2 $(SANITIZED) -q --capture=sys \
	 --ignore=tests/kernels/test_interrupt.py --ignore=tests/kernels/test_scratch.py \
	 --ignore=tests/losses/test_vocab_parallel_processes.py

fuzz: sanitized-core ## only the fuzzing of the C ABI (FUZZ_ARGS=...)
	@echo "==> fuzzing the C ABI"
	@UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	 $(SAN)/fuzz_kernels $(FUZZ_ARGS)

sanitized-core: $(VENV)/.extra-dev
	@echo "==> building the sanitized core"
	@$(VENV)/bin/cmake -S . -B $(SAN) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(VENV)/bin/ninja \
	 -DCMAKE_CXX_COMPILER=$(SAN_CXX) -DFENCHEL_SANITIZE=ON "-DFENCHEL_INSTRUCTION_SETS=$(SAN_SETS)" \
	 --log-level=WARNING
	@$(VENV)/bin/cmake --build $(SAN)

wheel: $(VENV)/.extra-dev ## sdist and wheel into dist/
	$(PY) -m build --outdir dist

clean: ## remove what the other targets made, except .venv
	rm -rf build dist out docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis

# -- set-up ------------------------------------------------------------------

# pip is what venv writes last: when it is there, the environment is whole.
$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "fenchel needs Python 3.10 or newer; try 'make PYTHON=python3.12 $(MAKECMDGOALS)'." >&2; exit 1; }
	@echo "==> creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "Could not create $(VENV); on Debian and Ubuntu install python3-venv." >&2; exit 1; }

# The package is installed, not linked, so the tests see what users get. When only code changed,
# only the package is installed again. The stamp carries the time from before the install: an edit
# made meanwhile is not lost.
$(READY): $(CODE) pyproject.toml constraints.txt | $(VENV)/bin/pip
	@touch $@.start
	@if [ -n "$(filter pyproject.toml constraints.txt,$?)" ]; then \
	  echo "==> installing $(TORCH), the test tools and fenchel (minutes the first time)"; \
	  $(PIP) '$(TORCH)' '.[test,plot]'; \
	else \
	  echo "==> installing fenchel again"; \
	  $(PIP) --no-deps --force-reinstall .; \
	fi
	@$(PY) -c 'import json, pathlib, sysconfig; \
	  info = pathlib.Path(sysconfig.get_path("platlib"), "fenchel/kernels/_build_info.json"); \
	  info = json.loads(info.read_text()); \
	  print("==> native core: built with", info["compiler"]) if info["native"] else \
	  print("==> no native core, the reference kernels will be used:", info["reason"])'
	@mv $@.start $@

# Further tools; fenchel itself is already there, so pip adds only what the extra names.
$(VENV)/.extra-%: pyproject.toml constraints.txt | $(READY)
	@echo "==> installing the tools for '$*'"
	@$(PIP) '$(TORCH)' 'fenchel[$*]'
	@touch $@
