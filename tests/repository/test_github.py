"""Workflows, templates and metadata are valid and grant no more than they need; all of it is checked offline."""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
UNIT_TESTS = ".github/workflows/unit-tests.yml"
PACKAGE = ".github/workflows/package.yml"
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "custom.github-workflows-require-timeout": WORKFLOWS,
    "vendor.github-issue-forms": FORMS,
    "vendor.github-issue-config": [ROOT / ".github/ISSUE_TEMPLATE/config.yml"],
    "vendor.dependabot": [ROOT / ".github/dependabot.yml"],
    "vendor.citation-file-format": [ROOT / "CITATION.cff"],
}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run an installed tool on the repository."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_fit_their_schema(schema: str) -> None:
    """The schemas travel inside check-jsonschema."""
    pytest.importorskip("check_jsonschema", reason="check-jsonschema comes with the `test` extra")
    assert SCHEMAS[schema] != []
    check = [sys.executable, "-m", "check_jsonschema", "--default-filetype=yaml", f"--builtin-schema={schema}"]
    result = run(*check, *map(str, SCHEMAS[schema]))
    assert result.returncode == 0, result.stdout + result.stderr


def test_zizmor_finds_nothing() -> None:
    """Unpinned actions, kept credentials, broad permissions, injected templates: even what zizmor calls pedantic."""
    zizmor = shutil.which("zizmor", path=sysconfig.get_path("scripts"))
    if zizmor is None:
        pytest.skip("zizmor comes with the `test` extra")
    result = run(zizmor, "--offline", "--persona=pedantic", "--collect=all", "--strict-collection", ".")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_and_name_their_release(path: Path) -> None:
    """A full commit cannot be moved; the comment tells people and Dependabot which release it is. Ours need neither."""
    uses = re.findall(r"uses: *(.*)", path.read_text(encoding="utf-8"))
    assert uses != []
    foreign = [line for line in uses if line not in (f"$/{UNIT_TESTS}", f"$/{PACKAGE}")]
    assert [line for line in foreign if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_calls_exists(path: Path) -> None:
    """Each `make` command and each script in a step is there."""
    commands = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
    lines = "\n".join(step.get("run", "") for job in jobs for step in job.get("steps", []))
    assert set(re.findall(r"\bmake ([a-z-]+)", lines)) <= commands
    assert [script for script in re.findall(r"\b((?:\w+/)+\w+\.py)\b", lines) if not (ROOT / script).is_file()] == []


def load(name: str) -> dict[Any, Any]:
    """Return a workflow; YAML reads its key `on` as True."""
    return yaml.safe_load((ROOT / ".github/workflows" / name).read_text(encoding="utf-8"))


def matrix(name: str) -> dict[str, Any]:
    """Return the combinations for which a workflow calls the unit tests; each of them is passed on whole."""
    job = load(name)["jobs"]["tests"]
    assert job["uses"] == f"$/{UNIT_TESTS}"
    assert job["with"] == {key: f"${{{{ matrix.{key} }}}}" for key in ("os", "python", "packages")}
    return job["strategy"]["matrix"]


def test_each_push_runs_the_unit_tests_in_four_jobs() -> None:
    """Each system with the newest packages, and Linux with the oldest."""
    assert load("tests.yml")[True].keys() == {"push", "pull_request"}
    assert load("tests.yml")["jobs"].keys() == {"tests", "pretended-gpu"}
    assert matrix("tests.yml").keys() == {"include"}
    jobs = [(job["os"].partition("-")[0], job["packages"]) for job in matrix("tests.yml")["include"]]
    newest = [("macos", "highest"), ("ubuntu", "highest"), ("windows", "highest")]
    assert sorted(jobs) == sorted([("ubuntu", "lowest-direct"), *newest])


def test_each_push_runs_the_lessons_as_on_a_gpu() -> None:
    """A mistake that only a GPU shows is found before one is at hand."""
    steps = load("tests.yml")["jobs"]["pretended-gpu"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == ["make pretended-gpu"]


def test_each_push_says_what_to_run_where_the_badges_lead_elsewhere() -> None:
    """Before anything else, with nothing installed: a notice, no failure."""
    runs = [step["run"] for step in load("colab.yml")["jobs"]["colab"]["steps"] if "run" in step]
    assert runs == ["python tools/address.py --notice", "python tools/colab.py"]
    bare = run(sys.executable, "-I", "-S", *runs[0].split()[1:])
    assert bare.returncode == 0, bare.stderr


def test_each_week_runs_the_unit_tests_in_all_eighteen() -> None:
    """Three systems, three Pythons, two sets of packages, and nothing excluded."""
    assert load("weekly.yml")[True].keys() == {"schedule", "workflow_dispatch"}
    full = matrix("weekly.yml")
    assert {key: len(set(values)) for key, values in full.items()} == {"os": 3, "python": 3, "packages": 2}
    assert {os.partition("-")[0] for os in full["os"]} == {"ubuntu", "macos", "windows"}
    assert set(full["packages"]) == {"lowest-direct", "highest"}


def test_every_week_thousands_of_random_models_are_tried() -> None:
    """In `make test` it is a few hundred, the same ones each time."""
    steps = load("weekly.yml")["jobs"]["random"]["steps"]
    assert steps[-1]["run"].endswith("tests/invariants/test_random_cases.py")
    assert int(steps[-1]["env"]["TFBOOK_CASES"]) >= 2000


def test_the_unit_tests_run_only_when_called_and_in_one_job() -> None:
    """So that what calls them decides how many jobs there are."""
    workflow = load("unit-tests.yml")
    assert workflow[True].keys() == {"workflow_call"}
    assert workflow["jobs"].keys() == {"unit-tests"}
    assert "strategy" not in workflow["jobs"]["unit-tests"]
    callers = {path.name for path in WORKFLOWS if UNIT_TESTS in path.read_text(encoding="utf-8")}
    assert callers == {"tests.yml", "weekly.yml"}


def test_each_push_builds_the_packages_and_uses_them_far_from_the_repository() -> None:
    """In an environment of their own; `test_release.py` does as much without network."""
    assert load("package.yml")[True].keys() == {"push", "pull_request", "workflow_call"}
    steps = load("package.yml")["jobs"]["package"]["steps"]
    runs = "\n".join(step.get("run", "") for step in steps)
    assert "python -m build\n" in runs
    assert "twine check --strict" in runs
    used = next(step for step in steps if "-m tfbook own" in step.get("run", ""))
    assert "runner.temp" in used["working-directory"]


def test_only_a_published_release_goes_to_pypi_and_without_a_token() -> None:
    """As its tag says, after it was built and tried; only the last job may prove who it is."""
    workflow = load("release.yml")
    assert workflow[True] == {"release": {"types": ["published"]}}
    jobs = workflow["jobs"]
    assert jobs["package"]["needs"] == "version"
    assert jobs["publish"]["needs"] == "package"
    assert [name for name, job in jobs.items() if "id-token" in job["permissions"]] == ["publish"]
    assert jobs["publish"]["environment"]["name"] == "pypi"
    texts = {path.name: path.read_text(encoding="utf-8") for path in WORKFLOWS}
    assert [name for name, text in texts.items() if "secrets." in text or "id-token" in text] == [
        "release.yml",
        "site.yml",  # to GitHub Pages
    ]
    assert [name for name, text in texts.items() if "pypi-publish" in text] == ["release.yml"]
    bare = run(sys.executable, "-I", "-S", "tools/release.py", "--check", "v0.0.0")
    assert "the tag is v0.0.0, but tfbook/__init__.py names" in bare.stderr
