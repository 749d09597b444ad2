# The front door. CMake and CTest do the work in $(BUILD).
BUILD ?= build

all: $(BUILD)/Makefile
	cmake --build $(BUILD) --parallel

$(BUILD)/Makefile:
	cmake -S . -B $(BUILD)

test: all
	ctest --test-dir $(BUILD) --output-on-failure

.PHONY: all test
