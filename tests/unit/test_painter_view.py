"""The view of hand-set matrices as Python writes it: a table, data for the script, the same every time.

What the script makes of it is tested in a browser (tests/browser).
"""

import torch
from html_pages import Page, needs_nothing

from tfbook.plot import painter_view
from tfbook.plot.views import painter
from tfbook.plot.views.painter import FEATURES, GOOD_K, GOOD_Q, SCENES, TOKENS, painter_weights, tokens_of


def test_the_weights_are_those_of_attention() -> None:
    W_Q, W_K = torch.tensor([[3, 0], [0, 3], [1, -2], [0, 0]]), torch.tensor([[1, 0], [0, 1], [1, 1], [2, 1]])
    for scene in SCENES:
        x = torch.tensor(tokens_of(scene)).double()
        expected = torch.nn.functional.scaled_dot_product_attention(
            (x @ W_Q.double())[None], (x @ W_K.double())[None], torch.eye(4).double()[None]
        )
        torch.testing.assert_close(torch.tensor(painter_weights(W_Q, W_K, scene)).double(), expected[0])


def test_scenes_exchange_the_colors_and_leave_the_gray_shapes() -> None:
    first, second = (torch.tensor(tokens_of(scene)) for scene in SCENES)
    assert torch.equal(first[:2, 2:], second[:2, 2:].flip(0))
    assert torch.equal(first[2:], second[2:])
    assert first[2:, 2:].sum() == 0


def test_the_table_says_the_weights_of_numbers_that_work() -> None:
    """It is what remains where scripts do not run: on GitHub, in a notebook that is not trusted."""
    shown = Page(painter_view()._repr_html_())
    found = painter_weights(torch.tensor(GOOD_Q), torch.tensor(GOOD_K), next(iter(SCENES)))
    assert shown.rows[0] == ["", *TOKENS]
    assert [row[1:] for row in shown.rows[1:]] == [[f"{weight:.2f}" for weight in row] for row in found]
    assert min(found[2][0], found[3][1]) > 0.9


def test_the_data_holds_scenes_and_what_a_matrix_looks_like() -> None:
    data = Page(painter_view()._repr_html_()).data
    assert data["features"] == [*FEATURES]
    assert [len(scene["x"]) for scene in data["scenes"]] == [4, 4]
    assert data["width"] == painter.WIDTH


def test_the_page_needs_nothing_from_elsewhere() -> None:
    needs_nothing(Page(painter_view()._repr_html_()))
