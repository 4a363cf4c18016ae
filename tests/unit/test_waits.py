"""Training where the host runs ahead of the device: what waits, what a step that is not finite leaves, what is sent."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode, _get_current_function_mode
from torch.utils._python_dispatch import TorchDispatchMode

from tfbook.models.bert import Bert, MaskedLanguageModel
from tfbook.models.blocks import Config
from tfbook.models.gpt import Gpt
from tfbook.models.transformer import Decoder, Encoder, Transformer
from tfbook.models.vit import Vit, VitConfig
from tfbook.text import PAD, Batch, Masked
from tfbook.training import (
    History,
    Loss,
    LossFunction,
    NonFiniteLoss,
    Recipe,
    fit,
    gradients,
    loop,
    masked_loss,
    next_token_loss,
    optimizers,
    recipe,
    translation_loss,
)

pytestmark = pytest.mark.usefixtures("float32")


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host runs ahead of the CPU as it does of CUDA, and looks every third step."""
    monkeypatch.setattr(loop, "RUNS_AHEAD", ("cpu",))
    monkeypatch.setattr(loop, "LOOK_EVERY", 3)


# ---- what waits --------------------------------------------------------------------------------------------------

aten = torch.ops.aten
ASKING = {  # their result on the host, or its shape, depends on values
    *(aten._local_scalar_dense, aten.item, aten.is_nonzero, aten.equal, aten.nonzero, aten.masked_select),
    *(aten._unique2, aten.unique_dim, aten.unique_consecutive, aten.repeat_interleave),
}
READING = {Tensor.tolist, Tensor.numpy, Tensor.cpu, Tensor.__array__}  # of which no operator of a CPU tensor tells


class Waits(TorchDispatchMode):
    """Inside, `found` names every operation for which the host of an accelerator would have to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.calls = Calls(self.found)

    def __enter__(self) -> "Waits":
        self.calls.__enter__()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.calls.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operation = func.overloadpacket
        by_mask = operation in (aten.index, aten.index_put, aten.index_put_) and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        )
        home = operation is aten._to_copy and args[0].device.type != "cpu" == torch.device(kwargs.get("device")).type
        if operation in ASKING or by_mask or home:
            self.found.append(str(operation))
        return func(*args, **kwargs)


class Calls(TorchFunctionMode):
    """Inside, `found` names every method that reads all of a tensor."""

    def __init__(self, found: list[str]):
        super().__init__()
        self.found = found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in READING:
            self.found.append(func.__name__)
        return func(*args, **kwargs or {})


@pytest.mark.parametrize(
    "ask",
    [
        Tensor.item,
        Tensor.tolist,
        Tensor.numpy,
        float,
        int,
        bool,
        torch.nonzero,
        torch.unique,
        lambda x: x[x > 0],
        lambda x: x.masked_select(x > 0),
        lambda x: x.repeat_interleave(x.long()),
        lambda x: x.masked_scatter(x > 0, x)[x > 0],
        lambda x: list(range(x.long())),
    ],
)
def test_every_kind_of_wait_is_found(ask: Callable[[Tensor], Any]) -> None:
    """Otherwise the tests below would say nothing."""
    x = torch.ones(1)
    with Waits() as waits:
        ask(x)
    assert waits.found


def test_what_stays_on_the_device_is_no_wait() -> None:
    x = torch.ones(3)
    with Waits() as waits:
        x[1:].add_(torch.where(x > 0, x, 0.0)[x.long()[:2]]).sum().backward if x.requires_grad else x.norm()
    assert waits.found == []


class Probe(nn.Module):
    """Words to words through two blocks that look at no value."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 8)
        self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.dropout = nn.Dropout(0.1)
        self.unembed = nn.Linear(8, 9)
        self.unembed.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = x + self.dropout(block(x).tanh())
        return self.unembed(x)


def texts(number: int) -> Tensor:
    return torch.randint(1, 9, (4, 6), generator=torch.Generator().manual_seed(number))


def pairs(number: int) -> Batch:
    """Sentences of which half end early."""
    ids, lengths = texts(number), torch.tensor([6, 6, 3, 4])
    ids = torch.where(torch.arange(6) < lengths[:, None], ids, PAD)
    return Batch(source=ids, source_lengths=lengths, target_in=ids, target_out=ids, target_lengths=lengths)


def images(number: int) -> Tensor:
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(number))


def two_terms(model: nn.Module, ids: Tensor) -> Loss:
    return next_token_loss(model, ids) + Loss(model.embed.weight.square().sum(), len(ids))


def every_token(model: nn.Module, ids: Tensor) -> Loss:
    logits = model.head(model.bert(ids, ids.new_full((len(ids),), 6)))
    return Loss(F.cross_entropy(logits.flatten(0, 1), ids.flatten(), reduction="sum"), ids.numel())


