"""pyproject.toml is the one source of names and versions: the conda environments and the texts follow it."""

import ast
import json
import re
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}


def conda_specs(requirements: list[str]) -> set[str]:
    """Write pip's requirements as conda-forge's: `torch>=2.9` becomes `pytorch>=2.9`."""
    split = (re.fullmatch(r"([\w-]+)([=><!~].*)", requirement).groups() for requirement in requirements)
    return {CONDA_NAMES.get(name, name) + version for name, version in split}


def packages(file: str) -> set[str]:
    """Return the conda packages that an environment file names, Python and pip aside."""
    listed = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))["dependencies"]
    return {spec for spec in listed if isinstance(spec, str) and not re.match(r"python\b|pip$", spec)}


@pytest.mark.parametrize("file", ["environment.yml", ".binder/environment.yml"])
def test_a_conda_environment_names_what_pyproject_names(file: str) -> None:
    """Equal sets, so that a failure shows what is missing and what is too much."""
    assert packages(file) == conda_specs(PROJECT["dependencies"] + EXTRAS["lab"])


@pytest.mark.parametrize("file", ["environment.yml", ".binder/environment.yml"])
def test_a_learner_waits_for_no_package_of_one_version(file: str) -> None:
    """The linters and their types are; conda-forge gets such a version weeks after PyPI, or never."""
    assert [spec for spec in packages(file) if "==" in spec] == []


@pytest.mark.parametrize("file", ["environment.yml", ".binder/environment.yml"])
def test_a_conda_environment_has_the_python_and_the_channel(file: str) -> None:
    """The `pytorch` channel is retired and `defaults` is not free for everyone: conda-forge alone."""
    environment = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))
    assert f"python{PROJECT['requires-python']}" in environment["dependencies"]
    assert environment["channels"] == ["conda-forge", "nodefaults"]


def test_the_readme_and_the_conda_environment_agree() -> None:
    """The name that is activated, and JupyterLab with the course's settings on the copies, also without make."""
    readme, environment = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "environment.yml"))
    name = yaml.safe_load(environment)["name"]
    assert f"conda env create -f environment.yml && conda activate {name}" in readme
    assert f"conda env create -f environment.yml && conda activate {name}" in environment
    opened = re.findall(r"^(?:python tools/work\.py && )?jupyter lab (.*)$", readme, flags=re.MULTILINE)
    assert opened == ["--LabApp.app_settings_dir=tools/jupyterlab work"] * 2  # for Windows, and for conda
    assert (ROOT / "tools/jupyterlab/overrides.json").is_file()
    assert 'pip install -e ".[lab]"' in readme


def test_the_development_container_installs_for_cpus_and_opens_the_copies() -> None:
    """A Python that is tested, the Makefile's way to install, and a lesson that is there then."""
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    assert f"Programming Language :: Python :: {container['image'].rpartition(':')[2]}" in PROJECT["classifiers"]
    install, copy = container["postCreateCommand"].split(" && ")
    assert install == "make .venv/lab.stamp CPU=1"
    assert (ROOT / copy.removeprefix(".venv/bin/python ")).is_file()
    [opened] = container["customizations"]["codespaces"]["openFiles"]
    assert (ROOT / opened.replace("work/", "notebooks/")).is_file()
    assert container["postAttachCommand"].endswith(f"code {opened}")


def test_what_the_package_imports_is_declared() -> None:
    """A package that only comes along with another can leave with any release of that one."""
    imported = {module: file for file in sorted((ROOT / "tfbook").rglob("*.py")) for module in imports(file)}
    assert {"torch", "scipy", "PIL"} <= imported.keys()  # at the top of a module, in functions, named otherwise by pip
    declared = {requirement_name(line) for line in PROJECT["dependencies"]}
    assert {module: file.name for module, file in imported.items() if not distributions(module) & declared} == {}


def imports(file: Path) -> set[str]:
    """Return the packages that a file imports anywhere, apart from itself and Python's own."""
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0]
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"tfbook"}


def distributions(module: str) -> set[str]:
    """Return what pip calls the packages that a module may come from: {"pillow"} for PIL."""
    return {requirement_name(name) for name in installed().get(module, [module])}


@cache
def installed() -> Mapping[str, list[str]]:
    """Return the distributions of every module; reading their lists of files takes a second."""
    return packages_distributions()


def requirement_name(requirement: str) -> str:
    """Return the name alone, in the one spelling that all its spellings stand for."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement).group()).lower()


def test_every_requirement_has_a_lower_bound() -> None:
    """The job on the oldest packages installs exactly these bounds; a bare name would test torch 0.1."""
    requirements = PROJECT["dependencies"] + [name for extra in EXTRAS.values() for name in extra]
    assert [name for name in requirements if not re.search(r">=|==", name)] == []


def test_colab_needs_no_newer_package_than_it_has() -> None:
    """A lower bound above one of the versions in tools/colab.py would make pip replace that package there."""
    colab = dict(re.findall(r'"([\w-]+)==([\d.]+)\.\*"', (ROOT / "tools/colab.py").read_text(encoding="utf-8")))
    bounds = dict(requirement.split(">=") for requirement in PROJECT["dependencies"])
    shared = bounds.keys() & colab.keys()
    assert {"torch", "torchvision", "numpy"} <= shared
    assert [name for name in shared if series(bounds[name]) > series(colab[name])] == []


def series(version: str) -> tuple[int, ...]:
    """Return the release series: (0, 13) for 0.13.2, since Colab's versions are known to that point."""
    return tuple(int(part) for part in version.split(".")[:2])


def test_the_workflows_cover_the_declared_pythons() -> None:
    """The classifiers promise what is tested every week; each push tests the first and the last of them."""
    weekly, push = (
        yaml.safe_load((ROOT / ".github/workflows" / name).read_text(encoding="utf-8"))["jobs"]["tests"]
        for name in ("weekly.yml", "tests.yml")
    )
    promised = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r"Python :: 3\.", c)]
    assert weekly["strategy"]["matrix"]["python"] == promised
    assert {promised[0], promised[-1]} <= {job["python"] for job in push["strategy"]["matrix"]["include"]}
    assert PROJECT["requires-python"] == f">={promised[0]}"
