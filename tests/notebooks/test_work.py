"""The learner's copies: made once, never overwritten, with links that lead somewhere; a fresh one only on request."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path

import address
import book
import pytest
import work
from samples import code, notebook, prose, save

TODAY = date.today().isoformat()
LINKS = (
    "[map](00_start.ipynb#Map) [claims](../CLAIMS.md#a) [how](../CONTRIBUTING.md) [web](https://a.org/b.md) $x[i](y)$"
)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two lessons, in which nobody has worked yet."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / ".github").mkdir()
    for file in ("CLAIMS.md", "CONTRIBUTING.md", ".github/alignment.png", "notebooks/conftest.py"):
        (tmp_path / file).write_text("as in the course\n", encoding="utf-8")
    readme = "![a](.github/alignment.png) [b](notebooks/00_start.ipynb) [c](CLAIMS.md) [d](CONTRIBUTING.md)\n"
    (tmp_path / "README.md").write_text(readme, encoding="utf-8")
    save(tmp_path / "notebooks" / "00_start.ipynb", notebook(prose(f"# Start\n\n{LINKS}"), code(f"{LINKS!r}")))
    save(tmp_path / "notebooks" / "01_next.ipynb", notebook(prose("# Next")))
    for module, name, path in ((book, "ROOT", "."), (book, "NOTEBOOKS", "notebooks"), (work, "WORK", "work")):
        monkeypatch.setattr(module, name, tmp_path / path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """What the tool prints when it is called so."""
    work.main(list(arguments))
    return capsys.readouterr().out.splitlines()


def visible(tree: Path) -> list[str]:
    """What JupyterLab lists."""
    return sorted(path.name for path in (tree / "work").iterdir() if not path.name.startswith("."))


def test_the_first_call_copies_lessons_and_pages_and_nothing_else(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(capsys) == ["copied into work/, to read and to change: 00_start.ipynb, 01_next.ipynb"]
    assert visible(tree) == ["00_start.ipynb", "01_next.ipynb", "CLAIMS.md", "README.md", "alignment.png"]
    assert (tree / "work/01_next.ipynb").read_bytes() == (tree / "notebooks/01_next.ipynb").read_bytes()


def test_links_lead_to_what_lies_in_work_or_to_github(tree: Path) -> None:
    work.main([])
    text, source = (cell.source for cell in book.read(tree / "work/00_start.ipynb").cells)
    contributing = f"https://github.com/{address.slug()}/blob/main/CONTRIBUTING.md"
    assert text.partition("\n\n")[2] == LINKS.replace("../CLAIMS", "CLAIMS").replace("../CONTRIBUTING.md", contributing)
    assert source == repr(LINKS)
    readme = (tree / "work/README.md").read_text(encoding="utf-8")
    assert readme == f"![a](alignment.png) [b](00_start.ipynb) [c](CLAIMS.md) [d]({contributing})\n"


def test_many_copies_are_counted(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(2, 5):
        save(tree / f"notebooks/0{number}_more.ipynb", notebook(prose("# More")))
    assert said(capsys) == ["copied into work/, to read and to change: 5 lessons"]


def test_a_badge_is_a_link_of_words_where_it_may_be_read_offline() -> None:
    badge = address.badge("03_self_attention.ipynb")
    link = work.relinked(badge, book.NOTEBOOKS)
    assert link == f"[Open in Colab]({badge.rpartition('(')[2]}"
    assert work.relinked(link, book.NOTEBOOKS) == link
    assert work.relinked("![picture](https://a.org/b.svg)", book.ROOT) == "![picture](https://a.org/b.svg)"


def test_what_the_learner_wrote_stays_and_what_is_missing_comes(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys)
    (tree / "work/00_start.ipynb").write_text("mine", encoding="utf-8")
    (tree / "work/01_next.ipynb").unlink()
    (tree / "CLAIMS.md").write_text("renewed\n", encoding="utf-8")
    assert said(capsys) == ["copied into work/, to read and to change: 01_next.ipynb"]
    assert (tree / "work/00_start.ipynb").read_text(encoding="utf-8") == "mine"
    assert (tree / "work/CLAIMS.md").read_text(encoding="utf-8") == "renewed\n"
    assert said(capsys) == []


def test_a_revised_lesson_is_named_until_it_is_fresh(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys)
    (tree / "work/01_next.ipynb").write_text("mine", encoding="utf-8")
    save(tree / "notebooks/01_next.ipynb", notebook(prose("# Next, revised")))
    [line] = said(capsys)
    assert line.startswith("lesson 01 was revised since you got it")
    assert line.endswith("make refresh N=01")
    said(capsys, "--refresh", "01")
    assert said(capsys) == []


def test_a_fresh_copy_keeps_every_old_one(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys)
    for turn, note in ((1, ""), (2, ", 2"), (3, ", 3")):
        (tree / "work/01_next.ipynb").write_text(f"mine {turn}", encoding="utf-8")
        kept = f"01_next (before {TODAY}{note}).ipynb"
        assert said(capsys, "--refresh", "next") == [f"work/01_next.ipynb is fresh; yours is now work/{kept}"]
        assert (tree / "work" / kept).read_text(encoding="utf-8") == f"mine {turn}"
    assert book.read(tree / "work/01_next.ipynb").cells[0].source == "# Next"
    assert said(capsys, "--refresh", "01") == ["work/01_next.ipynb is the lesson as it stands; nothing to do"]


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"01_next.ipynb": 3}', "[" * 100_000, "\ufffe"])
def test_a_damaged_record_is_made_anew(tree: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    """It says where copies come from and no more."""
    said(capsys)
    (tree / "work/.copied.json").write_text(text, encoding="utf-16" if text == "\ufffe" else "utf-8")
    (tree / "work/01_next.ipynb").unlink()
    assert said(capsys) == ["copied into work/, to read and to change: 01_next.ipynb"]
    assert said(capsys) == []
    assert json.loads((tree / "work/.copied.json").read_text(encoding="utf-8")).keys() == {"01_next.ipynb"}


def test_a_copy_that_fails_half_way_is_no_copy(
    tree: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk; the next call makes it."""

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("tfbook.files.os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            work.main([])
    assert visible(tree) == []
    assert said(capsys) == ["copied into work/, to read and to change: 00_start.ipynb, 01_next.ipynb"]


def test_a_lesson_that_was_never_copied_can_be_refreshed(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--refresh", "01") == ["work/01_next.ipynb is fresh"]
    with pytest.raises(SystemExit, match="there is no lesson '77'"):
        work.main(["--refresh", "77"])


def test_every_link_of_this_course_leads_somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "WORK", tmp_path)
    work.main([])
    for path in tmp_path.iterdir():
        texts = [path.read_text(encoding="utf-8")] if path.suffix == ".md" else []
        if path.suffix == ".ipynb":
            texts = [cell.source for cell in book.read(path).cells if cell.cell_type == "markdown"]
        for file in re.findall(r"\]\(([\w./-]+\.(?:ipynb|md|png))\b", "\n".join(texts)):
            assert (tmp_path / file).is_file(), f"{path.name} links to {file}"


def test_the_settings_of_jupyterlab_are_json() -> None:
    """JupyterLab passes over a file that it cannot read, and asks about news again."""
    overrides = json.loads((book.ROOT / "tools/jupyterlab/overrides.json").read_text(encoding="utf-8"))
    assert all(name.startswith("@jupyterlab/") for name in overrides)
