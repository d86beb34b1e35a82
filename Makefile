# Two commands set everything up on a machine with Python 3.11 or 3.12 and make:
#   make demo    install, run LDC and the baselines on the embedded data set, draw the table
#   make test    install, pass the tests
# `make readme RESULTS=NEW_FOLDER` draws README.md's tables and pictures anew; with DATA_ROOT=DIR,
# where Tiny-ImageNet lies, those on photographs too (hours without a GPU: networks are trained).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RESULTS ?= results

.PHONY: demo readme photographs test lint types bench clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV): PyTorch and what else pyproject.toml lists, some gigabytes"
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/fscil-bench run --method ncm,free_lunch,ldc,finetune --protocol glyphs --seeds 0-2 --results $(RESULTS)
	$(BIN)/fscil-bench run --method ncm --set space=tukey --protocol glyphs --seeds 0-2 --results $(RESULTS)
	$(BIN)/fscil-bench report main-table --protocol glyphs --results $(RESULTS)

readme: demo $(if $(DATA_ROOT),photographs)
	$(BIN)/fscil-bench report calibration-tsne --protocol glyphs --run-missing --results $(RESULTS)
	$(BIN)/python docs/update_readme.py $(RESULTS)

photographs: $(VENV)/.installed
	$(BIN)/fscil-bench report grid --protocol tiny_imagenet100 --representation cosine,fact --run-missing --data-root $(DATA_ROOT) --results $(RESULTS)

test: $(VENV)/.installed
	$(BIN)/python -m pytest

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/bench_training.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache *.egg-info
