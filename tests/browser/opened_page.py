"""A model's page in the browser, the models that it is tested with, and how PyTorch reads a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.support.ui import WebDriverWait
from torch import Tensor, nn

from tfbook import page
from tfbook.attention import recording
from tfbook.models.blocks import Config
from tfbook.models.gpt import GPT2, Gpt
from tfbook.page import Subject
from tfbook.text.tokenizer import Tokenizer
from tfbook.text.vocabulary import CharacterVocabulary

PROSE = (
    "Wer reitet so spät durch Nacht und Wind?\nEs ist der Vater mit seinem Kind. “Yes,” we’ve 12 naïve 🦊s\t\x85\ufeff"
)
LEARNED = replace(GPT2, d_model=24, d_ff=40, heads=3, layers=2, max_length=32, dropout=0.0)
ROTARY = replace(LEARNED, heads=2, layers=3, position="rotary")
TEXTS = {
    "words": page.storyteller().start,
    "characters": "Es ist der Vater",
    "bytes": "Nacht und Wind, 🦊 and naïve",
}


def random_gpt(vocab: int, config: Config) -> Gpt:
    """With weights so large that heads look somewhere, and rounded as the page rounds them."""
    torch.manual_seed(1)
    model = Gpt(vocab, config)
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.4)
    return model.half().float().eval()


def subjects() -> dict[str, Subject]:
    characters, bytes_ = CharacterVocabulary(PROSE), Tokenizer.learn([PROSE * 3, "oho oooo " * 9], 300)
    common = {"title": "A <model>", "lead": "Of & in a test.", "longest": 32}
    return {
        "words": page.storyteller(),
        "characters": Subject(
            random_gpt(len(characters), LEARNED),
            characters,
            start=TEXTS["characters"],
            other="Es ist das Kind",
            **common,
        ),
        "bytes": Subject(random_gpt(len(bytes_), ROTARY), bytes_, start=TEXTS["bytes"], other="Wind", **common),
    }


class Opened:
    """A page in the browser, ready to be used."""

    def __init__(self, browser: Chrome, subject: Subject, path: Path):
        self.browser, self.subject, self.path = browser, subject, path
        browser.get(path.as_uri())
        WebDriverWait(browser, 60).until(lambda chrome: chrome.execute_script("return session !== null"))

    def run(self, script: str, *arguments: object) -> Any:
        return self.browser.execute_script(script, *arguments)

    def text(self, name: str) -> str:
        return self.browser.find_element("id", name).text

    def click(self, name: str) -> None:
        self.browser.find_element("id", name).click()

    def press(self, *keys: str) -> None:
        ActionChains(self.browser).send_keys(*keys).perform()

    def focus(self, selector: str) -> None:
        self.run("document.querySelector(arguments[0]).focus()", selector)

    def type(self, name: str, text: str) -> None:
        """Puts a text into a box, as typing does."""
        self.run(
            "const box = $(arguments[0]); box.value = arguments[1]; box.dispatchEvent(new Event('input'));", name, text
        )

    def write_on(self) -> None:
        """Until the text ends."""
        self.click("write")
        WebDriverWait(self.browser, 60).until(lambda _: self.text("write") == "Write on")

    @property
    def ids(self) -> list[int]:
        return self.run("return session.ids")

    @property
    def best(self) -> str:
        """The likeliest next token after the chosen place."""
        return self.run("return document.querySelector('#bars .name').textContent")


def emulate(browser: Chrome, *, width: int = 1200, height: int = 1400, theme: str = "light") -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


class Implant(NamedTuple):
    """A vector at a place: of a head's output in a layer, or of the residual stream before it where head is None."""

    layer: int
    head: int | None
    place: int
    vector: Tensor


class Traced(NamedTuple):
    """A text as PyTorch reads it: logits; by layer weights, heads' outputs side by side, the stream before it."""

    logits: Tensor
    weights: list[Tensor]
    mixed: list[Tensor]
    stream: list[Tensor]


@torch.no_grad()
def traced(
    model: Gpt, ids: list[int], silenced: Sequence[tuple[int, int]] = (), implants: Sequence[Implant] = ()
) -> Traced:
    """By hooks on the package's own model."""
    mixed: dict[int, Tensor] = {}
    stream: dict[int, Tensor] = {}
    hooks = []

    def into_stream(layer: int, x: Tensor) -> Tensor:
        x = x.clone()
        for one in implants:
            if one.head is None and one.layer == layer:
                x[0, one.place] = one.vector
        stream[layer] = x[0]
        return x

    def into_heads(layer: int, x: Tensor) -> Tensor:
        x = x.clone().unflatten(-1, (model.stack.blocks[0].mixer.branch.heads, -1))
        for number, head in silenced:
            if number == layer:
                x[:, :, head] = 0
        for one in implants:
            if one.head is not None and one.layer == layer:
                x[0, one.place, one.head] = one.vector
        mixed[layer] = x[0].flatten(1)
        return x.flatten(2)

    for layer, block in enumerate(model.stack.blocks):
        hooks.append(
            block.register_forward_pre_hook(lambda _, given, layer=layer: (into_stream(layer, given[0]), *given[1:]))
        )
        output = block.mixer.branch.W_O
        hooks.append(output.register_forward_pre_hook(lambda _, given, layer=layer: (into_heads(layer, given[0]),)))
    last = len(model.stack.blocks)
    hooks.append(model.stack.norm.register_forward_pre_hook(lambda _, given: (into_stream(last, given[0]),)))
    with recording.record(model) as weights:
        logits = model(torch.tensor([ids]))[0]
    for hook in hooks:
        hook.remove()
    order = range(last)
    return Traced(
        logits, [w[0] for w in weights.values()], [mixed[i] for i in order], [stream[i] for i in range(last + 1)]
    )
