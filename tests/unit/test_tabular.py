"""FT-Transformer against PyTorch's own layers, and what it must not depend on; tables and the stand's rule."""

import pytest
import torch
from torch import nn

from tfbook.data import tables
from tfbook.models.tabular import FeatureTokenizer, FTTransformer, TableConfig, number_tokens

pytestmark = pytest.mark.usefixtures("float32")
CONFIG = TableConfig(numbers=4, categories=(3, 2), d_model=16, heads=2, d_ff=24, layers=2)
NUMBERS = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
CATEGORIES = torch.tensor([[0, 1], [2, 0], [1, 1], [0, 0], [2, 1]])


@pytest.fixture
def model() -> FTTransformer:
    torch.manual_seed(2)
    return FTTransformer(3, CONFIG).eval()


def _torch_layer(block: nn.Module) -> nn.TransformerEncoderLayer:
    """PyTorch's pre-norm layer with a block's weights."""
    layer = nn.TransformerEncoderLayer(
        16, 2, 24, dropout=0.0, activation="gelu", batch_first=True, norm_first=True, layer_norm_eps=1e-5
    )
    mixer, feed_forward = block.mixer.branch, block.feed_forward.branch
    projections = [mixer.W_Q, mixer.W_K, mixer.W_V]
    layer.self_attn.in_proj_weight.data = torch.cat([p.weight for p in projections])
    layer.self_attn.in_proj_bias.data = torch.cat([p.bias for p in projections])
    pairs = {
        layer.self_attn.out_proj: mixer.W_O,
        layer.norm1: block.mixer.norm,
        layer.norm2: block.feed_forward.norm,
        layer.linear1: feed_forward.up,
        layer.linear2: feed_forward.down,
    }
    for theirs, ours in pairs.items():
        theirs.weight.data, theirs.bias.data = ours.weight.data, ours.bias.data
    return layer.eval()


