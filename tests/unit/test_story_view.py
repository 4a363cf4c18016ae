"""The view of a story that is read hop by hop: what it hands to the page, its tables, and what it refuses."""

import re

import pytest
from html_pages import HOSTILE, Page, needs_nothing

from tfbook.plot import AskedStory, story_view

SENTENCES = ["Ann took the ring.", "Ann went to the lake."]
ASKED = AskedStory(question="Where is the ring?", answer="the lake", probability=0.987, weights=[[0.96, 0.04], [0, 1]])


def test_the_page_holds_sentences_questions_and_weights() -> None:
    page = Page(story_view(SENTENCES, [ASKED])._repr_html_())
    assert page.data["sentences"] == SENTENCES
    asked = {"question": ASKED.question, "answer": "the lake", "probability": 0.99, "weights": [[96, 4], [0, 100]]}
    assert page.data["asked"] == [asked]
    needs_nothing(page)


def test_the_table_has_a_row_for_each_sentence_and_a_column_for_each_hop() -> None:
    page = Page(story_view(SENTENCES, [ASKED, ASKED])._repr_html_())
    rows = [["", "hop 1, %", "hop 2, %"], ["Ann took the ring.", "96", "0"], ["Ann went to the lake.", "4", "100"]]
    assert [[cell for cell in row if cell] for row in page.rows] == 2 * [[cell for cell in row if cell] for row in rows]


def test_what_a_reader_types_stays_text() -> None:
    asked = AskedStory(question=HOSTILE[0], answer=HOSTILE[1], probability=1, weights=[[0.5] * len(HOSTILE)])
    page = Page(story_view(HOSTILE, [asked])._repr_html_())
    assert page.data["sentences"] == HOSTILE
    needs_nothing(page)


@pytest.mark.parametrize(
    ("sentences", "weights", "message"),
    [
        ([], [[1.0]], "sentences holds 0; expected 1 to 40"),
        (SENTENCES, [], "has 0 hops; expected 1 to 6"),
        (SENTENCES, [[0.5, 0.5], [1.0]], "has hops over [2, 1] sentences; expected 2 in each"),
    ],
)
def test_what_does_not_fit_is_refused(sentences: list[str], weights: list[list[float]], message: str) -> None:
    asked = AskedStory(question="Where?", answer="there", probability=1, weights=weights)
    with pytest.raises(ValueError, match=re.escape(message)):
        story_view(sentences, [asked])
    with pytest.raises(ValueError, match="asked holds 0; expected 1 to 12"):
        story_view(SENTENCES, [])
