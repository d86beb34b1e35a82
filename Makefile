# Two commands set everything up on a machine with Python 3.11 or 3.12 and make:
#   make demo    install, run LDC and the baselines on the embedded data set, draw the table
#   make test    install, pass the tests
# `make docs` builds the site into build/site, `make package` what a package index takes into dist.
# `make readme RESULTS=NEW_FOLDER` draws README.md's tables and pictures anew; with DATA_ROOT=DIR,
# where CIFAR100 and Tiny-ImageNet lie, those on photographs too (hours without a GPU: networks are
# trained, but not those of runs that RESULTS has). DATA_OPTIONS="--unofficial-data --split seeded"
# takes a copy of CIFAR100 without the published order.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RESULTS ?= results

.PHONY: demo readme cifar100 photographs test lint types docs package bench clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV): PyTorch and what else pyproject.toml lists, some gigabytes"
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/fscil-bench run --method ncm,free_lunch,ldc,finetune --protocol glyphs --seeds 0-2 --results $(RESULTS)
	$(BIN)/fscil-bench run --method ncm --set space=tukey --protocol glyphs --seeds 0-2 --results $(RESULTS)
	$(BIN)/fscil-bench report main-table --protocol glyphs --results $(RESULTS)

readme: demo $(if $(DATA_ROOT),cifar100 photographs)
	$(BIN)/fscil-bench report calibration-tsne --protocol glyphs --run-missing --results $(RESULTS)
	$(BIN)/python docs/update_readme.py $(RESULTS)

CIFAR100 := --data-root $(DATA_ROOT) $(DATA_OPTIONS) --results $(RESULTS)

cifar100: $(VENV)/.installed
	$(BIN)/fscil-bench run --method all-frozen --protocol cifar100_cec,cifar100 --seeds 0-9 $(CIFAR100)
	$(BIN)/fscil-bench run --method ncm --set space=tukey --protocol cifar100_cec,cifar100 --seeds 0-9 $(CIFAR100)
	$(BIN)/fscil-bench run --method cec_trained,finetune,icarl,joint_balanced --protocol cifar100_cec --seeds 0-2 $(CIFAR100)
	$(BIN)/fscil-bench run --method fact --representation fact --protocol cifar100 --seeds 0-9 $(CIFAR100)
	for protocol in cifar100_cec cifar100; do $(BIN)/fscil-bench report main-table --representation cosine --set usual=true --set published=all --protocol $$protocol --results $(RESULTS) || exit 1; done
	$(BIN)/fscil-bench report curves --protocol cifar100_cec --results $(RESULTS)
	$(BIN)/fscil-bench report reproduction --protocol cifar100 --results $(RESULTS)

photographs: $(VENV)/.installed
	$(BIN)/fscil-bench report grid --protocol tiny_imagenet100 --representation cosine,fact --run-missing --data-root $(DATA_ROOT) --results $(RESULTS)

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n auto

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

docs: $(VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # with --quiet no warning would count

package: $(VENV)/.installed
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/bench_training.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build dist *.egg-info