def masked_tokens(model: nn.Module, ids: Tensor) -> Loss:
    return masked_loss(model, Masked(ids, torch.where(ids > 6, ids, -100)), ids.new_full((len(ids),), 6))


def first_label(model: nn.Module, images: Tensor) -> Loss:
    return Loss(-model(images).log_softmax(dim=-1)[:, 0].sum(), len(images))


SIZES = Config(d_model=8, heads=2, d_ff=12, layers=2, dropout=0.1)
LOOKS_AT_IDS = pytest.mark.xfail(reason="the model's forward looks at its ids", strict=True)
LOOKS_AT_MASKS = pytest.mark.xfail(reason="attention looks whether a row of its mask allows nothing", strict=True)
COUNTS_MASKED = pytest.mark.xfail(reason="how many tokens are masked is not known before the batch is sent", strict=True)
Task = tuple[Callable[[], nn.Module], LossFunction, Callable[[int], Any]]
TASKS = [
    pytest.param((Probe, next_token_loss, texts), id="probe"),
    pytest.param((Probe, partial(next_token_loss, pad=1), texts), id="padding"),
    pytest.param((Probe, two_terms, texts), id="two terms"),
    pytest.param((partial(Gpt, 9, SIZES), next_token_loss, texts), id="GPT", marks=LOOKS_AT_IDS),
    pytest.param(
        (lambda: MaskedLanguageModel(Bert(9, SIZES)), every_token, texts), id="BERT", marks=LOOKS_AT_IDS
    ),
    pytest.param(
        (lambda: MaskedLanguageModel(Bert(9, SIZES)), masked_tokens, texts), id="masked", marks=COUNTS_MASKED
    ),
    pytest.param(
        (lambda: Transformer(Encoder(9, SIZES), Decoder(9, SIZES)), translation_loss, pairs),
        id="encoder-decoder",
        marks=LOOKS_AT_IDS,
    ),
    pytest.param(
        (lambda: Vit(3, VitConfig(d_model=8, heads=2, d_ff=12, height=8, width=8)), first_label, images), id="ViT"
    ),
]


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("task", TASKS)
def test_a_step_waits_for_nothing(task: Task, optimizer: str, accumulate: int) -> None:
    """Seven steps with clipping are looked at after the third, the sixth and the last, and at no other time."""
    build, loss, batches = task
    steps = []

    def numbered(number: int) -> Any:
        steps.append((number, len(waits.found)))
        return batches(number)

    plan = Recipe(steps=7, clip=0.1, weight_decay=0.1, optimizer=optimizer, accumulate=accumulate)
    model = build()
    with Waits() as waits:
        history = fit(model, loss, numbered, plan)
    assert [found for number, found in steps if number % accumulate == 0] == [0, 0, 0, 1, 1, 1, 2]
    assert waits.found == ["tolist"] * 3
    assert len(history.loss) == len(history.grad_norm) == len(history.lr) == len(history.seconds) == 7


@pytest.mark.gpu
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("task", TASKS)
def test_cuda_finds_no_wait_between_looks(task: Task, optimizer: str) -> None:
    """By CUDA's own account, from the second step on: the first fills caches of memory."""
    build, loss, batches = task

    def strict(number: int) -> Any:
        torch.cuda.set_sync_debug_mode("error" if 0 < number < 6 else "default")
        return batches(number)

    try:
        fit(build().cuda(), loss, strict, Recipe(steps=7, clip=0.1, optimizer=optimizer))
    finally:
        torch.cuda.set_sync_debug_mode("default")


# ---- what a run is, looked at or not -----------------------------------------------------------------------------


def trained(optimizer: str, steps: int = 7, loss: LossFunction = next_token_loss) -> tuple[History, nn.Module]:
    torch.manual_seed(1)
    model = Probe()
    plan = Recipe(steps=steps, lr=0.1, clip=0.5, weight_decay=0.1, optimizer=optimizer)
    return fit(model, loss, texts, plan), model


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_is_the_same_however_seldom_it_is_looked_at(monkeypatch: pytest.MonkeyPatch, optimizer: str) -> None:
    expected, watched = trained(optimizer)
    monkeypatch.setattr(loop, "RUNS_AHEAD", ("cpu",))
    found, model = trained(optimizer)
    assert (found.loss, found.grad_norm, found.lr) == (expected.loss, expected.grad_norm, expected.lr)
    torch.testing.assert_close(model.state_dict(), watched.state_dict(), rtol=0, atol=0)


def spoiled_at(number: int, spoil: Callable[[Tensor], Tensor]) -> LossFunction:
    """The loss of the next token, changed for batch `number`."""

    def loss(model: nn.Module, ids: Tensor) -> Loss:
        found = next_token_loss(model, ids)
        found.totals = [spoil(found.totals[0]) if torch.equal(ids, texts(number)) else found.totals[0]]
        return found

    return loss


