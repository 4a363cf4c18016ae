# tfbook from the command line. `make` lists what there is; CONTRIBUTING.md says when to use it.
# Needs GNU make 3.81 or newer, a POSIX shell and Python 3.11 or newer with venv; everything else is installed into .venv.

VENV = .venv
PORT = 8888
N =
CPU =
FOLDER = handout
LAB_ARGS =
PYTEST_ARGS =
# The unit tests share two cores between two processes of one thread each; UNIT_WORKERS=0 runs them in one.
UNIT_WORKERS = 2
# So do the lessons. Their budgets are those of two quiet cores; notebooks/conftest.py measures how much slower this is.
NOTEBOOK_WORKERS = 2
NOTEBOOK_ARGS =
THREADS = 1
# ELSEWHERE=1 imitates another machine: the kernels of an old processor, which round otherwise, and take as long as they like.
ELSEWHERE =
ANOTHER_MACHINE = $(if $(ELSEWHERE),export NB_SLOWNESS=20 TFBOOK_PRECISION=float32 ATEN_CPU_CAPABILITY=default \
    MKL_ENABLE_INSTRUCTIONS=SSE4_2 ONEDNN_MAX_CPU_ISA=SSE41;)
# The newest Python that works. Version managers leave commands on PATH that fail when called, so each is tried.
PYTHON = $(shell for python in python3.13 python3.12 python3.11 python3 python; do \
    $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$python && break; done)

PY = $(VENV)/bin/python
PIP = $(VENV)/bin/pip
NBVAL = $(ANOTHER_MACHINE) OMP_NUM_THREADS=$(THREADS) $(PY) -m pytest --nbval --nbval-current-env \
    --nbval-sanitize-with tests/notebooks/sanitize.cfg --nbval-cell-timeout=300 -p no:cacheprovider \
    -n $(NOTEBOOK_WORKERS) --dist loadscope $(NOTEBOOK_ARGS) notebooks
# A waiting thread spins for a moment and then sleeps: sleeping at once costs half the speed, spinning on costs many times
# that when another program wants a core.
export GOMP_SPINCOUNT ?= 2000
# PyTorch's own index has builds without the libraries of GPUs: 0.2 instead of 6 GB. Only Linux needs to be told.
CPU_INDEX = https://download.pytorch.org/whl/cpu
SPHINX = OMP_NUM_THREADS=1 $(PY) -m sphinx -q -W --keep-going -j 2 -d docs/_build/doctrees
# What a machine without network has: no mirror, no cache, the corpora that ship.
OFFLINE = unset TFBOOK_MIRROR TFBOOK_REAL; rm -rf $(VENV)/no-data; mkdir $(VENV)/no-data; \
    export TFBOOK_OFFLINE=1 TFBOOK_SCALE=cpu TFBOOK_DATA="$$PWD/$(VENV)/no-data"
REAL = unset TFBOOK_OFFLINE; export TFBOOK_REAL=1 TFBOOK_SCALE=cpu
# Seconds that a lesson and one of its cells may take on two cores; the real corpora double the first.
BUDGET = export NB_BUDGET_S=$${NB_BUDGET_S-90} NB_CELL_BUDGET_S=$${NB_CELL_BUDGET_S-60}
REAL_BUDGET = export NB_BUDGET_S=$${NB_BUDGET_S-180} NB_CELL_BUDGET_S=$${NB_CELL_BUDGET_S-60}

