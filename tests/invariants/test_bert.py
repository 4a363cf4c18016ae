"""Every model of BERT's family has every property, and each property fails for one that lacks it."""

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.attention import POSITIONS
from tfbook.course.invariants import TOLERANCE, idle_key_biases, missing_gradients, padding_effect, round_trip_gap
from tfbook.models.bert import BERT, Bert, BertForPretraining, Classifier, MaskedLanguageModel, Tagger
from tfbook.models.bert_variants import Albert, Electra, student_of
from tfbook.text import BERT_SPECIALS, IGNORE_INDEX, Masked, Masking, mask_tokens
from tfbook.training import electra_loss, masked_loss, pretraining_loss

VOCAB, LABELS = 30, 3
SIZES = replace(BERT, d_model=16, heads=2, d_ff=24, layers=3, max_length=10)
LENGTHS = torch.tensor([8, 5, 1, 6])
IDS = torch.randint(len(BERT_SPECIALS), VOCAB, (4, 8), generator=torch.Generator().manual_seed(0))
SEGMENTS = (torch.arange(8) >= LENGTHS[:, None] // 2).long()
MASKED = mask_tokens(IDS, VOCAB, Masking(rate=0.5), generator=torch.Generator().manual_seed(1))


def albert(vocab: int = VOCAB) -> Albert:
    return Albert(vocab, SIZES, d_embed=6)


def masked(model: nn.Module) -> Tensor:
    return masked_loss(model, MASKED, LENGTHS, SEGMENTS).mean


def both(model: nn.Module) -> Tensor:
    return pretraining_loss(model, MASKED, LENGTHS, SEGMENTS, torch.tensor([0, 1, 1, 0])).mean


def labelled(model: nn.Module) -> Tensor:
    """Of texts or of tokens."""
    logits = model(IDS, LENGTHS, SEGMENTS).flatten(0, -2)
    return F.cross_entropy(logits.float(), torch.arange(len(logits)) % LABELS)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], Tensor]]] = {
    "masked": (lambda: MaskedLanguageModel(Bert(VOCAB, SIZES)), masked),
    "pretrained": (lambda: BertForPretraining(Bert(VOCAB, SIZES)), both),
    "classifier": (lambda: Classifier(Bert(VOCAB, SIZES), LABELS), labelled),
    "tagger": (lambda: Tagger(Bert(VOCAB, SIZES), LABELS), labelled),
    "ALBERT": (lambda: MaskedLanguageModel(albert()), masked),
    "ALBERT, pretrained": (lambda: BertForPretraining(albert()), both),
    "ALBERT, classifier": (lambda: Classifier(albert(), LABELS), labelled),
    "student": (lambda: BertForPretraining(student_of(Bert(VOCAB, SIZES), 2)), both),
    "rotary": (lambda: Tagger(Bert(VOCAB, replace(SIZES, position=POSITIONS["rotary"])), LABELS), labelled),
    "student of ALBERT": (lambda: Tagger(student_of(albert(), 2), LABELS), labelled),
}
every_model = pytest.mark.parametrize(("build", "loss"), MODELS.values(), ids=MODELS)
Build, Loss = Callable[[], nn.Module], Callable[[nn.Module], Tensor]


def drawn(model: nn.Module) -> nn.Module:
    """With weights large enough that what a model says depends on what it reads."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return model


def electra() -> Electra:
    """Generator and discriminator of different depth."""
    generator = MaskedLanguageModel(Bert(VOCAB, replace(SIZES, layers=1)))
    return drawn(Electra(generator, Bert(VOCAB, SIZES)))


# ---- every model -------------------------------------------------------------------------------------------------


@every_model
@torch.no_grad()
def test_padding_changes_nothing(build: Build, loss: Loss) -> None:
    """A text says the same alone as beside longer ones, whatever stands in the padding."""
    model = drawn(build()).eval()
    assert padding_effect(lambda ids, lengths: model(ids, lengths), IDS, LENGTHS) < TOLERANCE
    other = torch.where(torch.arange(8) < LENGTHS[:, None], IDS, (IDS + 1) % VOCAB)
    there = torch.arange(8) < LENGTHS[:, None]
    said = [model(ids, LENGTHS, SEGMENTS) for ids in (IDS, other)]
    said = [x[there] if x.ndim == 3 else x for x in said]
    assert torch.equal(*said)


@every_model
def test_a_saved_model_computes_the_same(build: Build, loss: Loss) -> None:
    model = drawn(build()).eval()
    assert round_trip_gap(model, lambda m: m(IDS, LENGTHS, SEGMENTS)) == 0


@every_model
def test_every_weight_gets_a_finite_gradient(build: Build, loss: Loss, precision: str) -> None:
    """In training, with dropout, in each precision; the bias of the keys alone may have none."""
    model = drawn(build())
    assert missing_gradients(model, loss, idle_key_biases(model)) == 0


@every_model
@torch.no_grad()
def test_training_differs_from_evaluation_by_dropout_alone(build: Build, loss: Loss) -> None:
    """With dropout at 0, both modes say the same; otherwise training draws and evaluation does not."""
    model = drawn(build())
    said = [model.train(training)(IDS, LENGTHS, SEGMENTS) for training in (True, True, False, False)]
    assert not torch.isclose(said[0], said[1]).all()
    assert torch.equal(said[2], said[3])
    for module in model.modules():
        if isinstance(getattr(module, "dropout", None), float):  # attention's is a number
            module.dropout = 0.0
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    without = model.train()(IDS, LENGTHS, SEGMENTS)
    torch.testing.assert_close(without, said[2])


def step(model: nn.Module, loss: Loss) -> None:
    """One step of training on all parameters."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    loss(model).backward()
    optimizer.step()


