"""The package as others get it: quick and light to import, whole in its wheel, checked while it is tested."""

import ast
import statistics
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {"IPython", "matplotlib", "pandas", "pooch", "sacrebleu", "scipy", "seaborn", "sklearn", "torchvision"}
IMPORT_ALL = """
import importlib, pkgutil, tfbook
for module in pkgutil.walk_packages(tfbook.__path__, "tfbook."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def python(code: str, cwd: Path = ROOT) -> str:
    """Return what a fresh interpreter prints; it sees the package in `cwd` and none of the tests' hooks."""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_import_adds_little_to_torch() -> None:
    """Under 0.2 s beyond `import torch`: the middle of three."""
    code = "import time, torch; start = time.perf_counter(); import tfbook; print(time.perf_counter() - start)"
    seconds = [float(python(code)) for _ in range(3)]
    assert statistics.median(seconds) < 0.2, seconds


def test_nothing_heavy_is_imported() -> None:
    """Not even by every module together: plots, downloads, metrics and images load their libraries where needed."""
    loaded = python(f"import torch, sys; before = set(sys.modules)\n{IMPORT_ALL}\nprint(*set(sys.modules) - before)")
    assert HEAVY & {name.partition(".")[0] for name in loaded.split()} == set()


def public_docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the docstring of a module and those of its public classes, functions and methods, each with its name."""

    def walk(node: ast.Module | ast.ClassDef | ast.FunctionDef, name: str) -> Iterator[tuple[str, str]]:
        yield name, ast.get_docstring(node) or ""
        for child in node.body:
            if isinstance(child, ast.ClassDef | ast.FunctionDef) and not child.name.startswith("_"):
                yield from walk(child, f"{name}.{child.name}")

    return walk(ast.parse(path.read_text(encoding="utf-8")), path.relative_to(ROOT).as_posix())


def test_public_docstrings_name_what_they_describe() -> None:
    """None begins with "What"; mistakes in exercises may, since a learner reads their docstrings as explanations."""
    paths = [path for path in (ROOT / "tfbook").rglob("*.py") if not path.stem.endswith("exercises")]
    assert len(paths) > 200
    found = [name for path in paths for name, text in public_docstrings(path) if text.startswith("What ")]
    assert found == []


def test_a_docstring_that_begins_with_what_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of modules, classes, methods and functions, unless they are private."""
    (tmp_path / "a.py").write_text(
        '"""What is here."""\n\nclass A:\n    """Good."""\n\n    def f(self):\n        """What f does."""\n\n'
        'def _g():\n    """What is private."""\n'
    )
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    assert [name for name, text in public_docstrings(tmp_path / "a.py") if text.startswith("What ")] == [
        "a.py",
        "a.py.A.f",
    ]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Return the wheel that hatchling builds from this tree, without network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_the_package_and_the_corpora(wheel: zipfile.ZipFile) -> None:
    """Every file of tfbook/, every file of data/ as tfbook/_data, the license, and nothing else."""
    package = {f"tfbook/{name}" for name in files("tfbook")}
    corpora = {f"tfbook/_data/{name}" for name in files("data")}
    held = set(wheel.namelist())
    assert {name for name in held if ".dist-info/" not in name} == package | corpora
    assert any(name.endswith("/licenses/LICENSE") for name in held)


def files(folder: str) -> list[str]:
    """Return the paths of a folder's files in that folder, without what Python and editors leave behind."""
    paths = [path.relative_to(ROOT / folder) for path in (ROOT / folder).rglob("*") if path.is_file()]
    return [path.as_posix() for path in paths if not any(part.startswith((".", "__pycache__")) for part in path.parts)]


def test_the_wheel_finds_its_corpora(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """Unpacked far from the clone, as pip installs it, the package reads the corpus that it carries."""
    wheel.extractall(tmp_path)
    code = "import tfbook; from tfbook import data; pairs = data.load('english-french')['train']; "
    code += "print(tfbook.__file__, len(pairs))"
    file, size = python(code, tmp_path).splitlines()[-1].rsplit(" ", 1)
    assert Path(file).is_relative_to(tmp_path)
    assert int(size) > 10_000
