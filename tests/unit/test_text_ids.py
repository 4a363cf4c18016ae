"""Every vocabulary reads ids alike: one number, several, a tensor of any integer dtype; it refuses the same."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from tfbook.data.images import ImageBatches, LabeledImages
from tfbook.data.registry import DATASETS
from tfbook.data.text import Text
from tfbook.data.tokens import write_tokens
from tfbook.text import (
    LANGUAGES,
    Batches,
    CharacterVocabulary,
    Masking,
    Pair,
    SpanCorruption,
    Tokenizer,
    Unigram,
    Vocabulary,
    Windows,
    WordPiece,
    generated_answers,
    mask_tokens,
)
from tfbook.text.tokenizer import AddedToken

TEXT = "the cat and the dog and the bird"
SENTENCES = [tuple(TEXT.split())]
VOCABULARIES: dict[str, Any] = {
    "words": Vocabulary(SENTENCES),
    "characters": CharacterVocabulary(TEXT),
    "BPE": Tokenizer.learn([TEXT], 270, specials=["<pad>"]),
    "WordPiece": WordPiece.learn([TEXT], 30, min_count=1),
    "unigram": Unigram.learn([TEXT], 30),
}
SIZES = {name: len(made.pieces) if hasattr(made, "pieces") else len(made) for name, made in VOCABULARIES.items()}
FORMS: dict[str, Callable[[list[int]], Any]] = {
    "a tuple": tuple,
    "a generator": iter,
    "an array": lambda ids: np.array(ids, dtype=np.int32),
    "tensors": lambda ids: [torch.tensor(number) for number in ids],
    **{
        f"torch.{name}": lambda ids, name=name: torch.tensor(ids, dtype=getattr(torch, name))
        for name in ("int64", "int32", "int16", "uint8")
    },
}


@pytest.mark.parametrize("name", VOCABULARIES)
class TestEveryVocabulary:
    @pytest.mark.parametrize("form", FORMS)
    @settings(max_examples=10)
    @given(data=st.data())
    def test_ids_decode_in_every_form(self, name: str, form: str, data: st.DataObject) -> None:
        made = VOCABULARIES[name]
        ids = data.draw(st.lists(st.integers(0, min(SIZES[name], 256) - 1), max_size=9))
        assert made.decode(FORMS[form](ids)) == made.decode(ids)
        for number in ids:
            assert made.decode(number) == made.decode(torch.tensor(number)) == made.decode([number])

    @pytest.mark.parametrize("wrong", [-1, -300, 300, 10**12])
    def test_an_id_out_of_range_is_named(self, name: str, wrong: int) -> None:
        for ids in ([5, wrong], wrong, torch.tensor([5, wrong]), np.array([wrong])):
            with pytest.raises(ValueError, match=f"ids holds {wrong}; expected "):
                VOCABULARIES[name].decode(ids)

    @pytest.mark.usefixtures("unchecked")
    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            (torch.tensor([[1, 2]]), r"ids has shape \(1, 2\); expected the ids of one sentence or text, such as"),
            (torch.tensor([1.0]), r"ids has dtype torch\.float32; expected whole numbers, such as torch\.int64"),
            (torch.tensor([True]), r"ids has dtype torch\.bool; expected whole numbers"),
            ([1.0, 2.0], r"ids is \[1\.0, 2\.0\]; expected whole numbers, such as \[1, 2\]"),
            ("12", "ids is '12'; expected whole numbers"),
            (None, "ids is None; expected whole numbers"),
            ([[1, 2]], r"ids is \[\[1, 2\]\]; expected whole numbers"),
        ],
    )
    def test_other_things_are_refused(self, name: str, wrong: object, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            VOCABULARIES[name].decode(wrong)


def test_after_the_end_of_a_sentence_anything_may_follow() -> None:
    """Such as the targets that a loss leaves out."""
    assert Vocabulary(SENTENCES).decode([4, 2, -100]) == Vocabulary(SENTENCES).decode([4])


def calls(batches: Any) -> list[Any]:
    """The tensors of some steps, of two epochs and more."""
    found = [batches(step) for step in (0, 1, 5)]
    return [vars(batch) if hasattr(batch, "__dict__") else batch for batch in found]


PAIR = Pair(SENTENCES[0], SENTENCES[0])
OBJECTS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    **{
        name: (made, lambda made: made.decode(made.encode(TEXT)))
        for name, made in VOCABULARIES.items()
        if name != "words"
    },
    "words": (VOCABULARIES["words"], lambda made: made.encode(["cat", "?"])),
    "a tokenizer with all there is": (
        Tokenizer(
            VOCABULARIES["BPE"].tokens,
            VOCABULARIES["BPE"].merges,
            added=[AddedToken(content="<mask>", id=300, lstrip=True)],
            template=((300,), ()),
            whole_chunks=True,
        ),
        lambda made: made.encode("the <mask> cat", specials=True),
    ),
    "batches": (Batches([PAIR] * 5, VOCABULARIES["words"], VOCABULARIES["words"], size=2, seed=0), calls),
    "image batches": (ImageBatches(LabeledImages(torch.rand(3, 1, 2, 2), torch.arange(3)), size=2, seed=0), calls),
    "windows": (Windows(torch.arange(99), length=5, size=3, seed=0), calls),
    "a text": (Text.split("text", TEXT), lambda made: (made, made.characters.tokens)),
    "masking": (Masking(), repr),
    "span corruption": (SpanCorruption(), repr),
    "languages": (LANGUAGES, repr),
    **{f"data set {name}": (entry, repr) for name, entry in DATASETS.items()},
}


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("again", [lambda made: pickle.loads(pickle.dumps(made)), copy.deepcopy])
def test_everything_can_be_pickled_and_copied(name: str, again: Callable[[Any], Any]) -> None:
    """Before and after it was used."""
    made, use = OBJECTS[name]
    fresh = again(made)
    assert repr(use(fresh)) == repr(use(made)) == repr(use(again(made)))


def test_windows_are_pickled_as_the_text_and_not_as_all_windows() -> None:
    windows = Windows(torch.arange(10_000), length=1000, size=1, seed=0)
    assert len(pickle.dumps(windows)) < 100_000


def test_a_data_set_is_pickled_with_the_name_of_its_check() -> None:
    """Which the stamps of verified files hold."""
    (file, *_) = pickle.loads(pickle.dumps(DATASETS["fashion-mnist"])).files
    assert file.check.__qualname__ == DATASETS["fashion-mnist"].files[0].check.__qualname__
    assert file.check.__qualname__.startswith("unpacked_to.")


def test_what_is_given_is_not_changed() -> None:
    """Neither by who receives it nor, later, by a change of what was given."""
    tokens, merges, specials = dict(VOCABULARIES["BPE"].tokens), list(VOCABULARIES["BPE"].merges), {"<x>": 900}
    before = copy.deepcopy((tokens, merges, specials))
    made = Tokenizer(tokens, merges, specials)
    ids = made.encode(TEXT + "<x>", specials=True)
    assert (tokens, merges, specials) == before
    for given_object in (tokens, merges, specials):
        given_object.clear()
    assert made.encode(TEXT + "<x>", specials=True) == ids
    vocabulary = VOCABULARIES["words"]
    state = copy.deepcopy(vars(vocabulary))
    Batches([PAIR], vocabulary, vocabulary, size=1, seed=0)(0)
    assert vars(vocabulary) == state
    scores = {"a": -1.0, "b": -2.0}
    Unigram(scores).encode("ab")
    assert scores == {"a": -1.0, "b": -2.0}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: VOCABULARIES["BPE"].encode(5), TypeError, "text is a int; expected a str"),
        (lambda: VOCABULARIES["BPE"].encode(["a"], specials=True), TypeError, "text is a list; expected a str"),
        (lambda: VOCABULARIES["WordPiece"].encode(b"a"), TypeError, "text is a bytes; expected a str"),
        (lambda: VOCABULARIES["unigram"].encode(None), TypeError, "text is a NoneType; expected a str"),
        (lambda: VOCABULARIES["WordPiece"].encode("a\ud800"), ValueError, r"text holds a lone surrogate, U\+D800 at 1"),
        (lambda: Tokenizer.learn(["a"], 300, specials="<s>"), TypeError, "specials is the string '<s>'"),
        (lambda: mask_tokens(torch.tensor([[7]]), 5, Masking()), ValueError, "vocab is 5; expected more than the 5"),
        (lambda: SpanCorruption(mean_length=float("nan")), ValueError, "mean_length is nan; expected 1 or more"),
        (lambda: generated_answers(torch.tensor([[1, 2]]), -1), ValueError, "start is -1; expected 0 to 2"),
        (lambda: generated_answers(torch.tensor([[1, 2]]), 3), ValueError, "start is 3; expected 0 to 2"),
        (
            lambda: Windows(torch.zeros(2, 3), length=1, size=1, seed=0),
            ValueError,
            r"ids has shape \(2, 3\); expected the ids of one text",
        ),
        (
            lambda: write_tokens("nowhere", torch.zeros(2, 3, dtype=torch.int64), 9),
            ValueError,
            r"ids has shape \(2, 3\) and vocab is 9; expected one axis",
        ),
    ],
)
def test_odd_arguments_are_named(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
