# make demo                       the main job on one problem, measured on this machine
# make test                       lint, types, layers and tests, with its own set-up
# make test EXTRAS=torch,triton   the same with the tests that need those packages (CI adds host,cuda)
# make docs                       write docs/settings.md and docs/cli.md again
# make site                       the documents as a site, in build/site (needs EXTRAS=docs)
# make clean                      remove what the above made

PYTHON ?= python3
VENV ?= .venv
EXTRAS ?=

comma := ,
empty :=
space := $(empty) $(empty)

bin := $(VENV)/bin
pip := $(bin)/python -m pip --disable-pip-version-check --quiet --quiet

# The compiler that the host device would find; without one, a C++ compiler comes from PyPI (the extra "host").
compiler := $(shell for c in $(if $(filter environment command,$(firstword $(origin CXX))),$(firstword $(CXX))) \
  c++ g++ clang++; do command -v $$c; done 2>/dev/null | head -n 1)
host := $(if $(compiler),,host)
demo_extras := $(host)
test_extras := $(subst $(space),$(comma),$(strip test $(subst $(comma),$(space),$(EXTRAS)) $(host)))
test_stamp := $(VENV)/.installed-$(subst $(comma),-,$(test_extras))
demo_stamp := $(VENV)/.installed-demo$(host:%=-%)

# The demo has a perf DB and kernel cache of its own, new each time: it measures, and leaves the user's DB alone.
demo_dir := $(VENV)/demo
seed_problem := --batchsize 9500 --in_channels 3 --in_h 14 --in_w 14 --out_channels 1280 --fil_h 14 --fil_w 14 \
  --conv_stride_h 14 --conv_stride_w 14 --forw 2

.PHONY: demo test lint docs site clean

demo: $(demo_stamp)
	@rm -rf $(demo_dir) && mkdir -p $(demo_dir)
	@HIPFIND_USER_DB_PATH=$(demo_dir)/hipfind.db HIPFIND_CACHE_DIR=$(demo_dir)/cache \
	  $(bin)/hipfind find $(seed_problem) --dtype fp32

test: lint
	@$(bin)/python -m pytest -n 2

lint: $(test_stamp)
	@$(bin)/ruff check .
	@$(bin)/ruff format --check .
	@$(bin)/mypy
	@$(bin)/lint-imports

docs: $(demo_stamp)
	@$(bin)/python docs/generate.py

site: $(test_stamp)
	@$(bin)/mkdocs build --strict

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "hipfind needs Python 3.10 or newer: set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments: apt-get install python3-venv" >&2; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(demo_stamp): $(VENV)/.created pyproject.toml constraints.txt
	@echo "installing hipfind$(demo_extras:%=[%]) into $(VENV)"
	@$(pip) install -c constraints.txt -e '.$(demo_extras:%=[%])'
	@touch $@

$(test_stamp): $(VENV)/.created pyproject.toml constraints.txt
	@echo "installing hipfind[$(test_extras)] into $(VENV)"
	@$(pip) install -c constraints.txt -e '.[$(test_extras)]'
	@touch $@
