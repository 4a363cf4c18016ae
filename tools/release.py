"""Gives a release its version, or checks that everything names it.

    python tools/release.py 0.2.0             into the package, CITATION.cff and CHANGELOG.md, with today's date
    python tools/release.py --check v0.2.0    exit 1 where one of them names another version (CI, before it publishes)

CONTRIBUTING.md says what comes before and after.
"""

from __future__ import annotations

import argparse
import re
import sys
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for the tfbook of this tree, whether or not one is installed

from tfbook.files import write_text  # noqa: E402

PACKAGE, CITATION, CHANGELOG = "tfbook/__init__.py", "CITATION.cff", "CHANGELOG.md"
NUMBER = r"\d+\.\d+\.\d+"
UNRELEASED = "## [Unreleased]\n"
NAMED = {
    PACKAGE: re.compile(rf'^__version__ = "(?P<version>{NUMBER})"$', re.MULTILINE),
    CITATION: re.compile(rf"^version: (?P<version>{NUMBER})\n(?:date-released: (?P<date>[\d-]+)\n)?", re.MULTILINE),
    CHANGELOG: re.compile(rf"^## \[(?P<version>{NUMBER})\] - (?P<date>[\d-]+)$", re.MULTILINE),
}


def named(root: Path) -> dict[str, tuple[str, str]]:
    """By file, the version that it names and the day of its release, each empty where it names none."""
    found = {name: pattern.search((root / name).read_text(encoding="utf-8")) for name, pattern in NAMED.items()}
    return {name: _version_and_day(match) for name, match in found.items()}


def _version_and_day(match: re.Match[str] | None) -> tuple[str, str]:
    groups = match.groupdict() if match else {}
    return groups.get("version") or "", groups.get("date") or ""


def unreleased(changelog: str) -> str:
    """The changes since the last release. Raises ValueError where the changelog has no such section."""
    if UNRELEASED not in changelog:
        raise ValueError(f"{CHANGELOG} has no section {UNRELEASED.strip()!r}")
    return changelog.partition(UNRELEASED)[2].partition("\n## [")[0].strip()


def release(root: Path, version: str, day: date) -> None:
    """Writes a version and its day into the three files. Raises ValueError where it cannot be the next one."""
    if not re.fullmatch(NUMBER, version):
        raise ValueError(f"the version is {version!r}; expected three numbers, such as 0.2.0")
    last = named(root)[CHANGELOG][0]
    if last and _numbers(version) <= _numbers(last):
        raise ValueError(f"{version} does not follow {last}, the last release in {CHANGELOG}")
    texts = {name: (root / name).read_text(encoding="utf-8") for name in NAMED}
    if not unreleased(texts[CHANGELOG]):
        raise ValueError(f"{CHANGELOG} says nothing under {UNRELEASED.strip()!r}")
    texts[PACKAGE] = NAMED[PACKAGE].sub(f'__version__ = "{version}"', texts[PACKAGE])
    texts[CITATION] = NAMED[CITATION].sub(f"version: {version}\ndate-released: {day}\n", texts[CITATION])
    texts[CHANGELOG] = texts[CHANGELOG].replace(UNRELEASED, f"{UNRELEASED}\n## [{version}] - {day}\n", 1)
    for name, text in texts.items():
        write_text(root / name, text)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def check(root: Path, tag: str) -> None:
    """Raises ValueError where a file names another version than the tag, or no day or another one."""
    found = named(root)
    wrong = [f"{name} names {version or 'none'}" for name, (version, _) in found.items() if f"v{version}" != tag]
    days = {day for name, (_, day) in found.items() if name != PACKAGE}
    if not wrong and (len(days) > 1 or "" in days):
        wrong = [f"{CITATION} and {CHANGELOG} name different days"]
    if wrong:
        raise ValueError(f"the tag is {tag}, but {'; '.join(wrong)}: run python tools/release.py VERSION first")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="such as 0.2.0; with --check a tag, such as v0.2.0")
    parser.add_argument(
        "--check", action="store_true", help="change nothing, exit 1 where a file names another version"
    )
    options = parser.parse_args(arguments)
    try:
        if options.check:
            check(ROOT, options.version)
        else:
            release(ROOT, options.version, datetime.now(UTC).date())
    except ValueError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
