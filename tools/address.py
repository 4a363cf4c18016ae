"""Writes the address of the repository, the field Repository of pyproject.toml, everywhere else.

    python tools/address.py                                 take it from git's remote `origin` and rewrite every link
    python tools/address.py https://github.com/NAME/REPO    take this one
    python tools/address.py --check                         list the files whose links differ from pyproject.toml, and
                                                            exit 1 if there are any
    python tools/address.py --notice                        say what to run where pyproject.toml names another
                                                            repository than the remote; never fails, as CI's first step

Links to other repositories are left alone.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for the tfbook of this tree, whether or not one is installed

from tfbook.files import write_text  # noqa: E402

PLACES = (
    "*.md",
    "*.toml",
    "*.yml",
    "CITATION.cff",
    "Makefile",
    ".github/**/*.md",
    ".github/**/*.yml",
    ".binder/*",
    "data/*.md",
    "docs/*.md",
    "notebooks/*.ipynb",
    "tools/setup_cell.py",
    "tfbook/**/*.py",
)
SLUG = r"[\w-]+/[\w-]+(?:\.(?!git\b)[\w-]+)*"  # owner and name, without the period that ends a sentence
REMOTE = re.compile(
    rf"(?:https://(?:[^@/]+@)?|ssh://git@|git@)(?:ssh\.)?github\.com(?::\d+)?[:/]({SLUG})(?:\.git)?/?", re.ASCII
)
GIVE = "say the address: python tools/address.py https://github.com/NAME/REPO"
OURS = (  # a link like these always points to this repository
    r"colab\.research\.google\.com/github/",
    r"mybinder\.org/v2/gh/",
    r"git\+https://github\.com/",
    r"repository-code: [\"']?https://github\.com/",
)


def slug() -> str:
    """Owner and name, such as "OWNER/tfbook", from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return parse(project["urls"]["Repository"])


def badge(name: str) -> str:
    """The badge that opens the notebook with this file name in Colab."""
    image = "https://colab.research.google.com/assets/colab-badge.svg"
    return f"[![Open in Colab]({image})](https://colab.research.google.com/github/{slug()}/blob/main/notebooks/{name})"


def parse(url: str) -> str:
    """Owner and name of a GitHub address. Raises ValueError for any other address."""
    found = re.fullmatch(rf"https://github\.com/({SLUG})", url)
    if not found:
        raise ValueError(f"the address is {url!r}; expected https://github.com/NAME/REPO")
    return found[1]


def remote() -> str:
    """Owner and name of git's remote `origin`. Raises ValueError where there is none, or none on GitHub."""
    command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    try:
        url = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        raise ValueError(f"git knows no remote `origin` here; {GIVE}") from None
    if not (found := REMOTE.fullmatch(url)):
        raise ValueError(f"the remote `origin` is not on GitHub; {GIVE}")  # its address may hold a password
    return found[1]


def addressed(text: str, old: str, new: str) -> str:
    """The text with the links to this repository pointing to `new`; links to other repositories are kept.

    Ours are badges, install commands, and every link to a repository with the name of `old`, whoever its owner.
    """
    text = re.sub(rf"({'|'.join(OURS)}){SLUG}", rf"\g<1>{new}", text)
    name = re.escape(old.partition("/")[2])
    return re.sub(rf"(github\.com/|githubusercontent\.com/)[\w-]+/{name}(?![\w-])", rf"\g<1>{new}", text)


def files() -> list[Path]:
    """The files that may hold the address."""
    return sorted({path for place in PLACES for path in ROOT.glob(place) if path.is_file()})


def outdated(old: str, new: str) -> dict[Path, str]:
    """The files with another address than `new`, and the text that each should have."""
    changes = {}
    for path in files():
        text = path.read_text(encoding="utf-8")
        if (rewritten := addressed(text, old, new)) != text:
            changes[path] = rewritten
    return changes


def notice() -> str:
    """What to run where the links name another repository than this clone's; empty where they name it."""
    try:
        here, said = remote(), slug()
    except ValueError:  # a fork elsewhere, or an archive: there is nothing to compare
        return ""
    if here == said:
        return ""
    return (
        f"pyproject.toml and the badges name https://github.com/{said}, but this is https://github.com/{here}. "
        "If it is to stay here, run `python tools/address.py`, commit, and push."
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", nargs="?", help="the new address, https://github.com/NAME/REPO; else git's remote")
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 when a link differs")
    parser.add_argument("--notice", action="store_true", help="change nothing, say what to run, for GitHub's log")
    options = parser.parse_args(arguments)
    if options.notice:
        print(f"::notice title=The address of the repository::{text}" if (text := notice()) else "the address is right")
        return
    old = slug()
    try:
        new = parse(options.address) if options.address else old if options.check else remote()
    except ValueError as error:
        raise SystemExit(str(error)) from error
    changes = outdated(old, new)
    for path, text in changes.items():
        print(path.relative_to(ROOT))
        if not options.check:
            write_text(path, text)
    if options.check and changes:
        raise SystemExit(
            f"the files above do not point to https://github.com/{new}: run "
            f"`python tools/address.py https://github.com/{new}`"
        )


if __name__ == "__main__":
    main()
