"""Tokens against what a person would write down, and the way back for any text at all."""

import unicodedata

import pytest
from hypothesis import given, strategies as st

from tfbook.text import LANGUAGES, detokenize, tokenize

ENGLISH = {
    "I don't know.": "i do n't know .",
    "You can't, won't and shouldn't!": "you ca n't , wo n't and should n't !",
    "He's Tom's friend; they're late, I'd say.": "he 's tom 's friend ; they 're late , i 'd say .",
    "I've 2:30, we'll take 1,000 or 3.5 %": "i 've 2:30 , we 'll take 1,000 or 3.5 %",
    "It's ten o'clock, mother-in-law": "it 's ten o'clock , mother-in-law",
    "At 5 p.m. in the U.S.": "at 5 p.m. in the u.s.",
    "Well... a\u00a0“T\u2011shirt”\u2026": 'well ... a " t-shirt " ...',
    "Don\u2019t co\u00adoperate\u200b (yet)": "do n't cooperate ( yet )",
    "The students' books cost $100.": "the students ' books cost $ 100 .",
    "": "",
}
FRENCH = {
    "L'homme n'est pas là.": "l' homme n' est pas là .",
    "Qu'est-ce que c'est\u202f?": "qu' est-ce que c' est ?",
    "Aujourd'hui, quelqu\u2019un a dit «\u00a0non\u00a0»\u00a0!": "aujourd'hui , quelqu'un a dit « non » !",
    "Y a-t-il un rendez-vous ?": "y a -t-il un rendez-vous ?",
    "Allez-vous-en, donne-m'en, va-t'en !": "allez -vous -en , donne -m' en , va -t' en !",
    "Celui-ci, moi-même, là-bas, peut-être.": "celui -ci , moi -même , là-bas , peut-être .",
    "Lorsqu'il parle jusqu'à 14h30, j'y vais.": "lorsqu' il parle jusqu' à 14h30 , j' y vais .",
    "E\u0301TE\u0301": "été",
    "D\u2019accord": "d' accord",
}


@pytest.mark.parametrize(("text", "tokens"), ENGLISH.items())
def test_english_is_cut_as_by_hand(text: str, tokens: str) -> None:
    assert tokenize(text, "english") == tuple(tokens.split())


@pytest.mark.parametrize(("text", "tokens"), FRENCH.items())
def test_french_is_cut_as_by_hand(text: str, tokens: str) -> None:
    assert tokenize(text, "french") == tuple(tokens.split())


@pytest.mark.parametrize("space", [" ", "\u00a0", "\u202f", "\u2009", "\t", ""])
def test_the_width_of_a_space_does_not_matter(space: str) -> None:
    assert tokenize(f"Vraiment{space}?", "french") == ("vraiment", "?")


@pytest.mark.parametrize(
    ("tokens", "language", "text"),
    [
        ("i do n't know tom 's dog .", "english", "i don't know tom's dog."),
        ('he said : " i ca n\'t " ( twice ) !', "english", 'he said: "i can\'t" (twice)!'),
        ("it costs $ 5 , or 3 % more", "english", "it costs $5, or 3% more"),
        ("qu' est-ce que l' homme sait ?", "french", "qu'est-ce que l'homme sait ?"),
        ("le sais -tu ? va -t' en , dit -il .", "french", "le sais-tu ? va-t'en, dit-il."),
        ("« non » : voilà ( oui ) !", "french", "« non » : voilà (oui) !"),
        ("<unk> a <unk> .", "english", "<unk> a <unk>."),
        ("", "french", ""),
    ],
)
def test_sentences_are_written_as_by_hand(tokens: str, language: str, text: str) -> None:
    assert detokenize(tokens.split(), language) == text


@pytest.mark.parametrize("language", LANGUAGES)
@given(text=st.one_of(st.text(), st.text("aelnqtu'’-. 1:?\"«»()\u202f", max_size=20)))
def test_any_text_survives_the_way_back(language: str, text: str) -> None:
    tokens = tokenize(text, language)
    assert tokenize(detokenize(tokens, language), language) == tokens


@pytest.mark.parametrize("language", LANGUAGES)
@given(text=st.text(st.characters(exclude_characters="’‘ʼ“”‐‑…\u00ad\u200b")))
def test_nothing_is_lost_but_spaces(language: str, text: str) -> None:
    assert "".join(tokenize(text, language)) == "".join(unicodedata.normalize("NFC", text.lower()).split())


def test_an_unknown_language_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="language is 'klingon'; expected one of 'english', 'french'"):
        tokenize("Qapla'", "klingon")
    with pytest.raises(ValueError, match="language is 'klingon'"):
        detokenize(["qapla"], "klingon")


def test_a_string_in_place_of_tokens_is_refused() -> None:
    with pytest.raises(TypeError, match="tokens is the string 'hello'; expected a sequence of tokens"):
        detokenize("hello", "english")


def test_tokens_in_place_of_a_string_are_refused() -> None:
    with pytest.raises(TypeError, match="text"):
        tokenize(["hello"], "english")  # type: ignore[arg-type]
