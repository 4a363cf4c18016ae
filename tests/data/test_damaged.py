"""Data files that are damaged or another's: one sentence that names the file, never another error, never silence."""

import gzip
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tfbook.data.images import LabeledImages, read_cifar10, read_fashion_mnist
from tfbook.data.sentences import LabeledText, LabeledTexts, read_sentence_polarity, read_subjectivity
from tfbook.data.text import read_tiny_shakespeare
from tfbook.data.translation import COLUMNS, read_english_french, read_tatoeba

LINES = "Go.\tVa !\nRun!\tCours !\n" * 50


def zipped(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def corpus(*rows: str) -> bytes:
    return gzip.compress("\n".join(["\t".join(COLUMNS), *rows, ""]).encode())


READERS: dict[str, Callable[[Path], object]] = {
    "english-french": read_english_french,
    "tatoeba": read_tatoeba,
    "sentence polarity": read_sentence_polarity,
    "subjectivity": read_subjectivity,
    "fashion": lambda path: read_fashion_mnist(*(path.with_name(f"{n}.gz") for n in range(3)), path),
    "cifar": read_cifar10,
}


def contents(folder: Path) -> dict[str, bytes]:
    text = zipped(folder / "fra.zip", **{"fra.txt": LINES}).read_bytes()
    polarity = {f"sentence_polarity/rt-polarity.{side}": "a fine film\n" * 20 for side in ("neg", "pos")}
    pack = zipped(folder / "pol.zip", **polarity).read_bytes()
    table = corpus("train\tsimple\tthe cat\tle chat\t0-0 1-1")
    rng = random.Random(0)
    made = {"empty": b"", "text": b"no archive", "gzip of text": gzip.compress(b"no images"), "other zip": text}
    for name, whole in {"zip": text, "pack": pack, "table": table}.items():
        made |= {f"{name} cut at {end}": whole[:end] for end in (3, len(whole) // 2, len(whole) - 1)}
        for number in range(8):
            place = rng.randrange(len(whole))
            made[f"{name} changed {number}"] = whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
    return made


def raised(read: Callable[[Path], object], path: Path) -> Exception | None:
    try:
        read(path)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("name", READERS)
def test_whatever_a_file_holds_it_is_read_or_named(tmp_path: Path, name: str) -> None:
    path, refused = tmp_path / "file.gz", 0
    for kind, content in contents(tmp_path).items():
        for part in (path, *(tmp_path / f"{number}.gz" for number in range(3))):
            part.write_bytes(content)
        if (error := raised(READERS[name], path)) is not None:
            refused += 1
            assert type(error) is ValueError, (kind, error)
            assert "\n" not in str(error), (kind, error)
    assert refused > 20


@pytest.mark.parametrize("reader", [read_english_french, read_tatoeba, read_sentence_polarity, read_cifar10])
def test_the_file_is_named_and_so_is_the_reason(tmp_path: Path, reader: Callable[[Path], object]) -> None:
    (tmp_path / "file.bin").write_bytes(b"no archive")
    with pytest.raises(ValueError, match=r"file\.bin: damaged or another file \(\w+: .+\)"):
        reader(tmp_path / "file.bin")
    with pytest.raises(FileNotFoundError, match=r"missing"):
        reader(tmp_path / "missing")


@pytest.mark.parametrize("links", ["2-0", "0-2", "0-0 1?7"])
def test_a_link_beyond_its_sentences_is_named(tmp_path: Path, links: str) -> None:
    (tmp_path / "table.gz").write_bytes(corpus(f"train\tsimple\tthe cat\tle chat\t{links}"))
    with pytest.raises(ValueError, match=r"line 2 of .*table\.gz links .*; expected words of both sentences"):
        read_english_french(tmp_path / "table.gz")


def test_labels_of_other_images_are_refused(unchecked: None) -> None:
    import torch

    with pytest.raises(ValueError, match="labels holds 2 for 3 images; expected one for each"):
        LabeledImages(torch.zeros(3, 1, 2, 2), torch.zeros(2, dtype=torch.int64))


def test_marks_and_line_ends_of_a_corpus_leave_no_trace(tmp_path: Path) -> None:
    plain, marked = (tmp_path / f"{name}.zip" for name in ("plain", "marked"))
    zipped(plain, **{"fra.txt": LINES})
    zipped(marked, **{"fra.txt": "\ufeff" + LINES.replace("\n", "\r\n")})
    assert read_tatoeba(plain).splits == read_tatoeba(marked).splits
    (tmp_path / "play.txt").write_bytes(b"\xef\xbb\xbfAy, Sir.\r\n")
    assert read_tiny_shakespeare(tmp_path / "play.txt").train == "Ay, Sir."


def test_a_sentence_ends_at_a_line_feed_alone(tmp_path: Path) -> None:
    """And not at what else Python takes for a line end, such as the ellipsis of Windows, \\x85 in Latin-1."""
    path = tmp_path / "pol.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for side, text in {"neg": b"one\x85 two\x0c three\r\n", "pos": b"four\n"}.items():
            archive.writestr(f"sentence_polarity/rt-polarity.{side}", text)
    found = read_sentence_polarity(path)
    assert {item.text for item in (*found.train, *found.test)} == {"one two three", "four"}


def test_a_lone_surrogate_among_labeled_texts_is_named() -> None:
    with pytest.raises(ValueError, match=r"text holds a lone surrogate, U\+D800 at 0"):
        LabeledTexts.split("name", ["a"], [LabeledText("\ud800", 0)])
