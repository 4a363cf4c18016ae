"""What the built pages hold, read as files: addresses, links, alt texts, sizes, what is closed."""

from __future__ import annotations

import gzip
import posixpath
import re
import shutil
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from built import PAGES, SITE
from lxml import etree, html

from tfbook.course.lessons import LESSONS

# Others link to these addresses: a lesson may be added, but none of them may ever change or go.
ADDRESSES = [
    "lessons/00_start_here.html",
    "lessons/01_bahdanau_attention.html",
    "lessons/02_scoring_functions.html",
    "lessons/03_self_attention.html",
    "lessons/04_positions.html",
    "lessons/05_transformer.html",
    "lessons/06_decoding.html",
    "lessons/07_tokenizers.html",
    "lessons/08_bert_masking.html",
    "lessons/09_gpt_pretraining.html",
    "lessons/10_scaling_laws.html",
    "lessons/11_adapting.html",
    "lessons/12_preferences.html",
    "lessons/13_vit_patches.html",
    "lessons/14_vision_beyond.html",
    "lessons/15_efficient_attention.html",
    "lessons/16_inference.html",
    "lessons/17_state_spaces.html",
    "lessons/18_memory.html",
    "lessons/19_modalities.html",
    "lessons/20_scaling_out.html",
    "index.html",
    "ledger.html",
    "instructors.html",
    "contributing.html",
    "accessibility.html",
    "reference/index.html",
    "model.html",
]
LESSON_PAGES = [page for page in ADDRESSES if page.startswith("lessons/")]
MOST = 2_000_000  # bytes of a page with all that it loads, as a server sends them
LOADED = ("//link[@rel='stylesheet']/@href", "//script/@src", "//img/@src", "//iframe/@data-source")


@cache
def parsed(page: str) -> html.HtmlElement:
    return html.fromstring((SITE / page).read_bytes())


@cache
def names(page: str) -> frozenset[str]:
    """What a link into the page can point at."""
    return frozenset(parsed(page).xpath("//@id | //a/@name"))


def file_of(page: str, address: str) -> Path:
    """The file that an address on a page stands for."""
    path = unquote(urldefrag(address.split("?")[0]).url)
    return ((SITE / page).parent / path).resolve() if path else (SITE / page).resolve()


def test_no_address_has_changed() -> None:
    assert [address for address in ADDRESSES if not (SITE / address).is_file()] == []
    assert {f"lessons/{lesson.name}.html" for lesson in LESSONS} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page: str) -> None:
    wrong = []
    for address in parsed(page).xpath(
        "//a/@href | //*[local-name()='svg']//@href | //img/@src | //link/@href | //script/@src"
    ):
        if address.startswith(("http:", "https:", "mailto:", "data:", "javascript:")):
            continue
        target, name = file_of(page, address), unquote(urldefrag(address).fragment)
        known = target.is_file() and SITE.resolve() in target.parents
        if not known or (
            name and target.suffix == ".html" and name not in names(target.relative_to(SITE.resolve()).as_posix())
        ):
            wrong.append(address)
    assert wrong == []


@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_loaded_from_elsewhere(page: str) -> None:
    loaded = [one for path in LOADED for one in parsed(page).xpath(path)]
    assert [one for one in loaded if one.startswith(("http", "//"))] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_picture_has_alt_text(page: str) -> None:
    pictures = parsed(page).xpath("//img")
    assert [one.get("src") for one in pictures if not (one.get("alt") or "").strip()] == []
    assert [one.get("src") for one in pictures if not (one.get("width") and one.get("height"))] == []


@pytest.mark.parametrize("theme", ["", 'body[data-theme="dark"] '])
def test_code_can_be_read_on_every_page(theme: str) -> None:
    """Every color of code that a page uses, before its ground: 4.5 to 1, as WCAG wants it at level AA."""
    style = (SITE / "_static/pygments.css").read_text(encoding="utf-8")
    rules = dict(re.findall(rf"^{re.escape(theme)}\.highlight ?([.\w]*) \{{(.*?)\}}", style, re.MULTILINE))
    found = {part: dict(re.findall(r"(?<![-\w])(color|background)(?:-color)?: *#(\w+)", rules[part])) for part in rules}
    spans = [one for page in PAGES for one in parsed(page).xpath("//div[@class='highlight']//span")]
    kinds = {one.get("class") for one in spans if (one.text or "").strip()}  # spaces have a color, too
    assert len(kinds) > 20
    used = [found[""], *(found[""] | found[f".{kind}"] for kind in sorted(kinds) if f".{kind}" in found)]
    assert [one for one in used if contrast(one["color"], one["background"]) < 4.5] == []