# tools/jupyterlab/overrides.json: no question about news, a table of contents that scrolls, Markdown shown as a page.
# Root needs leave to serve, and a machine without a display has no browser to open. Of what the server says, warnings and
# its address are shown, not the twenty lines about its extensions.
JUPYTERLAB = echo "JupyterLab starts at http://localhost:$(PORT)/lab, or at the address below;" \
        "it runs until you press Ctrl-C."; \
    test "$$(id -u)" != 0 || set -- "$$@" --allow-root; \
    test -n "$$DISPLAY$$WAYLAND_DISPLAY" || test "$$(uname)" = Darwin || set -- "$$@" --no-browser; \
    exec $(PY) -m jupyterlab --log-level=WARN --LabApp.log_level=WARN --port=$(PORT) \
        --LabApp.app_settings_dir="$$PWD/tools/jupyterlab" \
        --LabApp.default_url=/lab/tree/00_start_here.ipynb "$$@" $(LAB_ARGS)

.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help lab refresh edit test test-units test-notebooks test-real test-real-units test-real-notebooks \
    pretended-gpu check lesson notebooks weave tidy lint student solutions slides site pdf epub test-site clean

help: ## List these commands
	@echo "usage: make COMMAND [VARIABLE=value]"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do \
	    printf '  %-16s %s\n' "$$name" "$$text"; done
	@echo "variables: PYTHON (the interpreter that makes .venv), PORT and LAB_ARGS (for JupyterLab),"
	@echo "           N (a lesson's number or slug), PYTEST_ARGS and NOTEBOOK_ARGS (for pytest),"
	@echo "           ELSEWHERE=1 (test-notebooks as on another machine), THREADS (of a lesson there),"
	@echo "           CPU=1 (installs PyTorch without the libraries of GPUs), FOLDER (of student and solutions)"

lab: $(VENV)/lab.stamp ## Open your copies of the lessons in JupyterLab (PORT=8888, LAB_ARGS="--ip=0.0.0.0")
	@$(PY) tools/work.py
	@set -- --ServerApp.root_dir="$$PWD/work"; $(JUPYTERLAB)

refresh: $(VENV)/lab.stamp ## Get a fresh copy of a lesson and keep yours under a new name (N=01)
	@test -n "$(N)" || { echo "Say which lesson, for example: make refresh N=01" >&2; exit 1; }
	@$(PY) tools/work.py --refresh $(N)

edit: $(VENV)/lab.stamp ## Open the lessons themselves in JupyterLab, to change the course
	@set -- --ServerApp.root_dir="$$PWD/notebooks"; $(JUPYTERLAB)

check: $(VENV)/test.stamp ## Before a commit, in minutes: tests of what changed, and every notebook at scale quick
	@$(OFFLINE); OMP_NUM_THREADS=1 $(PY) tools/check.py $(PYTEST_ARGS)

test: test-units test-notebooks ## Check everything: the unit tests, then every notebook, as without network

test-units: $(VENV)/test.stamp ## Run the unit tests alone (PYTEST_ARGS="-k masks")
	@$(OFFLINE); OMP_NUM_THREADS=1 $(PY) -m pytest -n $(UNIT_WORKERS) --dist loadfile $(PYTEST_ARGS)

test-notebooks: $(VENV)/test.stamp ## Run every notebook alone and compare its outputs (NOTEBOOK_ARGS="-k 01_")
	@$(OFFLINE); $(BUDGET); $(NBVAL)

test-real: test-real-units test-real-notebooks ## Check with the real corpora, from TFBOOK_MIRROR or the network

test-real-units: $(VENV)/test.stamp
	@$(REAL); $(PY) -m pytest -m real $(PYTEST_ARGS)

test-real-notebooks: $(VENV)/test.stamp
	@$(REAL); $(REAL_BUDGET); $(NBVAL)

pretended-gpu: $(VENV)/test.stamp ## Run every lesson, small, as on a GPU, which this machine need not have
	@$(OFFLINE); export TFBOOK_PRETENDED=1 OMP_NUM_THREADS=1; \
	    $(PY) -m pytest -n $(UNIT_WORKERS) --dist worksteal $(PYTEST_ARGS) tests/pretended_gpu/test_lessons.py

lesson: $(VENV)/test.stamp ## Execute one lesson and time its cells (N=01)
	@test -n "$(N)" || { echo "Say which lesson, for example: make lesson N=01" >&2; exit 1; }
	@$(PY) tools/lesson.py $(N)

