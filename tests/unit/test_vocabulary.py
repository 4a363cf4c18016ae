"""A padded vocabulary: the product has another size, as on a GPU, and nothing else tells."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from small_training import pairs, texts
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tfbook.generation.captured import can_be_captured
from tfbook.generation.frozen import Frozen
from tfbook.generation.sampling import generate
from tfbook.interop.hugging_face import Loaded, load_hugging_face, save_hugging_face
from tfbook.models.bert import Bert, MaskedLanguageModel
from tfbook.models.blocks import Config
from tfbook.models.gpt import GPT2, Gpt, parameter_count
from tfbook.models.language_model import LanguageModel
from tfbook.models.seq2seq import LuongDecoder, RecurrentEncoder, Seq2SeqConfig, Translator
from tfbook.models.transformer import Decoder, Encoder, Transformer
from tfbook.text import IGNORE_INDEX, Masked
from tfbook.training import Loss, Recipe, fit, masked_loss, next_token_loss, translation_loss, vocabulary
from tfbook.training.vocabulary import padded_product, padded_vocabulary

pytestmark = pytest.mark.usefixtures("float32")
VOCAB = 70  # two thirds of 128, and no width of the models below
SIZES = Config(d_model=8, heads=2, d_ff=12, layers=1)
GPT = replace(GPT2, d_model=8, heads=2, d_ff=12, layers=1, max_length=20)
RECURRENT = Seq2SeqConfig(source_vocab=9, target_vocab=VOCAB, d_embed=5, d_hidden=4)


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A padded product pays on this CPU."""
    monkeypatch.setattr(vocabulary, "PADDED_ON", ("cpu",))
    monkeypatch.setattr(vocabulary, "SMALLEST", 2)


def masked_tokens(model: nn.Module, ids: Tensor) -> Loss:
    return masked_loss(model, Masked(ids, ids.masked_fill(ids < 4, IGNORE_INDEX)), torch.full((len(ids),), 6))


Task = tuple[Callable[[], nn.Module], Callable[[Any, Any], Loss], Callable[[int], Any]]
TASKS: dict[str, Task] = {
    "GPT": (partial(Gpt, VOCAB, SIZES), next_token_loss, texts),
    "scaled embedding": (partial(LanguageModel, VOCAB, SIZES), next_token_loss, texts),
    "BERT, with biases": (lambda: MaskedLanguageModel(Bert(VOCAB, SIZES)), masked_tokens, texts),
    "encoder–decoder": (lambda: Transformer(Encoder(9, SIZES), Decoder(VOCAB, SIZES)), translation_loss, pairs),
    "untied": (lambda: Transformer(Encoder(9, SIZES), Decoder(VOCAB, SIZES, tied=False)), translation_loss, pairs),
    "recurrent": (lambda: Translator(RecurrentEncoder(RECURRENT), LuongDecoder(RECURRENT)), translation_loss, pairs),
}
every_task = pytest.mark.parametrize("name", TASKS)


