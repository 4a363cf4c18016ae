"""Training where the host runs ahead: what a step that is not finite leaves, and what is sent."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_training import Probe, pairs, texts
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode
from torch.utils._python_dispatch import TorchDispatchMode

from tfbook.training import (
    History,
    Loss,
    LossFunction,
    NonFiniteLoss,
    Recipe,
    distributed,
    fit,
    gradients,
    loop,
    next_token_loss,
    optimizers,
)

pytestmark = pytest.mark.usefixtures("float32")


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
        seen.append(
            (len(history.loss), len(history.seconds), history.evaluations[-1]["seconds"] == history.seconds[-1])
        )

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


# ---- several processes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("device", "backend"), [("cuda", "cpu:gloo,cuda:nccl"), ("cpu", "gloo")])
def test_hosts_agree_without_their_devices(monkeypatch: pytest.MonkeyPatch, device: str, backend: str) -> None:
    """A stop and which weights have gradients are tensors on the CPU, which gloo adds."""
    begun: list[str] = []
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setattr(distributed.runtime, "device", lambda: torch.device(device))
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: None)
    monkeypatch.setattr(distributed.dist, "init_process_group", begun.append)
    monkeypatch.setattr(distributed.dist, "destroy_process_group", lambda: None)
    with distributed.processes():
        assert begun == [backend]


class Named:
    """A mesh whose groups are their names."""

    def get_group(self, name: str) -> str:
        return name


def test_what_processes_add_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes with the same share, of which a device is asked for nothing else."""
    places = []

    def all_reduce(tensor: Tensor, group: str | None = None) -> None:
        places.append(tensor.device.type)
        tensor.mul_(2)

    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(distributed, "grid", lambda: distributed.ProcessGrid(data=2, mesh=Named()))
    monkeypatch.setattr(distributed.dist, "all_reduce", all_reduce)
    assert distributed.total(3) == 6
    assert distributed.mean(0.5) == 0.5
    assert distributed.total(torch.ones(2, device="meta")).device.type == "meta"
    assert places == ["cpu", "cpu", "meta"]


# ---- batches on their way ----------------------------------------------------------------------------------------


class Moves(TorchDispatchMode):
    """Records how tensors are moved to other devices."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket is torch.ops.aten._to_copy:
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


@pytest.mark.parametrize(
    "send",
    [
        lambda x: x.to("meta", None, True),
        lambda x: x.to("meta", non_blocking=True),
        lambda x: x.to(torch.ones(1, device="meta"), True),
    ],
)
def test_a_batch_that_says_how_it_is_sent_is_sent_so(send: Callable[[Tensor], Tensor]) -> None:
    """Pinning would fail here, where there is no CUDA."""
    with Moves() as moves, gradients.Pinned():
        assert send(torch.ones(2)).device.type == "meta"
    assert [move["non_blocking"] for move in moves.found] == [True]


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
        batch = pairs(number)
        sent = gradients._sent(batch, torch.device("cuda"))
        assert all(torch.equal(vars(sent)[name].cpu(), tensor) for name, tensor in vars(batch).items())
