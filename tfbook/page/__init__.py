"""A language model in one HTML page that computes in the reader's browser: `python -m tfbook page`."""

from tfbook.page.subjects import Subject, from_run, storyteller
from tfbook.page.writing import page_html, write_page

__all__ = ["Subject", "from_run", "page_html", "storyteller", "write_page"]