def contrast(one: str, other: str) -> float:
    """Of two colors such as "1e1e1e" or "163", from 1 to 21."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(color: str) -> float:
    """Relative luminance, as WCAG defines it."""
    full = color if len(color) == 6 else "".join(2 * letter for letter in color)
    shares = [int(full[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return sum(weight * share for weight, share in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("page", PAGES)
def test_formulas_hold_no_latex(page: str) -> None:
    """What the converter does not know it would leave as it was written."""
    formulas = [one.text_content() for one in parsed(page).xpath("//math")]
    assert [one for one in formulas if re.search(r"[\\\\&$]", one)] == []


@pytest.mark.parametrize("page", LESSON_PAGES)
def test_every_view_has_its_text_or_table(page: str) -> None:
    """What stands in the host is shown where no script runs, and read by those who cannot see the view."""
    for view in parsed(page).xpath("//*[@data-view]"):
        assert view.xpath(".//table | .//ol | .//ul | .//p")
        assert len(view.text_content().split()) > 20


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_small(page: str) -> None:
    """The page and what it loads, compressed as servers do; pictures are as small as they get."""
    files = {file_of(page, one) for path in LOADED for one in parsed(page).xpath(path)} | {SITE / page}
    sizes = {one.name: len(packed(one)) for one in files}
    assert sum(sizes.values()) < MOST, sizes


@cache
def packed(file: Path) -> bytes:
    content = file.read_bytes()
    return content if file.suffix in (".png", ".woff2") else gzip.compress(content, 6)


@pytest.mark.parametrize("page", LESSON_PAGES)
def test_a_lesson_says_where_it_runs_and_when_it_was_green(page: str) -> None:
    doors = parsed(page).xpath("//div[@class='doors']")[0]
    name = Path(page).stem
    addresses = doors.xpath(".//a/@href")
    assert [name in one for one in addresses] == [True] * 3
    assert addresses[0].startswith("https://colab.research.google.com/github/")
    assert addresses[1].startswith("https://mybinder.org/v2/gh/")
    assert "Last green: " in doors.text_content()


@pytest.mark.parametrize("page", LESSON_PAGES)
def test_what_is_closed_in_jupyterlab_is_closed_here(page: str) -> None:
    answers = parsed(page).xpath("//details[contains(@class, 'tfbook-answer')]")
    hidden = parsed(page).xpath("//details[contains(@class, 'above-input')]")
    assert len(answers) >= 3 or page.startswith("lessons/00")
    assert len(hidden) >= 2
    assert parsed(page).xpath("//details[@open]") == []


def test_the_book_is_small_and_reads_formulas_offline() -> None:
    """Its chapters are XML, which has to be well-formed."""
    book = SITE.parent / "epub/tfbook.epub"
    assert book.stat().st_size < 40_000_000
    with zipfile.ZipFile(book) as packed_book:
        chapters = [name for name in packed_book.namelist() if name.endswith(".xhtml")]
        texts = {name: packed_book.read(name) for name in chapters}
        files = set(packed_book.namelist())
    assert {f"lessons/{lesson.name}.xhtml" for lesson in LESSONS} <= set(texts)
    for name, text in texts.items():
        root = etree.fromstring(text)
        sources = [str(one) for one in root.xpath("//@src")]
        assert [one for one in sources if one.startswith(("data:", "http"))] == []
        assert {posixpath.normpath(posixpath.join(posixpath.dirname(name), one)) for one in sources} <= files
        assert root.xpath("//*[local-name()='script']") == []
    assert b"<math" in texts["lessons/04_positions.xhtml"]


def test_a_lesson_on_paper_is_whole() -> None:
    """Its outline names all sections from the first to the last, on as many pages as small print needs."""
    if shutil.which("chromium") is None and shutil.which("google-chrome") is None:
        pytest.skip("paper needs Chromium")
    lesson, root = "04_positions", SITE.parents[2]
    subprocess.run([sys.executable, "docs/paper.py", lesson], cwd=root, check=True, capture_output=True, timeout=120)
    pdf = (SITE.parent / f"pdf/{lesson}.pdf").read_bytes()
    plain = [one.decode() for one in re.findall(rb"/Title \((.*?)\)", pdf)]
    coded = [bytes.fromhex(one.decode()).decode("utf-16") for one in re.findall(rb"/Title <(\w+)>", pdf)]
    page = parsed(f"lessons/{lesson}.html")
    headings = [one.text_content().removesuffix("¶").strip() for one in page.xpath("//h1 | //h2")]
    assert len(headings) > 10
    assert [one for one in headings if one not in plain + coded] == []
    assert 20 <= len(re.findall(rb"/Type /Page\b", pdf)) <= 40