notebooks: $(VENV)/test.stamp ## Execute the notebooks in place, then renew CLAIMS.md and the map (N=01 for one)
	@$(PY) tools/notebooks.py $(N)
	@$(PY) tools/ledger.py
	@$(PY) tools/others.py

weave: $(VENV)/test.stamp ## Copy the package's source into the woven cells
	@$(PY) tools/weave.py

tidy: $(VENV)/test.stamp ## Lay out and fold the notebooks without executing them (N=01 for one)
	@$(PY) tools/tidy.py $(N)

lint: $(VENV)/test.stamp ## Check style, formatting and types
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) tools/tidy.py --check
	@$(PY) -m mypy

student: $(VENV)/lab.stamp ## Write the lessons for students into handout/: no outputs, nbgrader's metadata (FOLDER=, N=)
	@$(PY) tools/handout.py student "$(FOLDER)" $(N)

solutions: $(VENV)/lab.stamp ## Write the lessons for instructors into handout/: every exercise solved (FOLDER=, N=)
	@$(PY) tools/handout.py solutions "$(FOLDER)" $(N)

slides: $(VENV)/lab.stamp ## Write a lesson's headings, figures, formulas and predictions as slides into slides/ (N=01)
	@test -n "$(N)" || { echo "Say which lesson, for example: make slides N=01" >&2; exit 1; }
	@$(PY) tools/slides.py $(N)

site: $(VENV)/site.stamp ## Make the web site from the executed lessons, in docs/_build/html, with no warning
	@rm -rf docs/_build/html docs/_build/extra docs/_build/doctrees
	@$(OFFLINE); $(SPHINX) -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

pdf: site ## Print each lesson into docs/_build/pdf, by headless Chromium (N=01 for one)
	@$(PY) docs/paper.py $(N)

epub: $(VENV)/site.stamp ## Make the whole course one book, docs/_build/epub/tfbook.epub
	@rm -rf docs/_build/epub
	@$(OFFLINE); $(SPHINX) -b epub docs docs/_build/epub
	@echo "docs/_build/epub/tfbook.epub"

test-site: site epub $(VENV)/test.stamp ## Look at every page of the site in Chromium: links, console, keyboard, search, axe
	@export TFBOOK_SITE=1 OMP_NUM_THREADS=1; \
	    $(PY) -m pytest -n $(UNIT_WORKERS) --dist worksteal $(PYTEST_ARGS) tests/browser/site

clean: ## Remove .venv and everything else that can be made again
	rm -rf $(VENV) dist docs/_build docs/lessons docs/reference docs/contributing.md docs/ledger.md .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# `lab` and `test` share one environment and install once: a stamp is older than pyproject.toml only when that changed.
$(VENV)/%.stamp: pyproject.toml | $(PIP)
	@echo "Installing tfbook[$*] into $(VENV): about $(if $(CPU),2,6) GB with PyTorch, a few minutes, once."
	@test -z "$(CPU)" || test "$$(uname -s)" != Linux || $(PY) -m pip install --disable-pip-version-check --retries 1 \
	    --index-url $(CPU_INDEX) torch torchvision || echo "PyTorch's index of builds for CPUs, $(CPU_INDEX)," \
	    "cannot be reached. Its usual build follows, which is larger and runs on CPUs, too." >&2
	@$(PY) -m pip install --disable-pip-version-check --editable ".[$*]"
	@touch $@

# venv writes pip last, so one that was interrupted is made again.
$(PIP):
	@test -n "$(PYTHON)" || { echo "tfbook needs Python 3.11 or newer and found none on PATH." \
	    "Install one, or say where it is: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "tfbook needs Python 3.11 or newer; PYTHON=$(PYTHON) is older or does not start." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "$(PYTHON) comes without venv or ensurepip. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
