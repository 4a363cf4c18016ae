"""A release: one version in three files, a changelog that says something, and packages that work by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from datetime import date
from pathlib import Path

import pytest

import tfbook

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import release

ROOT = Path(__file__).parents[2]
DAY = date(2027, 1, 2)


def test_the_version_is_the_same_everywhere() -> None:
    """Before the first release the changelog names none, and the citation no day."""
    found = release.named(ROOT)
    assert found[release.PACKAGE][0] == found[release.CITATION][0] == tfbook.__version__
    assert found[release.CHANGELOG][0] in ("", tfbook.__version__)
    assert found[release.CHANGELOG][1] == found[release.CITATION][1]


def test_the_changelog_names_the_first_release_until_there_is_one() -> None:
    text = (ROOT / release.CHANGELOG).read_text(encoding="utf-8")
    changes = release.unreleased(text)
    assert release.named(ROOT)[release.CHANGELOG][0] or f"first release, {tfbook.__version__}" in changes


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The three files, before a first release."""
    (tmp_path / "tfbook").mkdir()
    (tmp_path / release.PACKAGE).write_text('"""Doc."""\n\n__version__ = "0.1.0"\n', encoding="utf-8")
    (tmp_path / release.CITATION).write_text("title: x\nversion: 0.1.0\nlicense: MIT\n", encoding="utf-8")
    (tmp_path / release.CHANGELOG).write_text("# Changelog\n\n## [Unreleased]\n\n- A lesson.\n", encoding="utf-8")
    return tmp_path


def test_a_release_is_named_in_all_three(tree: Path) -> None:
    with pytest.raises(ValueError, match=r"CHANGELOG\.md names none"):
        release.check(tree, "v0.1.0")
    release.release(tree, "0.1.0", DAY)
    release.check(tree, "v0.1.0")
    changelog = (tree / release.CHANGELOG).read_text(encoding="utf-8")
    assert changelog == "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2027-01-02\n\n- A lesson.\n"
    assert "version: 0.1.0\ndate-released: 2027-01-02\nlicense" in (tree / release.CITATION).read_text(encoding="utf-8")


def test_the_next_release_follows_the_last(tree: Path) -> None:
    release.release(tree, "0.1.0", DAY)
    with pytest.raises(ValueError, match="says nothing under"):
        release.release(tree, "0.2.0", DAY)
    text = (tree / release.CHANGELOG).read_text(encoding="utf-8")
    text = text.replace(release.UNRELEASED, f"{release.UNRELEASED}\n- More.\n")
    (tree / release.CHANGELOG).write_text(text, encoding="utf-8")
    for version in ("0.1.0", "0.0.9"):
        with pytest.raises(ValueError, match=r"does not follow 0\.1\.0"):
            release.release(tree, version, DAY)
    release.release(tree, "0.10.0", date(2027, 2, 3))
    assert set(release.named(tree).values()) == {("0.10.0", ""), ("0.10.0", "2027-02-03")}


@pytest.mark.parametrize("version", ["v0.2.0", "0.2", "0.2.0rc1", ""])
def test_a_version_has_three_numbers(tree: Path, version: str) -> None:
    with pytest.raises(ValueError, match="expected three numbers"):
        release.release(tree, version, DAY)


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (release.PACKAGE, "0.1.0", "0.1.1", r"tfbook/__init__\.py names 0\.1\.1"),
        (release.CITATION, "version: 0.1.0", "version: 0.1.1", r"CITATION\.cff names 0\.1\.1"),
        (release.CITATION, "date-released: 2027-01-02\n", "", "different days"),
        (release.CHANGELOG, "2027-01-02", "2027-01-03", "different days"),
    ],
)
def test_a_file_that_names_another_release_is_found(tree: Path, name: str, old: str, new: str, said: str) -> None:
    release.release(tree, "0.1.0", DAY)
    text = (tree / name).read_text(encoding="utf-8")
    (tree / name).write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        release.check(tree, "v0.1.0")


# ---- the packages ------------------------------------------------------------------------------------------------


def hatch(folder: Path, target: str, source: Path = ROOT) -> Path:
    """A package built as PyPI gets it, without network."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    [package] = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return package


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(hatch(folder, "sdist")) as archive:
        archive.extractall(folder, filter="data")
    return folder / f"tfbook-{tfbook.__version__}"


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built from the source distribution, as `python -m build` does."""
    return hatch(tmp_path_factory.mktemp("wheel"), "wheel", source)


def test_the_source_holds_what_a_wheel_needs_and_no_more(source: Path) -> None:
    top = {path.name for path in source.iterdir()}
    texts = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
    assert top - {".gitignore"} == {"data", "tfbook"} | texts
    inner = [path for path in source.rglob("*") if path.is_file()]
    assert [path for path in inner if path.suffix in (".pyc", ".ipynb") or "__pycache__" in path.parts] == []
    assert sum(path.stat().st_size for path in inner) < 30_000_000


def test_the_source_and_the_tree_give_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    held, direct = (set(zipfile.ZipFile(path).namelist()) for path in (wheel, hatch(tmp_path, "wheel")))
    assert held == direct


INSTALLED = """
import tfbook
from pathlib import Path
from tfbook import data
from tfbook.course.experiments import stored
from tfbook.plot.views.base import embed
assert Path(tfbook.__file__).is_relative_to({place!r}), tfbook.__file__
assert len(data.load("english-french")["train"]) > 10_000
assert stored("decoding.times")
assert "mountViews" in embed("attention", {{}}, "")
print(tfbook.__version__)
"""


@pytest.mark.slow
def test_the_wheel_works_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    """With the other packages of this one, from any folder: data, stored results, views, commands, a page."""
    place = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    site = next(place.rglob("site-packages"))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    (tmp_path / "empty").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [str(python), *arguments],
            cwd=tmp_path / "empty",
            env=environment | {"TFBOOK_OFFLINE": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("-c", INSTALLED.format(place=str(place))).split()[-1] == tfbook.__version__
    assert "Commands, each with --help: grade, own, page" in run("-m", "tfbook", "--help")
    run("-m", "tfbook", "own", "--out", "mine.py")
    run("-m", "tfbook", "page", "--out", "page.html")
    assert (tmp_path / "empty" / "mine.py").is_file()
    assert (tmp_path / "empty" / "page.html").stat().st_size > 100_000


def test_what_is_shown_on_pypi_leads_to_the_repository(wheel: Path) -> None:
    """Links of the README would lead nowhere there."""
    archive = zipfile.ZipFile(wheel)
    [name] = [name for name in archive.namelist() if name.endswith("/METADATA")]
    text = archive.read(name).decode()
    assert "Description-Content-Type: text/markdown" in text
    assert "](https://github.com/" in text
    assert "](notebooks/" not in text
