"""Names, announcements and fallbacks; the table itself."""

import inspect
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tfbook import data
from tfbook.data import registry
from tfbook.data.download import DataUnavailable, File
from tfbook.data.registry import DATASETS, Dataset
from tfbook.data.translation import Translations
from tfbook.text import Pair

CLOSED = "http://127.0.0.1:9/letters.txt"


class Letters(str):
    """What the reader of the data set below returns."""


def read_letters(path: Path) -> Letters:
    return Letters(f"letters: {len(path.read_text())} of them")


def is_lower_case(path: Path) -> None:
    if not path.read_text().islower():
        raise ValueError("not in lower case")


@pytest.fixture
def letters(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new data set, which is one row and one reader, and its file in a mirror."""
    (tmp_path / "mirror").mkdir()
    monkeypatch.setenv("TFBOOK_MIRROR", str(tmp_path / "mirror"))
    row = Dataset(
        name="letters",
        files=(File(path="letters.txt", urls=(CLOSED,), check=is_lower_case),),
        license="MIT",
        credit="the alphabet",
        reader=read_letters,
    )
    monkeypatch.setitem(DATASETS, "letters", row)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between attempts
    path = tmp_path / "mirror" / "letters.txt"
    path.write_text("abc")
    return path


class TestLoad:
    def test_the_reader_gets_the_file_and_size_license_and_credit_are_printed(
        self, letters: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert isinstance(data.load("letters"), Letters)
        assert capsys.readouterr().out == "letters: 3 of them\nlicense MIT, the alphabet\n"

    def test_the_announcement_does_not_say_where_the_bytes_came_from(
        self, letters: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        data.load("letters")
        mirrored = capsys.readouterr()
        letters.unlink()
        data.load("letters")
        assert capsys.readouterr() == mirrored

    def test_without_a_way_to_it_the_error_says_what_to_do(self, letters: Path) -> None:
        letters.unlink()
        with pytest.raises(DataUnavailable) as caught:
            data.load("letters")
        for help_ in (CLOSED, str(letters), "TFBOOK_MIRROR", "fallback="):
            assert help_ in str(caught.value)
        assert isinstance(caught.value, OSError)

    def test_a_fallback_takes_its_place_and_says_so(self, letters: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert data.load("letters", fallback="english-french") == "letters: 3 of them"
        capsys.readouterr()
        (letters.parents[1] / "cache" / "letters.txt").unlink()
        letters.write_text("ABC")
        corpus = data.load("letters", fallback="english-french")
        assert corpus.name == "english-french"
        notice, size, _ = capsys.readouterr().out.splitlines()
        assert notice.startswith(
            "letters isn't available here, so english-french takes its place; data.load('letters')"
        )
        assert size.startswith("english-french: ")

    def test_a_file_that_was_damaged_unnoticed_is_fetched_again_when_its_reader_fails(
        self, letters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """As by a bad disk, which changes neither size nor times; without another copy it is not available."""

        def read(path: Path) -> Letters:
            if not path.read_text().islower():
                raise UnicodeError("this reader cannot read it")
            return read_letters(path)

        cached = tmp_path / "cache" / "letters.txt"
        monkeypatch.setitem(DATASETS, "letters", replace(DATASETS["letters"], reader=read))
        monkeypatch.setattr("tfbook.data.download._stamp", lambda file, path: (path.with_name("stamp"), "always"))
        data.load("letters")
        cached.write_text("aBC")
        assert data.load("letters") == "letters: 3 of them"
        assert cached.read_text() == "abc"
        cached.write_text("aBC")
        letters.unlink()
        with pytest.raises(DataUnavailable, match=r"letters\.txt is not here"):
            data.load("letters")
        capsys.readouterr()

    def test_a_reader_that_fails_on_a_sound_file_says_so(self, letters: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its own fault is no reason to fetch anything."""

        def read(path: Path) -> Letters:
            calls.append(path)
            raise UnicodeError("this reader cannot read it")

        calls: list[Path] = []
        monkeypatch.setitem(DATASETS, "letters", replace(DATASETS["letters"], reader=read))
        with pytest.raises(UnicodeError, match="this reader cannot read it"):
            data.load("letters")
        assert len(calls) == 1
        assert calls[0].exists()

    def test_unknown_names_are_refused_with_the_known_ones(self) -> None:
        known = f"expected one of {', '.join(map(repr, DATASETS))}"
        with pytest.raises(ValueError, match=rf"name is 'tatoba'; {known}"):
            data.load("tatoba")
        with pytest.raises(ValueError, match=rf"fallback is 'none'; {known}"):
            data.load("english-french", fallback="none")


@pytest.mark.usefixtures("cache")
class TestAvailable:
    def test_it_follows_the_file(self, letters: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert data.available("letters")
        letters.write_text("ABC")
        assert not data.available("letters")
        letters.write_text("abc")
        data.load("letters")
        monkeypatch.setenv("TFBOOK_MIRROR", "/no/such/folder")
        assert data.available("letters")

    def test_what_ships_is_available_offline(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TFBOOK_OFFLINE", "1")
        assert data.available("english-french")
        assert not data.available("tatoeba")

    def test_an_unknown_name_is_not(self) -> None:
        assert not data.available("tatoba")


class TestTable:
    def test_names_are_keys(self) -> None:
        assert all(name == dataset.name for name, dataset in DATASETS.items())

    @pytest.mark.parametrize("name", DATASETS)
    def test_every_row_gives_license_and_credit_and_safe_paths(self, name: str) -> None:
        dataset = DATASETS[name]
        inspect.signature(dataset.reader).bind(
            *dataset.files
        )  # takes a path for each file; none, where it comes with Python
        assert dataset.license
        assert dataset.credit
        for file in dataset.files:
            assert not Path(file.path).is_absolute()
            assert ".." not in Path(file.path).parts
            assert all(url.startswith("https://") for url in file.urls)

    def test_the_shipped_corpus_is_typed_and_announced(self, capsys: pytest.CaptureFixture[str]) -> None:
        corpus = data.load("english-french")
        assert isinstance(corpus, Translations)
        assert all(isinstance(pair, Pair) for pair in corpus["train"][:5])
        size, license = capsys.readouterr().out.splitlines()
        assert size.startswith(f"english-french: english to french, {len(corpus['train']):,} train, ")
        assert license == "license CC BY 4.0, generated by tools/english_french"

    @pytest.mark.real
    def test_tatoeba_is_typed_and_announced(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert isinstance(data.load("tatoeba"), Translations)
        size, license = capsys.readouterr().out.splitlines()
        assert size.startswith("tatoeba: english to french, ")
        assert license == "license CC BY 2.0 FR, tatoeba.org and manythings.org/anki"


def test_importing_data_imports_nothing_heavy() -> None:
    code = "import sys, torch; before = set(sys.modules); import tfbook.data; print(*(set(sys.modules) - before))"
    source = str(Path(registry.__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=source)
    assert not {"pooch", "requests", "filelock", "sklearn", "torchvision", "matplotlib"} & set(done.stdout.split())
