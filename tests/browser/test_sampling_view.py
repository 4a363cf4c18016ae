"""The sampler in a page, driven by mouse and keyboard; its numbers are the package's."""

from collections.abc import Callable

import pytest
import torch
from mounted import Mounted, mounted
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.support.ui import Select

from tfbook.plot import sampling_view
from tfbook.plot.views.sampling import filtered

pytestmark = pytest.mark.slow

TOKENS = ["very", "not", "<b>a</b>", "old", "hungry"]
ROWS = {
    "my aunt is": torch.tensor([0.25, 0.5, 0.03, 0.15, 0.07]).log().round(decimals=2),
    "they began": torch.tensor([5.0, 0, 0, 0, 0]),
}


@pytest.fixture
def view(browser: Chrome, show: Callable[..., None]) -> Mounted:
    show(sampling_view(ROWS, TOKENS))
    return mounted(browser, "sampling")[0]


def shows(view: Mounted, context: str = "my aunt is", *, t: float = 1.0, k: int | None = None, p: float = 1.0) -> None:
    """Asserts that the numbers, the order and what is removed are what Python computes."""
    row = ROWS[context]
    shares, order = filtered(row, t=t, k=k, p=p), row.argsort(descending=True, stable=True).tolist()
    assert view.texts(".bars tbody th") == [TOKENS[token] for token in order]
    expected = [_percent(float(shares[token])) for token in order]
    assert view.texts(".bars .number") == expected
    assert len(view.all(".removed")) == int((shares == 0).sum())
    left = int((shares > 0).sum())
    verb = "is" if left == 1 else "are"
    assert view.summary == f"{left} of 5 tokens {verb} left; the likeliest has {_percent(float(shares.max()))}."


def _percent(share: float) -> str:
    if not share:
        return "0"
    return f"{100 * share:.0f}%" if share >= 0.0995 else f"{100 * share:.1f}%"


def press(view: Mounted, slider: str, *keys: str) -> None:
    view.one(f"input.{slider}").send_keys(*keys)


def test_it_begins_with_the_distribution_as_it_is(view: Mounted) -> None:
    shows(view)
    assert view.one(".temperature-value").text == "1.0"
    assert view.one(".k-value").text == "all"
    assert view.one(".p-value").text == "1.00"


def test_sliders_reshape_the_distribution(view: Mounted) -> None:
    """By keyboard, as the browser does it."""
    press(view, "temperature", *[Keys.ARROW_LEFT] * 5)
    shows(view, t=0.5)
    press(view, "k", Keys.HOME, *[Keys.ARROW_RIGHT] * 2)
    shows(view, t=0.5, k=3)
    press(view, "p", *[Keys.ARROW_LEFT] * 4)
    shows(view, t=0.5, k=3, p=0.8)
    view.one(".reset").click()
    shows(view)


def test_another_text_has_another_distribution(view: Mounted) -> None:
    Select(view.one("select")).select_by_index(1)
    press(view, "p", Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    shows(view, "they began", p=0.9)


def test_samples_come_from_what_is_left(view: Mounted) -> None:
    press(view, "k", Keys.HOME, Keys.ARROW_RIGHT)
    view.one(".one").click()
    assert view.summary.endswith(("Sampled: “not”.", "Sampled: “very”."))
    assert len(view.all(".drawn")) == 1
    for _ in range(5):
        view.one(".many").send_keys(Keys.ENTER)
    counts = [int(text or 0) for text in view.texts(".bars .count")]
    assert sum(counts) == 1001
    assert counts[2:] == [0, 0, 0]
    assert abs(counts[0] / 1001 - 2 / 3) < 0.06, "four standard deviations"


def test_a_change_forgets_the_samples(view: Mounted) -> None:
    view.one(".many").click()
    press(view, "temperature", Keys.ARROW_LEFT)
    assert not any(view.texts(".bars .count"))
    shows(view, t=0.9)


def test_two_samplers_are_independent(browser: Chrome, show: Callable[..., None]) -> None:
    show(*[sampling_view(ROWS, TOKENS)] * 2)
    first, second = mounted(browser, "sampling", 2)
    press(first, "k", Keys.HOME)
    shows(second)


def test_a_large_vocabulary_is_summed_up(browser: Chrome, show: Callable[..., None]) -> None:
    tokens = [f"token{i}" for i in range(500)]
    show(sampling_view({"a": torch.zeros(500)}, tokens), width=680)
    (view,) = mounted(browser, "sampling")
    assert view.texts(".bars tbody th")[-1] == "486 others"
    assert view.texts(".bars .number")[-1] == "97%"
    assert view.run("return root.querySelector('.view').scrollWidth <= 680")


@pytest.mark.parametrize(("ink", "ground"), [("#222", "#fff"), ("#e6e6e6", "#111"), ("#d5d5d5", "#383838")], ids=str)
def test_text_can_be_read_in_either_theme(view: Mounted, ink: str, ground: str) -> None:
    press(view, "k", Keys.HOME, Keys.ARROW_RIGHT)
    view.one(".one").click()
    assert view.faint_texts(ink, ground) == {}