SPOILT = {
    "the loss is nan": lambda total: total * torch.nan,
    "the loss is inf": lambda total: total * torch.inf,
    "the norm of the gradient is nan": lambda total: total + (0 * total).sqrt(),
}


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("message", SPOILT)
def test_a_run_ends_with_the_weights_of_the_last_good_step(message: str, optimizer: str) -> None:
    """Step 5 is not finite; step 6, after which that is seen, changes nothing any more."""
    loss, read, kept = spoiled_at(4, SPOILT[message]), [], []
    torch.manual_seed(1)
    model = Probe()

    def seen(number: int) -> Tensor:
        read.append(number)
        kept.append(copy.deepcopy(model.state_dict()))
        return texts(number)

    plan = Recipe(steps=9, lr=0.1, clip=0.5, weight_decay=0.1, optimizer=optimizer)
    with pytest.raises(NonFiniteLoss, match=f"{message} at step 5; lower lr") as caught:
        fit(model, loss, seen, plan)
    assert read == [0, 1, 2, 3, 4, 5]
    history, (expected, good) = caught.value.history, trained(optimizer, steps=4)
    assert (history.loss, history.grad_norm, history.lr) == (expected.loss, expected.grad_norm, expected.lr)
    assert len(history.seconds) == 4
    for weights in (kept[4], kept[5], model.state_dict()):
        torch.testing.assert_close(weights, good.state_dict(), rtol=0, atol=0)


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize("kind", ["evaluate", "checkpoint"])
def test_what_is_not_finite_is_neither_evaluated_nor_saved(kind: str, tmp_path: Any) -> None:
    """Step 1 is seen before either, not at the next look after step 3."""
    path, evaluated = tmp_path / "run.pt", []

    def evaluate(model: nn.Module) -> dict[str, float]:
        evaluated.append(1)
        return {}

    every = {"evaluate_every": 2} if kind == "evaluate" else {"checkpoint_every": 2}
    with pytest.raises(NonFiniteLoss, match="at step 1;"):
        fit(
            *(Probe(), spoiled_at(0, SPOILT["the loss is nan"]), texts, Recipe(steps=9, **every)),
            evaluate=evaluate,
            checkpoint=path,
        )
    assert not evaluated
    assert not path.exists()


@pytest.mark.usefixtures("ahead")
def test_an_evaluation_sees_the_history_of_all_steps() -> None:
    seen = []

    def report(history: History) -> None:
        seen.append((len(history.loss), len(history.seconds), history.evaluations[-1]["seconds"] == history.seconds[-1]))

    fit(Probe(), next_token_loss, texts, Recipe(steps=5, evaluate_every=2), evaluate=lambda model: {}, report=report)
    assert seen == [(2, 2, True), (4, 4, True), (5, 5, True)]


# ---- steps that are skipped --------------------------------------------------------------------------------------


def step(optimizer: Any, model: nn.Module, number: int, factor: float = 1.0) -> None:
    optimizer.zero_grad()
    (next_token_loss(model, texts(number)).mean * factor).backward()
    optimizer.step()


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_skipped_step_changes_neither_weights_nor_state(kind: str) -> None:
    """Whatever its gradient, and the steps after it are those of a run that never met it."""
    torch.manual_seed(1)
    model = Probe().eval()
    twin, plan = copy.deepcopy(model), Recipe(steps=1, lr=0.1, weight_decay=0.1, optimizer=kind)
    optimizer, other = loop._optimizer(model, plan), loop._optimizer(twin, plan)
    skips = optimizers.skippable(optimizer, torch.device("cpu"))
    assert skips == 0
    for number in range(2):
        step(optimizer, model, number)
        step(other, twin, number)
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    skips.fill_(1)
    for number, factor in enumerate((torch.nan, torch.inf, 1.0), 2):
        step(optimizer, model, number, factor)
        torch.testing.assert_close((model.state_dict(), optimizer.state_dict()), before, rtol=0, atol=0)
    skips.fill_(0)
    step(optimizer, model, 5)
    step(other, twin, 5)
    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=0, atol=0)
    assert not torch.equal(model.blocks[0].weight, before[0]["blocks.0.weight"])


# ---- batches on their way ----------------------------------------------------------------------------------------


class Moves(TorchDispatchMode):
    """Records how tensors are moved to other devices."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket is aten._to_copy:
            self.found.append(kwargs)
        return func(*args, **kwargs or {})


def test_every_tensor_of_a_batch_is_sent_from_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the batch's own `to` does, and without waiting."""
    pinned = []

    def pin(tensor: Tensor) -> Tensor:
        pinned.append(tensor)
        return tensor.clone()

    monkeypatch.setattr(Tensor, "pin_memory", pin)
    batch = pairs(0)
    with Moves() as moves, gradients.Pinned():
        sent = batch.to("meta")
    assert sent.source.device.type == "meta"
    assert [tensor is other for tensor, other in zip(pinned, vars(batch).values(), strict=True)] == [True] * 5
    assert [(move["device"].type, move["non_blocking"]) for move in moves.found] == [("meta", True)] * 5


