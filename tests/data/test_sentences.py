"""Labeled texts: what is read, how it is divided, and that nothing of the test is pretrained on."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

from tfbook import data
from tfbook.data.download import DataUnavailable
from tfbook.data.sentences import (
    MODULES,
    TEST_SHARE,
    LabeledText,
    LabeledTexts,
    read_docstrings,
    read_sentence_polarity,
    read_subjectivity,
)

MANY = [LabeledText(f"text number {number}", number % 2) for number in range(4000)]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A small standard library: one function for each of `MODULES`."""
    for module in MODULES:
        write(tmp_path / module / "base.py", f"def f():\n    '''What the module {module} does all day.'''\n")
    return tmp_path


def write(path: Path, source: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")


def labeled_by(corpus: LabeledTexts) -> dict[str, str]:
    return {text: corpus.labels[label] for text, label in corpus.train + corpus.test}


class TestSplit:
    @pytest.fixture
    def corpus(self) -> LabeledTexts:
        return LabeledTexts.split("texts", ("even", "odd"), MANY, ["an other text", *(text for text, _ in MANY)])

    def test_every_text_is_on_one_side(self, corpus: LabeledTexts) -> None:
        assert sorted(corpus.train + corpus.test) == sorted(MANY)
        assert len(corpus.test) / len(MANY) == pytest.approx(TEST_SHARE, abs=0.03)

    def test_nothing_of_the_test_is_pretrained_on(self, corpus: LabeledTexts) -> None:
        assert set(corpus.unlabeled) == {text for text, _ in corpus.train} | {"an other text"}

    def test_a_text_is_pretrained_on_once(self, corpus: LabeledTexts) -> None:
        assert len(set(corpus.unlabeled)) == len(corpus.unlabeled)

    def test_the_side_depends_on_the_text_alone(self, corpus: LabeledTexts) -> None:
        fewer = LabeledTexts.split("texts", ("even", "odd"), MANY[::-7])
        assert set(fewer.test) == set(corpus.test) & set(MANY[::-7])

    def test_a_text_of_two_kinds_is_left_out_and_a_repeated_one_stands_once(self) -> None:
        labeled = [LabeledText("both", 0), LabeledText("both", 1), LabeledText("twice", 1), LabeledText("twice", 1)]
        corpus = LabeledTexts.split("texts", ("a", "b"), labeled)
        assert corpus.train + corpus.test == (LabeledText("twice", 1),)

    def test_its_size_is_announced(self, corpus: LabeledTexts) -> None:
        sizes = (
            f"{len(corpus.train):,} texts train, {len(corpus.test):,} test, {len(corpus.train) + 1:,} to pretrain on"
        )
        assert str(corpus) == f"texts: {sizes}; labels even, odd"


class TestFew:
    corpus = LabeledTexts.split("texts", ("even", "odd"), MANY[:200])

    def test_as_many_of_each_label_all_of_them_for_training(self) -> None:
        few = self.corpus.few_shot(10, seed=1)
        assert Counter(item.label for item in few) == {0: 10, 1: 10}
        assert set(few) <= set(self.corpus.train)
        assert len(set(few)) == 20

    def test_a_seed_is_a_draw(self) -> None:
        assert self.corpus.few_shot(10, seed=1) == self.corpus.few_shot(10, seed=1) != self.corpus.few_shot(10, seed=2)

    @pytest.mark.parametrize("count", [0, 1000])
    def test_other_numbers_are_refused(self, count: int) -> None:
        smallest = min(Counter(item.label for item in self.corpus.train).values())
        message = f"count is {count}; expected 1 to {smallest}, the texts of the rarest label"
        with pytest.raises(ValueError, match=message):
            self.corpus.few_shot(count, seed=1)


class TestDocstrings:
    def test_the_module_is_the_label(self, library: Path) -> None:
        corpus = read_docstrings(library)
        assert labeled_by(corpus) == {f"What the module {module} does all day.": module for module in MODULES}

    def test_modules_classes_functions_and_methods_are_read(self, library: Path) -> None:
        functions = '    def g(self):\n        "Of a method."\n\nasync def h():\n    "Of a coroutine."\n'
        write(library / "other.py", f'"Of a module."\nclass C:\n    "Of a class."\n{functions}')
        unlabeled = read_docstrings(library).unlabeled
        assert {"Of a module.", "Of a class.", "Of a method.", "Of a coroutine."} <= set(unlabeled)

    def test_a_text_is_one_line_without_its_examples(self, library: Path) -> None:
        write(library / "other.py", "'''One line\n\n    and more.\n\n    >>> 1 + 1\n    2\n\nThe end.\n'''\n")
        assert "One line and more. The end." in read_docstrings(library).unlabeled

    @pytest.mark.parametrize("folder", ["test", "asyncio/tests", "site-packages/xml", "idlelib"])
    def test_tests_and_what_others_installed_are_not_read(self, library: Path, folder: str) -> None:
        write(library / folder / "x.py", "'''Never to be read by anybody at all.'''\n")
        corpus = read_docstrings(library)
        assert "Never to be read by anybody at all." not in {*corpus.unlabeled, *labeled_by(corpus)}

    def test_what_is_too_short_to_tell_has_no_label(self, library: Path) -> None:
        write(library / "xml" / "x.py", "'''Return the name.'''\n")
        corpus = read_docstrings(library)
        assert "Return the name." in corpus.unlabeled
        assert "Return the name." not in labeled_by(corpus)

    def test_a_file_that_is_no_python_is_passed_over(self, library: Path) -> None:
        write(library / "broken.py", "def f(:\n")
        (library / "zeros.py").write_bytes(b"\0")
        assert len(labeled_by(read_docstrings(library))) == len(MODULES)

    def test_a_python_without_sources_is_named(self, tmp_path: Path) -> None:
        for folder in (tmp_path, tmp_path / "no such folder"):
            with pytest.raises(DataUnavailable, match=r"holds no docstrings of asyncio, .* which this Python lacks"):
                read_docstrings(folder)

    def test_this_python_has_enough(self, capsys: pytest.CaptureFixture[str]) -> None:
        corpus = data.load("docstrings")
        assert capsys.readouterr().out.startswith("docstrings: ")
        assert sum(len(text.split()) for text in corpus.unlabeled) > 100_000
        for part, enough in ((corpus.train, 64), (corpus.test, 15)):
            assert min(Counter(item.label for item in part).values()) >= enough
        assert len({item.label for item in corpus.test}) == len(MODULES)


@pytest.mark.parametrize(
    ("read", "files"),
    [
        (
            read_sentence_polarity,
            {"negative": "sentence_polarity/rt-polarity.neg", "positive": "sentence_polarity/rt-polarity.pos"},
        ),
        (
            read_subjectivity,
            {"subjective": "subjectivity/quote.tok.gt9.5000", "objective": "subjectivity/plot.tok.gt9.5000"},
        ),
    ],
)
def test_sentences_of_films_are_read_line_by_line(
    read: Callable[[Path], LabeledTexts], files: dict[str, str], tmp_path: Path
) -> None:
    with ZipFile(tmp_path / "films.zip", "w") as archive:
        for label, file in files.items():
            archive.writestr(file, f"{label}  sentence .\n\na caf\xe9 , {label} \n".encode("latin-1"))
    found = labeled_by(read(tmp_path / "films.zip"))
    assert found == {text.format(label): label for text in ("{} sentence .", "a café , {}") for label in files}


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "films.zip", "w") as archive:
        for name in ("neg", "pos"):
            archive.writestr(f"sentence_polarity/rt-polarity.{name}", "a film .\n")
        archive.infolist()[1].file_size = 10**9
    with pytest.raises(ValueError, match=r"rt-polarity\.pos unpacks to 1,000,000,000 bytes; expected at most 16,777"):
        read_sentence_polarity(tmp_path / "films.zip")


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "labels", "train", "test"),
    [
        ("sentence-polarity", ("negative", "positive"), 8083, 2579),
        ("subjectivity", ("subjective", "objective"), 7552, 2448),
    ],
)
def test_the_real_corpora_are_the_published_ones(name: str, labels: tuple[str, ...], train: int, test: int) -> None:
    corpus = data.load(name)
    assert (corpus.labels, len(corpus.train), len(corpus.test)) == (labels, train, test)
