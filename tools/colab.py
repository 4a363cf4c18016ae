"""Runs lessons as Colab does: each alone in an empty folder, where its setup cell has to install tfbook.

    python tools/colab.py                               every lesson, on Colab's versions of the packages (5 GB)
    python tools/colab.py 01 --python .venv/bin/python  one lesson, on the packages that this interpreter has
    python tools/colab.py --wheel                       with tfbook built from this tree and installed beforehand

Needs only Python and git. The setup cell's address is redirected to this clone, so it installs the last commit. Exits 1
when a cell fails, when tfbook comes from elsewhere, or when a package that Colab's users rely on has changed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import address

ROOT = Path(__file__).resolve().parents[1]
COLAB = (  # August 2026, on Python 3.13
    *("torch==2.11.*", "torchvision==0.26.*", "numpy==2.1.*", "matplotlib==3.10.*", "seaborn==0.13.*", "einops==0.8.*"),
    *("tokenizers==0.22.*", "ipython==7.34.*", "ipykernel==6.17.*", "ipywidgets==7.7.*", "nbconvert", "setuptools"),
)
KEPT = ("torch", "torchvision", "numpy", "ipywidgets")  # replacing one of these breaks Colab


def make_venv(folder: Path, packages_of: str | None) -> Path:
    """A temporary environment with the packages of an interpreter, or those of Colab; returns its Python."""
    subprocess.run([packages_of or sys.executable, "-m", "venv", folder], check=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if packages_of:
        site = ["-c", "import sysconfig; print(sysconfig.get_path('purelib'), end='')"]
        borrowed, own = (subprocess.check_output([each, *site], text=True) for each in (packages_of, python))
        (Path(own) / "borrowed.pth").write_text(borrowed, encoding="utf-8")
    else:
        subprocess.run([python, "-m", "pip", "install", "-q", *COLAB], check=True)
    return python


def colab_environment(folder: Path) -> dict[str, str]:
    """The variables of a run: `google.colab` can be imported, GitHub leads to this clone, the data cache is empty."""
    package = folder / "stub" / "google" / "colab"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    settings = {f"url.{ROOT.as_uri()}.insteadOf": f"https://github.com/{address.slug()}", "safe.directory": "*"}
    git = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        git |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    inherited = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONHOME")}
    stub = {"PYTHONPATH": str(folder / "stub"), "COLAB_RELEASE_TAG": "imitated", "TFBOOK_DATA": str(folder / "data")}
    return inherited | git | stub


def run_lesson(path: Path, folder: Path, python: Path, environment: dict[str, str]) -> str:
    """Executes a copy of the notebook in `folder`; returns the error, if any."""
    folder.mkdir(parents=True)
    shutil.copy(path, folder)
    command = [python, "-m", "nbconvert", "--to", "notebook", "--execute", "--output", "executed", path.name]
    finished = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return finished.stderr if finished.returncode else ""


def kept_versions(python: Path) -> list[str]:
    """The packages that must not change, such as "numpy==2.1.3"."""
    listing = subprocess.check_output([python, "-m", "pip", "list", "--format=freeze"], text=True)
    return [line for line in listing.split() if line.partition("==")[0] in KEPT]


def tfbook_is_elsewhere(venv: Path, python: Path, environment: dict[str, str]) -> str:
    """Where tfbook is imported from, if that is outside the environment."""
    command = [python, "-c", "import tfbook; print(tfbook.__file__)"]
    file = subprocess.check_output(command, cwd=venv, env=environment, text=True).strip()
    return "" if Path(file).resolve().is_relative_to(venv.resolve()) else file


def find(names: list[str]) -> list[Path]:
    """The lessons with these numbers, slugs or paths; without names, all. Leaves the program when there is none."""
    every = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    known = {name: path for path in every for name in (path.name[:2], path.stem[3:])}
    found = [known.get(name.zfill(2) if name.isdigit() else name, Path(name)) for name in names] or every
    if not found or not all(path.is_file() for path in found):
        raise SystemExit(f"no such lesson; notebooks/ has {', '.join(known) or 'none'}")
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lesson", nargs="*", help="number, slug or path; all lessons when left out")
    parser.add_argument("--python", help="use the packages of this interpreter, instead of Colab's versions")
    parser.add_argument("--wheel", action="store_true", help="install tfbook from this tree before the lessons run")
    options = parser.parse_args(arguments)
    paths = find(options.lesson)
    failed = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python, environment = make_venv(folder / "venv", options.python), colab_environment(folder)
        before = kept_versions(python)
        if options.wheel:
            subprocess.run([python, "-m", "pip", "install", "-q", str(ROOT)], check=True)
        for path in paths:
            started = time.perf_counter()
            if problem := run_lesson(path, folder / "content" / path.stem, python, environment):
                failed.append(path.name)
            print(f"{time.perf_counter() - started:6.1f} s  {path.name}  {problem or 'ok'}", flush=True)
        if (after := kept_versions(python)) != before:
            failed.append(f"packages changed from {before} to {after}")
        if not failed and (file := tfbook_is_elsewhere(folder / "venv", python, environment)):
            failed.append(f"tfbook was taken from {file}")
    if failed:
        raise SystemExit("failed as in Colab: " + "; ".join(failed))


if __name__ == "__main__":
    main()
