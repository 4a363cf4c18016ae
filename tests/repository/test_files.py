"""What is in the repository: nothing of anybody's machine, nothing huge, every license said."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
# Folders of the machine that the course is written on. `.ci/run` may look for a mirror beside the clone.
PERSONAL = re.compile(r"(?<![\w.])/(?:work|root)/\w|\.\./shared")
MEGABYTE = 1_000_000


def files() -> list[str]:
    """Return the files that git tracks or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if result.returncode != 0:
        pytest.skip(f"git lists no files here: {result.stderr.decode().strip()}")
    return [name for name in result.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def text(name: str) -> str:
    """Return a file's text, empty for a binary file."""
    content = (ROOT / name).read_bytes()
    return "" if b"\0" in content else content.decode("utf-8", errors="replace")


def test_no_file_names_somebodys_machine() -> None:
    """A path that exists on one machine only is a lesson that runs on one machine only."""
    found = {name: PERSONAL.findall(text(name)) for name in files() if name != ".ci/run"}
    assert {name: paths for name, paths in found.items() if paths} == {}


def test_files_are_small() -> None:
    """GitHub renders notebooks up to about 1 MB, and a clone should take seconds; trained models may have more."""
    folders = {"data/storyteller/": 8, "data/translators/": 2.5, "data/": 2, "": 1}
    limits = {name: MEGABYTE * next(folders[start] for start in folders if name.startswith(start)) for name in files()}
    assert {name: limit for name, limit in limits.items() if (ROOT / name).stat().st_size > limit} == {}


def test_text_files_end_their_lines_the_same_way() -> None:
    """No carriage returns, tabs only where they mean something, a line break at the end."""
    found = {name: text(name) for name in files()}
    assert [name for name, content in found.items() if "\r" in content] == []
    assert [
        name for name, content in found.items() if "\t" in content and not name.endswith(("Makefile", ".tsv"))
    ] == []
    assert [name for name, content in found.items() if content and not content.endswith("\n")] == []


def test_no_two_files_differ_only_in_case() -> None:
    """macOS and Windows could not check out both."""
    names = [name.lower() for name in files()]
    assert len(names) == len(set(names))


def test_scripts_can_be_run() -> None:
    """A file that starts with `#!` outside tools/ is called by its name."""
    scripts = [name for name in files() if text(name).startswith("#!") and not name.startswith("tools/")]
    assert {".ci/run", ".binder/postBuild"} <= set(scripts)
    if os.name == "posix":
        assert [name for name in scripts if not os.access(ROOT / name, os.X_OK)] == []


def test_both_licenses_are_said() -> None:
    """MIT for code and CC BY 4.0 for texts, in the license file and in the metadata."""
    project = tomllib.loads(text("pyproject.toml"))["project"]
    assert project["license"] == "MIT AND CC-BY-4.0"
    license = text("LICENSE")
    assert "Permission is hereby granted, free of charge" in license
    assert "https://creativecommons.org/licenses/by/4.0/legalcode" in license


def test_the_citation_names_the_repository_of_pyproject() -> None:
    """One address, which `tools/address.py` writes."""
    project = tomllib.loads(text("pyproject.toml"))["project"]
    assert yaml.safe_load(text("CITATION.cff"))["repository-code"] == project["urls"]["Repository"]
