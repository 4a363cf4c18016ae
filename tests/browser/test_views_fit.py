"""Every view at the width of JupyterLab's output and on a phone: nothing sticks out, and no text lies on another."""

from collections.abc import Callable

import pytest
import torch
from mounted import Mounted, mounted
from selenium.webdriver import Chrome, Keys

from tfbook import plot
from tfbook.plot.views.pricing import PriceQuestion
from tfbook.text import Tokenizer

pytestmark = pytest.mark.slow

OUTPUT, PHONE = 800, 360  # pixels: of an output in JupyterLab, and of a phone
ENGLISH = ["the", "happy", "king", "eats", "a", "red", "apple", "in", "the", "garden", ".", "<eos>"]
FRENCH = ["le", "roi", "heureux", "mange", "une", "pomme", "rouge", "dans", "le", "jardin", ".", "<eos>"]
WEIGHTS = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(0)).softmax(dim=-1)
NEXT = [(" extraordinary", 0.998), (" a", 0.0004), (" the", 0.0003), (" an", 0.0002), (".", 0.0001)]  # four are < 0.1%
TEXT = "They'll sing and bring extraordinary rings, 🍓🍓"
LEARNED = Tokenizer.learn(["sing ring ring king spring, they're singing rings extraordinarily"], 290)
QUERY, KEY = torch.tensor([[0.0, 1.0], [0.8, 0.6]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])

VIEWS = {  # as large as in the lessons, or a little larger
    "attention_view": ("attention", plot.attention_view(WEIGHTS[..., :8, :8].softmax(dim=-1), ENGLISH[:8])),
    "bpe_view": ("bpe", plot.bpe_view([*LEARNED.tokens.values()], LEARNED.merges, TEXT)),
    "break_view": (
        "breaking",
        plot.break_view(
            "the happy king eats a red apple in the garden .",
            {
                "the whole machine": lambda text: "le roi heureux mange une pomme rouge dans le jardin .",
                "no residuals": lambda text: "le le le " * 12,
                "no feed-forward": lambda text: "le roi mange extraordinairement une pomme",
            },
            {"the whole machine": 87.6, "no residuals": 0.1, "no feed-forward": 79.4},
            unit="BLEU on unseen sentences",
        ),
    ),
    "decoding_view": (
        "stepper",
        plot.decoding_view(ENGLISH, FRENCH, WEIGHTS[0, 0], [[("heureux", 0.9), ("le", 0.1)]] * 12),
    ),
    "guessing_view": (
        "guessing",
        plot.guessing_view(
            "a " * 100, 20, {"a model that knows nothing": [3.3] * 180, "a table": [0.5] * 180}, " a" * 90
        ),
    ),
    "mask_view": ("masks", plot.mask_view(WEIGHTS[0, 0, :6, :6], ENGLISH[:6])),
    "next_token_view": ("explorer", plot.next_token_view("Once", lambda texts: [NEXT] * len(texts))),
    "painter_view": ("painter", plot.painter_view()),
    "price_view": (
        "pricing",
        plot.price_view([PriceQuestion("How long is a step of it?", 4.2, "ms", "14 GB take 4.2 ms")]),
    ),
    "rotary_view": ("rotary", plot.rotary_view(ENGLISH[:8], QUERY, KEY, [1.0, 0.3])),
    "sampling_view": (
        "sampling",
        plot.sampling_view({"my aunt is": torch.arange(500.0)}, [f"token{i}" for i in range(500)]),
    ),
    "story_view": (
        "story",
        plot.story_view(
            [f"Bilbo went to the Misty Mountains, {n} times." for n in range(16)],
            [
                plot.AskedStory(
                    question="Where was Bilbo before the Grey Havens?",
                    answer="the Misty Mountains",
                    probability=0.9,
                    weights=((1 / 16,) * 16,) * 3,
                )
            ],
        ),
    ),
    "tape_view": (
        "tape",
        plot.tape_view(torch.rand(41, 32, 10), *[torch.rand(41, 32)] * 2, torch.rand(41, 7), torch.rand(41, 6)),
    ),
}