@torch.no_grad()
def test_it_equals_pytorchs_layers_on_tokens_made_by_hand(model: FTTransformer) -> None:
    tokenizer, rows = model.tokenizer, []
    for row, choice in zip(NUMBERS, CATEGORIES, strict=True):
        tokens = [model.token[0, 0]]
        tokens += [x * w + b for x, w, b in zip(row, tokenizer.weight, tokenizer.bias, strict=True)]
        tokens += [t.weight[c] + b for t, c, b in zip(tokenizer.tables, choice, tokenizer.table_bias, strict=True)]
        rows.append(torch.stack(tokens))
    x = torch.stack(rows)
    for block in model.stack.blocks:
        x = _torch_layer(block)(x)
    last = nn.functional.layer_norm(x[:, 0], (16,), model.stack.norm.weight, model.stack.norm.bias)
    expected = nn.functional.linear(last.relu(), model.head.weight, model.head.bias)
    torch.testing.assert_close(model(NUMBERS, CATEGORIES), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_order_of_columns_does_not_matter(model: FTTransformer) -> None:
    expected, tokenizer = model(NUMBERS, CATEGORIES), model.tokenizer
    order = torch.tensor([2, 0, 3, 1])
    for name in ("weight", "bias", "missing"):
        parameter = getattr(tokenizer, name)
        parameter.copy_(parameter[order].clone())
    tokenizer.tables = nn.ModuleList(reversed([*tokenizer.tables]))
    tokenizer.table_bias.copy_(tokenizer.table_bias.flip(0))
    torch.testing.assert_close(model(NUMBERS[:, order], CATEGORIES.flip(1)), expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_missing_number_gets_the_token_of_its_column(model: FTTransformer) -> None:
    gaps = NUMBERS.clone()
    gaps[1, 2] = torch.nan
    tokens, whole = model.tokenizer(gaps, CATEGORIES), model.tokenizer(NUMBERS, CATEGORIES)
    torch.testing.assert_close(tokens[1, 2], model.tokenizer.missing[2])
    differs = (tokens != whole).any(dim=-1)
    assert differs.nonzero().tolist() == [[1, 2]]
    assert model(gaps, CATEGORIES).isfinite().all()


def test_gaps_are_learned_from() -> None:
    model = FTTransformer(1, CONFIG)
    model(torch.full((2, 4), torch.nan), CATEGORIES[:2]).sum().backward()
    assert model.tokenizer.missing.grad.abs().sum() > 0
    assert model.tokenizer.weight.grad.abs().sum() == 0


@pytest.mark.parametrize(("numbers", "categories"), [(0, (2,)), (3, ())])
def test_a_table_may_lack_one_kind_of_column(numbers: int, categories: tuple[int, ...]) -> None:
    config = TableConfig(numbers=numbers, categories=categories, d_model=8, heads=2, d_ff=8, layers=1)
    out = FTTransformer(2, config)(torch.randn(3, numbers), torch.zeros(3, len(categories), dtype=torch.int64))
    assert out.shape == (3, 2)
    assert config.time == 1 + numbers + len(categories)


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"numbers is 0 and categories is \[\]"):
        FeatureTokenizer(0, (), 4)
    with pytest.raises(ValueError, match=r"\(3, 2\) numbers and categories; expected \(4, 2\)"):
        FeatureTokenizer(4, (3, 2), 4)(NUMBERS[:, :3], CATEGORIES)


def test_a_number_token_is_a_line() -> None:
    weight, bias = torch.tensor([[1.0, 0.0], [2.0, -1.0]]), torch.tensor([[0.0, 1.0], [0.5, 0.5]])
    assert number_tokens(torch.tensor([[3.0, -1.0]]), weight, bias).tolist() == [[[3.0, 1.0], [-1.5, 1.5]]]


# ---- tables ------------------------------------------------------------------------------------------------------


def test_the_stands_rule_by_hand() -> None:
    numbers = torch.tensor([[25.0, 14, 2, 3], [25, 14, 3.5, 3], [25, 11, 2, 3], [10, 14, 2, 10]])
    sun_weekend, rain = torch.tensor([[0, 1, 0]]).expand(4, -1), torch.tensor([[2, 1, 0]]).expand(4, -1)
    assert tables.cones_sold(numbers, sun_weekend).tolist() == [42, 21, 27, 15]
    assert tables.cones_sold(numbers, rain).tolist() == [22, 11, 7, 15]


def test_a_stand_is_the_rule_and_noise() -> None:
    table = tables.ice_cream(4000, seed=3)
    off = table.rows.target - tables.cones_sold(table.rows.numbers, table.rows.categories)
    assert abs(float(off.mean())) < 0.2
    assert abs(float(off.std()) - tables.NOISE) < 0.15
    assert len(table.columns) == table.rows.numbers.shape[1] + len(table.values)
    assert tables.ice_cream(9, seed=1, irrelevant=0).rows.numbers.shape == (9, 4)


@pytest.mark.parametrize(
    ("name", "rows", "columns"), [("wine", 178, 13), ("breast_cancer", 569, 30), ("diabetes", 442, 10)]
)
def test_tables_of_scikit_learn(name: str, rows: int, columns: int) -> None:
    table = tables.read_table(name)
    assert (len(table), len(table.columns)) == (rows, columns)
    parts = table.split(1)
    assert len(parts.train) + len(parts.valid) + len(parts.test) == rows
    assert parts.train.numbers.mean(dim=0).abs().max() < 1e-4
    torch.testing.assert_close(parts.train.numbers.std(dim=0, correction=0), torch.ones(columns))
    assert (table.labels is None) == parts.train.target.is_floating_point()


def test_an_unknown_table_and_an_empty_part_are_refused() -> None:
    with pytest.raises(ValueError, match="expected one of wine, breast_cancer, diabetes"):
        tables.read_table("iris")
    with pytest.raises(ValueError, match="a row or more in each part"):
        tables.ice_cream(3, seed=1).split(1, valid=0.0)


def test_turned_axes_keep_distances_and_gaps_are_missing() -> None:
    rows = tables.ice_cream(20, seed=1).rows
    turned = tables.rotated(rows, seed=1)
    torch.testing.assert_close(
        torch.cdist(turned.numbers, turned.numbers), torch.cdist(rows.numbers, rows.numbers), atol=1e-3, rtol=1e-3
    )
    share = float(tables.with_gaps(tables.ice_cream(500, seed=1).rows, 0.3, seed=2).numbers.isnan().float().mean())
    assert share == pytest.approx(0.3, abs=0.03)
    hot = tables.one_hot(rows, (tables.SKIES, tables.DAYS, tables.FLAVORS))
    assert (hot[:, 8:].sum(dim=1) == 3).all()
