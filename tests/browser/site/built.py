"""The pages of the built site."""

from pathlib import Path

SITE = Path(__file__).parents[3] / "docs/_build/html"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html")) if SITE.is_dir() else []