class Products(TorchDispatchMode):
    """Inside, `sizes` collects the numbers of rows and columns of all factors and products of matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **kwargs or {})
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm):
            for tensor in (*args, found):
                self.sizes.update(tensor.shape)
        return found


def gradients(name: str, seed: int = 0) -> tuple[list[Tensor], set[int]]:
    """Loss and gradients of a fresh model in double precision, and the sizes of the products."""
    build, loss, batches = TASKS[name]
    torch.manual_seed(seed)
    model = build().double()
    with padded_vocabulary(model), Products() as products:
        value = loss(model, batches(0)).mean
        value.backward()
    return [value.detach(), *(weight.grad for weight in model.parameters())], products.sizes


@every_task
def test_losses_and_gradients_are_those_without(name: str, request: pytest.FixtureRequest) -> None:
    """The products, forward and backward, have 128 in place of 70."""
    expected, sizes = gradients(name)
    request.getfixturevalue("as_on_a_gpu")
    found, padded = gradients(name)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert VOCAB in sizes
    assert 128 not in sizes
    assert padded == sizes - {VOCAB} | {128}


@every_task
@pytest.mark.usefixtures("as_on_a_gpu")
def test_training_leaves_a_model_as_it_was(name: str, tmp_path: Path) -> None:
    """The same weights as without, the same checkpoint, and no trace in the model."""
    build, loss, batches = TASKS[name]
    runs, path = [], tmp_path / "run.pt"
    for smallest in (VOCAB + 1, 2):
        vocabulary.SMALLEST = smallest
        torch.manual_seed(0)
        model = build()
        history = fit(model, loss, batches, Recipe(steps=3, lr=0.01), checkpoint=path if smallest == 2 else None)
        runs.append((history, model))
    (expected, plain), (found, model) = runs
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)
    torch.testing.assert_close(model.state_dict(), plain.state_dict(), rtol=0, atol=1e-6)
    assert not any("forward" in vars(module) for module in model.modules())
    torch.manual_seed(1)
    resumed = build()
    vocabulary.SMALLEST = VOCAB + 1
    assert fit(resumed, loss, batches, Recipe(steps=3, lr=0.01), checkpoint=path).loss == found.loss
    torch.testing.assert_close(resumed.state_dict(), model.state_dict(), rtol=0, atol=0)


@pytest.mark.usefixtures("as_on_a_gpu")
def test_nothing_shows_inside() -> None:
    """Weights, counts, logits, copies, text, and published weights that are loaded; hooks run as ever."""
    torch.manual_seed(0)
    model = Gpt(VOCAB, GPT).eval()
    expected, copied, ids = model(texts(0)), copy.deepcopy(model), texts(0)
    text = generate(model, ids, max_new_tokens=5, generator=torch.Generator().manual_seed(0))
    seen: list[Tensor] = []
    with padded_vocabulary(model):
        assert can_be_captured(model)
        for each in (model, copy.deepcopy(model), Frozen(model)):
            torch.testing.assert_close(each(ids), expected, rtol=0, atol=1e-6)
            assert torch.equal(generate(each, ids, max_new_tokens=5, generator=torch.Generator().manual_seed(0)), text)
        assert {name: weight.shape for name, weight in model.state_dict().items()} == {
            name: weight.shape for name, weight in copied.state_dict().items()
        }
        assert model.parameter_count() == copied.parameter_count() == parameter_count(VOCAB, GPT)
        assert model.flops(5) == copied.flops(5)
        model.unembed.register_forward_hook(lambda layer, inputs, logits: seen.append(logits))
        assert load_hugging_face(model, save_hugging_face(Gpt(VOCAB, GPT))) == Loaded((), ())
        assert model(ids).shape == (4, 6, VOCAB)
    assert len(seen) == 1


@pytest.mark.usefixtures("as_on_a_gpu", "unchecked")
def test_it_is_traced_whole_and_once() -> None:
    """A second time with the same model compiles nothing anew."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    model = Gpt(VOCAB, SIZES)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    for number in range(2):
        with padded_vocabulary(model):
            torch.testing.assert_close(compiled(texts(number)), model(texts(number)))
    assert len(graphs) == 1
    assert "pad" in graphs[0].code
    torch._dynamo.reset()


def test_in_mixed_precision_the_product_is_the_one_without() -> None:
    layer, x = nn.Linear(8, VOCAB), torch.randn(2, 3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = padded_product(layer, x), layer(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)


# ---- which layers ------------------------------------------------------------------------------------------------


class Edited(nn.Linear):
    """A reader's."""


def model_with(layer: nn.Module) -> nn.Module:
    model = nn.Module()
    model.unembed = layer
    return model


def patched() -> nn.Linear:
    layer = nn.Linear(8, VOCAB)
    layer.forward = torch.zeros_like  # type: ignore[method-assign]
    return layer


@pytest.mark.parametrize(
    "layer", [nn.Linear(8, 128), Edited(8, VOCAB), patched(), nn.Identity(), nn.Linear(8, 1)], ids=str
)
@pytest.mark.usefixtures("as_on_a_gpu")
def test_other_layers_are_left_alone(layer: nn.Module) -> None:
    before = vars(layer).get("forward")
    with padded_vocabulary(model_with(layer)):
        assert vars(layer).get("forward") is before
    assert vars(layer).get("forward") is before


def test_on_a_cpu_nothing_is_padded() -> None:
    model = model_with(nn.Linear(2, 50_257))
    with padded_vocabulary(model):
        assert "forward" not in vars(model.unembed)


@pytest.mark.usefixtures("as_on_a_gpu")
def test_it_ends_with_an_error_and_inside_itself() -> None:
    model = model_with(nn.Linear(8, VOCAB))
    model.decoder = model_with(model.unembed)
    with padded_vocabulary(model):
        with pytest.raises(KeyError), padded_vocabulary(model):
            raise KeyError
        assert "forward" in vars(model.unembed)
    assert "forward" not in vars(model.unembed)
