"""The view of a tape as Python writes it: bytes for the script, which is tested in a browser, and a static table."""

import base64

import pytest
import torch
from html_pages import Page, needs_nothing

from tfbook.plot import tape_view
from tfbook.plot.views.tape import TapeView

MEMORY = torch.tensor([[[0.0, 2.0], [-1.0, 9.0]], [[0.5, -2.0], [0.0, 0.0]]])  # two steps, two slots of two numbers
WRITING = torch.tensor([[1.0, 0.0], [0.4, 0.6]])
READING = torch.tensor([[0.5, 0.5], [0.0, 1.0]])
HEARD, SAID = torch.tensor([[-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), torch.tensor([[0.0, 1.0], [0.5, 0.75]])


def view() -> TapeView:
    return tape_view(MEMORY, WRITING, READING, HEARD, SAID)


def numbers(text: str) -> list[int]:
    return list(base64.b64decode(text))


def test_the_data_holds_every_step() -> None:
    data = Page(view()._repr_html_()).data
    assert data["sizes"] == [2, 2, 2, 3, 2]
    assert numbers(data["memory"]) == [100, 200, 0, 200, 150, 0, 100, 100]
    assert numbers(data["writing"]) == [100, 0, 40, 60]
    assert numbers(data["reading"]) == [50, 50, 0, 100]
    assert numbers(data["heard"]) == [0, 200, 100, 100, 100, 200]
    assert numbers(data["said"]) == [0, 200, 100, 150]


def test_without_scripts_a_table_says_where_the_heads_are() -> None:
    assert Page(view()._repr_html_()).rows == [
        ["", "writes to", "reads from"],
        ["step 0", "slot 0 (1.00)", "nowhere"],
        ["step 1", "nowhere", "slot 1 (1.00)"],
    ]


def test_it_needs_nothing_from_elsewhere() -> None:
    needs_nothing(Page(view()._repr_html_()))


def test_it_is_named_in_a_terminal() -> None:
    assert repr(view()) == "TapeView(steps=2, slots=2)"


def test_steps_and_weights_are_needed() -> None:
    with pytest.raises(ValueError, match="memory has no steps; expected one or more"):
        tape_view(MEMORY[:0], WRITING[:0], READING[:0], HEARD[:0], SAID[:0])
    with pytest.raises(ValueError, match=r"reading runs from 0 to 2; expected 0 to 1"):
        tape_view(MEMORY, WRITING, 2 * READING, HEARD, SAID)
