"""Links between files of the repository, on the site: to the page of a file, or to the file on GitHub."""

from __future__ import annotations

import os
import re

PAGES = {"CLAIMS.md": "/ledger.md", "CONTRIBUTING.md": "/contributing.md", "README.md": "/index.md"}
LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)\s]+)(?=\))")


def linked(text: str, repository: str, folder: str = "") -> str:
    """The text with links to files of the repository pointing to pages, where there is one, or to the repository.

    `folder` is where the text lies in the repository, as in "docs/teaching".
    """

    def target(found: re.Match[str]) -> str:
        path, mark, section = found[1].partition("#")
        full = os.path.normpath(f"{folder}/{path}").replace(os.sep, "/").lstrip("/")
        if lesson := re.fullmatch(r"notebooks/(\w+\.ipynb)", full):
            return f"/lessons/{lesson[1]}{mark}{section}"
        if full.startswith("docs/") or not path:
            return found[1]
        here = None if section else PAGES.get(full)  # a page need not have the sections of its file
        return here or f"{repository}/blob/main/{full}{mark}{section}"

    return LINK.sub(target, text)