def tables(model: nn.Module) -> list[Tensor]:
    """The table of words wherever it is used."""
    if isinstance(model, Electra):
        return [*tables(model.generator), model.discriminator.bert.embed.weight]
    return [model.bert.embed.weight, model.head.unembed.weight]


TIED = {name: MODELS[name] for name in ("masked", "pretrained", "ALBERT", "ALBERT, pretrained", "student")}
TIED["ELECTRA"] = electra, lambda model: electra_loss(model, MASKED, LENGTHS).mean
LEAVES: dict[str, Callable[[nn.Module, Loss], nn.Module]] = {
    "a step": lambda model, loss: [step(model, loss), model][1],
    "a copy": lambda model, loss: copy.deepcopy(model),
    "another precision": lambda model, loss: model.double(),
    "loading": lambda model, loss: [model.load_state_dict(copy.deepcopy(model.state_dict())), model][1],
}


@pytest.mark.parametrize(("build", "loss"), TIED.values(), ids=TIED)
@pytest.mark.parametrize("after", LEAVES.values(), ids=LEAVES)
def test_a_tied_table_stays_one_table(build: Build, loss: Loss, after: Callable[..., nn.Module]) -> None:
    """In memory, and not by coincidence of numbers."""
    model = build()
    before = tables(model)[0].detach().clone()
    model = after(model, loss)
    first, *others = tables(model)
    assert all(other is first for other in others)
    assert torch.equal(first.double(), before.double()) == (after is not LEAVES["a step"])


@pytest.mark.parametrize("name", [name for name in MODELS if "ALBERT" in name])
@pytest.mark.parametrize("after", LEAVES.values(), ids=LEAVES)
def test_a_shared_block_stays_one_block(name: str, after: Callable[..., nn.Module]) -> None:
    """All uses of it are the same object, and its weights are counted once."""
    build, loss = MODELS[name]
    model = build()
    weights = len(list(model.parameters()))
    model = after(model, loss)
    first, *others = model.bert.stack.blocks
    assert others
    assert all(block is first for block in others)
    assert len(list(model.parameters())) == weights


def test_electra_has_the_properties_of_its_parts(precision: str) -> None:
    """Both trained at once: a finite gradient for every weight, the same numbers from a saved copy."""
    model = electra()
    idle = idle_key_biases(model)
    assert missing_gradients(model, lambda m: electra_loss(m, MASKED, LENGTHS).mean, idle) == 0
    model.eval()
    assert round_trip_gap(model, lambda m: m.discriminator(IDS, LENGTHS) + m.generator(IDS, LENGTHS)) == 0


@every_model
def test_in_autocast_the_loss_is_float32_and_near(build: Build, loss: Loss) -> None:
    """Whatever the matrices are multiplied in; bfloat16 keeps two to three digits."""
    model = drawn(build()).eval()
    exact = loss(model)
    with torch.autocast("cpu", torch.bfloat16):
        rough = loss(model)
    assert rough.dtype == torch.float32
    assert float(rough.detach()) == pytest.approx(float(exact.detach()), rel=0.05)


# ---- models that run, train and are wrong ------------------------------------------------------------------------


class WithoutMask(Bert):
    """Reads the padding."""

    def forward(self, ids: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        return super().forward(ids, torch.full_like(lengths, ids.shape[1]), segments)


class LastWord(Classifier):
    """Takes the vector of the last position for that of the text."""

    def forward(self, ids: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        return self.head(self.bert(ids, lengths, segments).flip(1))


class Untold(Bert):
    """A scale that is trained and not registered."""

    def __init__(self) -> None:
        super().__init__(VOCAB, SIZES)
        self.scale = [torch.tensor(2.0)]

    def forward(self, ids: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        return self.scale[0] * super().forward(ids, lengths, segments)


@pytest.mark.parametrize(
    "build",
    [lambda: Tagger(WithoutMask(VOCAB, SIZES), 3), lambda: LastWord(Bert(VOCAB, SIZES), 3)],
    ids=["mask", "last"],
)
def test_a_model_that_reads_the_padding_is_found(build: Build) -> None:
    model = drawn(build()).eval()
    assert padding_effect(lambda ids, lengths: model(ids, lengths), IDS, LENGTHS) > 0.1


def test_a_number_outside_the_state_dict_is_found() -> None:
    model = drawn(Tagger(Untold(), 3)).eval()
    assert round_trip_gap(model, lambda m: m(IDS, LENGTHS)) > 0.1


def test_a_loss_that_is_0_over_0_is_found(precision: str) -> None:
    """The mean over no hidden word, as cross-entropy itself takes it."""
    model = MaskedLanguageModel(Bert(VOCAB, SIZES))
    nothing = Masked(IDS, torch.full_like(IDS, IGNORE_INDEX))

    def naive(model: nn.Module) -> Tensor:
        return F.cross_entropy(model(nothing.ids, LENGTHS).flatten(0, 1).float(), nothing.targets.flatten())

    assert missing_gradients(model, naive) == 1
    everything = {name for name, _ in model.named_parameters()}
    assert missing_gradients(model, lambda m: masked_loss(m, nothing, LENGTHS).mean, everything) < 1
