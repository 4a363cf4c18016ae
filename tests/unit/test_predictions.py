"""An answer gathers what a cell shows, in order, with its explanation, in one closed output; nothing is swallowed."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
import pytest
from html_pages import HOSTILE
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import HTML, Image, Markdown, clear_output, display

from tfbook import plot
from tfbook.course.predictions import WIDGET, PredictionAnswers

ANSWER = PredictionAnswers({"growth": "It *grows*: $a_i * b_i * c$.\n\n- `twice`\n- [so](#So)", "other": "No."})


class Publisher(CapturingDisplayPublisher):
    """Of a notebook: keeps what is shown."""

    @property
    def bundles(self) -> list[dict[str, Any]]:
        return [output["data"] for output in self.outputs]


@pytest.fixture
def published() -> Iterator[Publisher]:
    """What IPython shows."""
    assert not InteractiveShell.initialized()
    shell = InteractiveShell.instance()
    shell.display_pub = Publisher()
    yield shell.display_pub
    InteractiveShell.clear_instance()


def answered(published: Publisher) -> str:
    """The HTML of the only output."""
    [bundle] = published.bundles
    assert set(bundle) == {"text/html", "text/plain"}
    return bundle["text/html"]


def in_order(text: str, *parts: str) -> bool:
    places = [text.find(part) for part in parts]
    return -1 not in places and places == sorted(places)


def test_prints_tables_and_figures_come_in_order_before_the_explanation(published: Publisher) -> None:
    figure, axes = plt.subplots(figsize=(1, 1))
    axes.plot([0, 1])
    with ANSWER("growth"):
        print("first", 1, sep="\n")
        display(HTML("<b>second</b>"))
        plot.show(figure, "a line that rises", "third")
        print("fourth")
    page = answered(published)
    assert page.startswith('<details class="tfbook-answer"><summary')
    assert page.endswith("</details>")
    assert in_order(page, "<pre>first\n1</pre>", "<b>second</b>", 'alt="a line that rises"', "third", "fourth", "grows")
    assert published.bundles[0]["text/plain"].startswith("first\n1\n")
    assert in_order(published.bundles[0]["text/plain"], "a line that rises", "fourth", "It *grows*")


def test_the_explanation_is_markdown_with_formulas(published: Publisher) -> None:
    with ANSWER("growth"):
        pass
    page = answered(published)
    for part in ("<em>grows</em>", "<li><code>twice</code></li>", '<a href="#So">so</a>'):
        assert part in page
    assert len(re.findall(r"<math .*?<msub><mi>a</mi><mi>i</mi></msub>.*?</math>", page)) == 1
    assert "$" not in page


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_printed_is_text(published: Publisher, text: str) -> None:
    with ANSWER("other"):
        print(text)
    assert text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;") in answered(
        published
    )
    assert published.bundles[0]["text/plain"] == f"{text}\n\nNo."


def test_a_bare_image_has_its_alt_text_and_width(published: Publisher) -> None:
    png = b"\x89PNG\r\n\x1a\n" + 16 * b"\0"
    with ANSWER("other"):
        display(Image(png), metadata={"image/png": {"alt": '"two" bars', "width": 90}})
        display(Markdown("**bold**"))
        display({"image/svg+xml": "<svg></svg>"}, raw=True)
    page = answered(published)
    assert '<img alt="&quot;two&quot; bars" width="90" src="data:image/png;base64,iVBORw0K' in page
    assert in_order(page, "<strong>bold</strong>", "<svg>")


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_an_error_is_raised_after_all_that_was_shown_before(
    published: Publisher, error: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        with ANSWER("growth"):
            print("before")
            display(HTML("<b>and</b>"))
            raise error

    with pytest.raises(error):
        fail()
    assert capsys.readouterr().out == "before\n"
    assert [bundle["text/html"] for bundle in published.bundles] == ["<b>and</b>"]


def test_afterwards_outputs_are_shown_as_always(published: Publisher, capsys: pytest.CaptureFixture[str]) -> None:
    out = sys.stdout
    with ANSWER("other"):
        pass
    with pytest.raises(ValueError, match="no"), ANSWER("other"):
        raise ValueError("no")
    assert (sys.stdout, InteractiveShell.instance().display_pub) == (out, published)
    print("open")
    assert capsys.readouterr().out == "open\n"


def test_a_progress_bar_is_seen_while_it_runs(published: Publisher, capsys: pytest.CaptureFixture[str]) -> None:
    bar = {WIDGET: {"model_id": "1"}, "text/plain": "10%"}
    with ANSWER("other"):
        display(bar, raw=True)
        print("10%", file=sys.stderr)
        assert published.bundles == [bar]
        assert capsys.readouterr().err == "10%\n"
    assert published.bundles[0] == bar
    assert "10%" not in published.bundles[1]["text/html"]


def test_an_output_that_was_cleared_is_gone(published: Publisher) -> None:
    with ANSWER("other"):
        print("draft")
        clear_output()
        print("final")
    assert "draft" not in answered(published)
    assert "<pre>final</pre>" in answered(published)


def test_without_ipython_the_block_prints_and_the_explanation_follows(capsys: pytest.CaptureFixture[str]) -> None:
    assert not InteractiveShell.initialized()
    with ANSWER("other"):
        print("2")
        assert capsys.readouterr().out == "2\n"
    assert capsys.readouterr().out == "No.\n"


def test_a_stream_takes_what_print_writes(published: Publisher) -> None:
    with ANSWER("other"):
        assert isinstance(sys.stdout, io.TextIOBase)
        assert sys.stdout.writable()
        sys.stdout.writelines(["a", "b"])
        print("c", flush=True)
    assert "<pre>abc</pre>" in answered(published)


def test_an_unknown_key_is_named_with_the_known_ones() -> None:
    with pytest.raises(KeyError, match="no answer 'size'; expected one of growth, other"), ANSWER("size"):
        raise AssertionError("runs nothing")
