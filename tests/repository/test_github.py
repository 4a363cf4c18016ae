"""Workflows, templates and metadata are valid and grant no more than they need; all of it is checked offline."""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
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
    """A full commit cannot be moved; the comment tells people and Dependabot which release it is."""
    uses = re.findall(r"uses: *(.*)", path.read_text(encoding="utf-8"))
    assert uses != []
    assert [line for line in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_calls_exists(path: Path) -> None:
    """Each `make` command and each script in a step is there."""
    commands = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
    lines = "\n".join(step.get("run", "") for job in jobs for step in job["steps"])
    assert set(re.findall(r"\bmake ([a-z-]+)", lines)) <= commands
    assert [script for script in re.findall(r"\b(\w+/\w+\.py)\b", lines) if not (ROOT / script).is_file()] == []
