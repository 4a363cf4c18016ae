"""Prints the lessons of the built site into docs/_build/pdf, by headless Chromium and without network.

python docs/paper.py        all lessons
python docs/paper.py 01     one
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BUILD = Path(__file__).resolve().parent / "_build"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--no-pdf-header-footer", "--generate-pdf-document-outline", "--virtual-time-budget=20000"),
    *("--host-resolver-rules=MAP * ~NOTFOUND", "--force-prefers-reduced-motion"),
)


def printed(browser: str, page: Path) -> Path:
    """The PDF of a page. Raises SystemExit with what the browser said when it wrote none."""
    target = BUILD / "pdf" / f"{page.stem}.pdf"
    target.parent.mkdir(exist_ok=True)
    target.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, *FLAGS, f"--user-data-dir={profile}", f"--print-to-pdf={target}", page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if not target.is_file():
        raise SystemExit(f"{browser} printed no PDF of {page.name}:\n{done.stderr[-1000:]}")
    return target


def main(wanted: str = "") -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit("PDFs need Chromium; on Debian: apt-get install chromium")
    pages = sorted((BUILD / "html/lessons").glob(f"{wanted}*.html"))
    if not pages:
        raise SystemExit(f"no page of lesson {wanted} in {BUILD / 'html/lessons'}: run `make site` first")
    for page in pages:
        pdf = printed(browser, page)
        print(f"{pdf.relative_to(BUILD.parents[1])}: {pdf.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(*sys.argv[1:2])
