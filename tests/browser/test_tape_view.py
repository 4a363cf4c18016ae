"""A tape in a page: one step after the other, by button and by slider, and played."""

import time
from collections.abc import Callable

import pytest
import torch
from mounted import Mounted, mounted
from selenium.webdriver import Chrome, Keys
from torch.nn.functional import one_hot

from tfbook.plot import tape_view

pytestmark = pytest.mark.slow

WRITING = one_hot(torch.tensor([0, 1, 2, 2]), 3).float()
READING = one_hot(torch.tensor([2, 2, 0, 1]), 3).float()


@pytest.fixture
def view(browser: Chrome, show: Callable[..., None]) -> Mounted:
    show(tape_view(torch.rand(4, 3, 2), WRITING, READING, torch.rand(4, 3), torch.rand(4, 2)))
    return mounted(browser, "tape")[0]


def test_a_step_moves_the_heads(view: Mounted) -> None:
    assert view.summary == "Step 1 of 4: it writes to slot 0 and reads from slot 2."
    view.one(".on").click()
    assert view.summary == "Step 2 of 4: it writes to slot 1 and reads from slot 2."
    assert view.run("return [...root.querySelectorAll('.write')].map((head) => head.style.opacity)") == ["0", "1", "0"]
    view.one("input").send_keys(Keys.END)
    assert view.summary == "Step 4 of 4: it writes to slot 2 and reads from slot 1."


def test_later_steps_are_not_shown(view: Mounted) -> None:
    count = "return root.querySelectorAll('.said .column:not(.later)').length"
    assert view.run(count) == 1
    view.one(".on").click()
    assert view.run(count) == 2


def test_it_plays_to_the_end_and_stops(view: Mounted) -> None:
    view.one(".play").click()
    assert view.one(".play").text == "Pause"
    end = time.monotonic() + 10
    while "Step 4" not in view.summary and time.monotonic() < end:
        time.sleep(0.1)
    assert view.summary.startswith("Step 4 of 4")
    assert view.one(".play").text == "Play"
