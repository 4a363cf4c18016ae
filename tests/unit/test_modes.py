"""Whoever evaluates a model gives each of its modules back in its own mode, and tensors that can be trained on."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor, nn

from tfbook.course.equality import prove_equal
from tfbook.course.probing import activations
from tfbook.generation.best_of_n import best_of_n
from tfbook.generation.sampling import generate, stream
from tfbook.generation.search import beam_search, greedy_search, translate
from tfbook.models.bert import BERT, Bert
from tfbook.models.blocks import Config
from tfbook.models.gpt import Gpt
from tfbook.models.sentence_encoder import SentenceEncoder
from tfbook.models.seq2seq import BahdanauDecoder, RecurrentEncoder, Seq2SeqConfig, Translator
from tfbook.modes import evaluating
from tfbook.text import Pair, Vocabulary
from tfbook.training import NonFiniteLoss, Recipe, fit, next_token_loss

SIZES = Config(d_model=8, heads=2, d_ff=8, layers=2, dropout=0.5)
IDS, LENGTHS = torch.tensor([[4, 5, 6], [5, 6, 4]]), torch.tensor([3, 3])


def gpt() -> Gpt:
    """In train mode, but for its first block, which its owner has frozen."""
    model = Gpt(9, SIZES)
    model.stack.blocks[0].eval()
    return model


def translator() -> Translator:
    """In train mode, but for its encoder."""
    config = Seq2SeqConfig(source_vocab=9, target_vocab=9, d_embed=8, d_hidden=8, dropout=0.5)
    model = Translator(RecurrentEncoder(config), BahdanauDecoder(config))
    model.encoder.eval()
    return model


def modes(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


def sentence_encoder() -> SentenceEncoder:
    tokenizer = Tokenizer(WordLevel({"[PAD]": 0, "a": 1, "b": 2}, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = Whitespace()
    encoder = SentenceEncoder(Bert(9, Config(**vars(BERT) | vars(SIZES) | {"max_length": 8})), tokenizer, max_length=4)
    encoder.bert.stack.blocks[1].eval()
    return encoder


PAIRS = [Pair(("a", "b"), ("c",))]
WORDS = Vocabulary([("a", "b", "c", "d", "e")])
EVALUATIONS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], object]]] = {
    "generate": (gpt, lambda model: generate(model, IDS, max_new_tokens=2)),
    "stream": (gpt, lambda model: next(stream(model, IDS, max_new_tokens=2))),
    "best_of_n": (
        gpt,
        lambda model: best_of_n(model, IDS, lambda answers: torch.zeros(len(answers)), 2, max_new_tokens=2),
    ),
    "greedy_search": (translator, lambda model: greedy_search(model, IDS, LENGTHS, max_length=2)),
    "beam_search": (translator, lambda model: beam_search(model, IDS, LENGTHS, max_length=2)),
    "translate": (translator, lambda model: translate(model, PAIRS, WORDS, WORDS, max_length=2)),
    "prove_equal": (gpt, lambda model: prove_equal(model, Gpt(9, SIZES), (IDS,))),
    "prove_equal, package": (gpt, lambda model: prove_equal(Gpt(9, SIZES), model, (IDS,))),
    "activations": (gpt, lambda model: activations(model, IDS, layers=["stack.blocks.0"])),
    "encode": (sentence_encoder, lambda model: model.encode(["a b", "a"])),
}


@pytest.mark.parametrize(("make", "evaluate"), EVALUATIONS.values(), ids=EVALUATIONS)
def test_every_module_comes_back_in_its_own_mode(
    make: Callable[[], nn.Module], evaluate: Callable[[Any], object]
) -> None:
    model = make()
    before, seen = modes(model), []
    assert set(before) == {True, False}
    for module in model.modules():
        module.register_forward_pre_hook(lambda module, inputs: seen.append(module.training))
    evaluate(model)
    assert modes(model) == before
    assert seen
    assert not any(seen), "a module ran in train mode"


def test_evaluating_within_training_leaves_a_block_as_the_loss_has_put_it() -> None:
    """All of the model begins in train mode; the frozen block of the loss stays frozen after each evaluation."""
    model, seen = gpt(), []

    def loss(model: Gpt, ids: Tensor) -> Any:
        if not seen:
            model.stack.blocks[1].eval()
        seen.append(modes(model))
        return next_token_loss(model, ids)

    def evaluate(model: nn.Module) -> dict[str, float]:
        assert not any(modes(model))
        return {}

    fit(model, loss, lambda step: IDS, Recipe(steps=4, evaluate_every=1), evaluate=evaluate)
    assert all(found == seen[0] for found in seen)
    assert seen[0] == [not name.startswith("stack.blocks.1") for name, _ in model.named_modules()]
    assert not any(modes(model))


def test_the_model_is_in_eval_mode_however_training_ends() -> None:
    model = gpt()
    with pytest.raises(NonFiniteLoss):
        fit(model, lambda model, ids: next_token_loss(model, ids).mean * torch.nan, lambda step: IDS, Recipe(steps=3))
    assert not any(modes(model))


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_open_streams_sample_without_dropout_until_the_last_of_them_ends(order: tuple[int, ...]) -> None:
    """As one reads and closes them in whatever order; the model is back in its modes afterwards, not before."""
    model = gpt()
    before, seen = modes(model), []
    model.stack.blocks[1].register_forward_pre_hook(lambda module, x: seen.append(module.training))
    streams = [stream(model, IDS, max_new_tokens=9) for _ in range(3)]
    for tokens in streams:
        next(tokens)
    for number in order:
        assert not any(modes(model))
        next(streams[number])
        streams[number].close()
    assert modes(model) == before
    assert not any(seen)


@given(spans=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12))
def test_contexts_of_a_model_and_its_parts_may_overlap(spans: list[tuple[int, bool]]) -> None:
    """Against counting by hand: a module is in eval mode while a context of it or of a module above it is open."""
    model = nn.Sequential(nn.Sequential(nn.Dropout(), nn.Dropout().eval()), nn.Dropout())
    parts = [model, model[0], model[0][1], model[1]]
    before, opened = modes(model), []
    for number, first in spans:
        if opened and not first:
            opened.pop(number % len(opened))[1].close()
        else:
            context = ExitStack()
            context.enter_context(evaluating(parts[number]))
            opened.append((parts[number], context))
        held = {module for part, _ in opened for module in part.modules()}
        expected = [own and module not in held for module, own in zip(model.modules(), before, strict=True)]
        assert modes(model) == expected
    for _, context in opened:
        context.close()
    assert modes(model) == before


def test_a_module_that_was_put_into_train_mode_inside_goes_back_to_it_from_a_context_that_began_then() -> None:
    model = nn.Dropout().eval()
    with ExitStack() as outer:
        outer.enter_context(evaluating(model))
        model.train()
        with evaluating(model):
            assert not model.training
        assert not model.training, "the first context still holds it"
    assert model.training


def test_a_context_may_end_while_another_begins() -> None:
    """As garbage collection ends a forgotten stream, whenever it runs."""
    first = nn.Dropout()
    context = ExitStack()
    context.enter_context(evaluating(first))

    class Collected(nn.Module):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "training":
                context.close()

    model = nn.Sequential(Collected(), first)
    with evaluating(model):
        assert modes(model) == [False] * 3
    assert modes(model) == [True] * 3


# ---- what is returned --------------------------------------------------------------------------------------------


def tensors(result: object) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, tuple | list):
        for part in result:
            yield from tensors(part)


RETURNED = {
    **{name: EVALUATIONS[name] for name in ("generate", "stream", "greedy_search", "beam_search", "encode")},
    "weights in translate": (translator, lambda model: [t.weights for t in EVALUATIONS["translate"][1](model)]),
}


@pytest.mark.parametrize(("make", "evaluate"), RETURNED.values(), ids=RETURNED)
def test_a_training_step_takes_what_was_generated(
    make: Callable[[], nn.Module], evaluate: Callable[[Any], object]
) -> None:
    """A tensor of inference mode could neither be changed in place nor be kept for a gradient."""
    found = list(tensors(evaluate(make())))
    assert found
    for tensor in found:
        assert not tensor.is_inference()
        if tensor.is_floating_point():
            scale = torch.ones(1, requires_grad=True)
            (scale * tensor).sum().backward()
        else:
            nn.Embedding(99, 2)(tensor).sum().backward()
        tensor.zero_()


def test_the_steps_of_a_beam_can_be_trained_on() -> None:
    steps: list[Any] = []
    beam_search(translator(), IDS, LENGTHS, max_length=3, on_step=steps.append)
    assert steps
    assert not any(tensor.is_inference() for tensor in tensors(steps))


def test_a_token_changed_by_whoever_reads_the_stream_changes_nothing_else() -> None:
    """The text goes on from what was sampled."""
    model, seen = gpt(), []
    expected = generate(model, IDS, max_new_tokens=5, generator=torch.Generator().manual_seed(0))
    for token in stream(model, IDS, max_new_tokens=5, generator=torch.Generator().manual_seed(0)):
        seen.append(token.clone())
        token.zero_()
    assert torch.equal(torch.cat([IDS, *seen], dim=1), expected)


def test_a_search_leaves_the_logits_of_a_decoder_as_they_are() -> None:
    """A decoder may answer from a table of its own."""
    table = torch.randn(len(IDS), 9)
    expected = table.clone()

    class Table:
        weights = None

        def __init__(self, *arguments: object):
            pass

        def __call__(self, words: Tensor) -> Tensor:
            return table

        def select(self, rows: Tensor) -> None:
            pass

    greedy_search(translator(), IDS, LENGTHS, max_length=3, decoder=Table)
    assert torch.equal(table, expected)
    beam_search(translator(), IDS, LENGTHS, width=1, max_length=3, decoder=Table)
    assert torch.equal(table, expected)


def test_a_tokenizer_is_as_it_was_before_a_sentence_encoder_took_it() -> None:
    tokenizer = Tokenizer(WordLevel({"[PAD]": 0, "a": 1}, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.enable_padding(length=7)
    before = tokenizer.to_str()
    SentenceEncoder(Bert(9, Config(**vars(BERT) | {"d_model": 8, "heads": 2, "d_ff": 8})), tokenizer, max_length=3)
    assert tokenizer.to_str() == before
    assert len(tokenizer.encode("a a a a a").ids) == 7