# The lines of text of all elements that are seen, each with the area that it covers, cut where its box scrolls or hides
# it. Tilted words, whose areas are larger than they are, and words for screen readers alone are left out.
LINES = """
const seen = (element) =>
  element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) &&
  element.tagName !== "title" && element.tagName !== "OPTION" &&
  !element.closest(".tilted thead") && getComputedStyle(element).clipPath === "none";
const cut = (area, element) => {
  for (let box = element; box instanceof Element; box = box.parentElement) {
    if (box instanceof SVGElement || getComputedStyle(box).overflowX === "visible") continue;
    const { left, right } = box.getBoundingClientRect();
    area = { ...area, left: Math.max(area.left, left), right: Math.min(area.right, right) };
  }
  return area;
};
const lines = [...root.querySelectorAll("section *")].filter(seen).flatMap((element) =>
  [...element.childNodes].filter((node) => node instanceof Text && node.data.trim()).flatMap((node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return [...range.getClientRects()].map(({ left, right, top, bottom }) => {
      const area = cut({ left, right, top, bottom }, element);
      return { text: node.data, ...area };
    });
  })
).filter(({ left, right }) => right > left);
"""
OVERLAPPING = f"""{LINES}
const deep = (low, high, otherLow, otherHigh) => Math.min(high, otherHigh) - Math.max(low, otherLow) > 3;
return lines.flatMap((one, i) => lines.slice(i + 1)
  .filter((other) => deep(one.left, one.right, other.left, other.right))
  .filter((other) => deep(one.top, one.bottom, other.top, other.bottom))
  .map((other) => `${{one.text}} | ${{other.text}}`));
"""
STICKING_OUT = f"""{LINES}
const {{ left, right }} = root.host.getBoundingClientRect();
return lines.filter((line) => line.left < left - 1 || line.right > right + 1).map(({{ text }}) => text);
"""
SCROLLING = """
return [...root.querySelectorAll("section *")]
  .filter((one) => getComputedStyle(one).overflowX === "auto" && one.scrollWidth > one.clientWidth)
  .map((one) => one.className);
"""


def test_every_view_is_here() -> None:
    assert VIEWS.keys() == {name for name in plot.__all__ if name.endswith("_view")}


def shown(browser: Chrome, show: Callable[..., None], name: str, width: int) -> Mounted:
    kind, view = VIEWS[name]
    show(view, width=width)
    return mounted(browser, kind)[0]


@pytest.mark.parametrize("width", [OUTPUT, PHONE])
@pytest.mark.parametrize("name", VIEWS)
def test_no_text_lies_on_another_and_none_sticks_out(
    browser: Chrome, show: Callable[..., None], name: str, width: int
) -> None:
    view = shown(browser, show, name, width)
    assert view.run(OVERLAPPING) == []
    assert view.run(STICKING_OUT) == []
    assert browser.execute_script("return document.body.scrollWidth") == width


@pytest.mark.parametrize("name", VIEWS)
def test_nothing_scrolls_sideways_in_jupyterlab(browser: Chrome, show: Callable[..., None], name: str) -> None:
    assert shown(browser, show, name, OUTPUT).run(SCROLLING) == []


def test_a_row_of_the_explorer_holds_its_numbers_after_every_choice(browser: Chrome, show: Callable[..., None]) -> None:
    """The smallest shares, “< 0.1%”, stay on one line."""
    view = shown(browser, show, "next_token_view", PHONE)
    for key in ("1", "5", Keys.BACKSPACE, "2"):
        view.one(".sample").send_keys(key)
        rows = """return [...root.querySelectorAll("li:not([hidden])")].every((row) =>
            [...row.querySelectorAll("span")].every((part) => part.offsetHeight <= row.offsetHeight))"""
        assert view.run(rows)
        assert view.run(OVERLAPPING) == []