def test_what_is_pinned_or_on_a_device_is_sent_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who pins a tensor may fill it again: it is read before the host goes on."""
    monkeypatch.setattr(Tensor, "is_pinned", lambda tensor: True)
    with Moves() as moves, gradients.Pinned():
        torch.ones(2).to("meta")
        torch.ones(2, device="meta").to(torch.float64)
    assert [move.get("non_blocking", False) for move in moves.found] == [False, False]


class Asked:
    """A batch that tells which mode it is sent in."""

    def to(self, device: torch.device) -> Any:
        return _get_current_function_mode()


@pytest.mark.parametrize(("device", "mode"), [("cuda", gradients.Pinned), ("cpu", type(None)), ("mps", type(None))])
def test_batches_are_pinned_for_cuda_alone(device: str, mode: type) -> None:
    assert isinstance(gradients._sent(Asked(), torch.device(device)), mode)


@pytest.mark.gpu
def test_a_batch_arrives_whole_on_cuda() -> None:
    for number in range(20):
        for tensor, sent in zip(
            vars(pairs(number)).values(), vars(gradients._sent(pairs(number), torch.device("cuda"))).values(), strict=True
        ):
            assert torch.equal(tensor, sent.cpu())


# ---- compiling ---------------------------------------------------------------------------------------------------


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was compiled: traced as everywhere, but run without a compiler of C++."""
    found, compile_with = [], torch.compile

    def trace(function: Any) -> Any:
        found.append(function)
        return compile_with(function, backend="aot_eager")

    monkeypatch.setattr(torch, "compile", trace)
    return found


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("loss", [next_token_loss, partial(next_token_loss, pad=1), two_terms], ids=["one", "pad", "two"])
def test_a_compiled_run_is_the_plain_one(compiled: list[Any], loss: LossFunction, accumulate: int) -> None:
    """The loss function is compiled; what is evaluated, saved and returned is the model as it was given."""
    compiling, runs = [], []

    def watched(model: nn.Module, ids: Tensor) -> Loss:
        compiling.append(torch.compiler.is_compiling())
        return loss(model, ids)

    def evaluate(model: nn.Module) -> dict[str, float]:
        return {"nats": float(watched(model, texts(9)).mean)}

    for chosen in (False, True):
        torch.manual_seed(0)
        model = Probe()
        model.dropout.p = 0.0
        plan = Recipe(steps=3, lr=0.1, accumulate=accumulate, evaluate_every=3, compile=chosen)
        runs.append((fit(model, loss, texts, plan, evaluate=evaluate), model))
    assert compiled == [loss]
    assert compiling == [False, False]
    (expected, plain), (found, model) = runs
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)
    assert found.curve("nats")[1] == pytest.approx(expected.curve("nats")[1], rel=1e-5)
    assert type(model) is Probe
    torch.testing.assert_close(model.state_dict(), plain.state_dict(), rtol=0, atol=1e-5)
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("compile", "device", "weights", "steps", "expected"),
    [
        (None, "cuda", recipe.COMPILED_WEIGHTS, recipe.COMPILED_STEPS, True),
        (None, "cuda", recipe.COMPILED_WEIGHTS - 1, recipe.COMPILED_STEPS, False),
        (None, "cuda", recipe.COMPILED_WEIGHTS, recipe.COMPILED_STEPS - 1, False),
        (None, "cpu", recipe.COMPILED_WEIGHTS, recipe.COMPILED_STEPS, False),
        (True, "cpu", 1, 1, True),
        (False, "cuda", recipe.COMPILED_WEIGHTS, recipe.COMPILED_STEPS, False),
    ],
)
def test_large_models_are_compiled_on_cuda_where_it_pays(
    compile: bool | None, device: str, weights: int, steps: int, expected: bool
) -> None:
    """A model that exists on paper alone."""
    with torch._subclasses.FakeTensorMode():
        model = nn.ParameterList([torch.empty(weights, device=device)])
    assert Recipe(steps=steps, compile=compile).compiles(model, steps) is expected


@pytest.mark.gpu
def test_a_compiled_run_on_cuda_saves_what_an_uncompiled_one_goes_on_from(tmp_path: Any) -> None:
    path = tmp_path / "run.pt"
    for steps, chosen in ((3, True), (6, False)):
        fit(Probe().cuda(), next_token_loss, texts, Recipe(steps=steps, compile=chosen), checkpoint=path)
    assert all(name in Probe().state_dict() for name in torch.load(path)["model"])
