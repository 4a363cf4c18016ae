"""What a step of training waits for, where the host runs ahead of the device: nothing."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from small_training import Probe, pairs, texts, two_terms
from torch import Tensor, nn
from torch.nn import functional as F
from waiting import Waits

from tfbook.models.bert import Bert, BertForPretraining, MaskedLanguageModel
from tfbook.models.bert_variants import Electra
from tfbook.models.blocks import Config
from tfbook.models.gpt import Gpt
from tfbook.models.transformer import Decoder, Encoder, Transformer
from tfbook.models.vit import Vit, VitConfig
from tfbook.text import IGNORE_INDEX, Answers, Masked
from tfbook.training import (
    Loss,
    LossFunction,
    PpoRecipe,
    Recipe,
    Rollout,
    answer_loss,
    bradley_terry_loss,
    distillation_loss,
    dpo_loss,
    electra_loss,
    fit,
    hard_distillation,
    masked_loss,
    next_token_loss,
    ppo_loss,
    ppo_update,
    pretraining_loss,
    soft_distillation,
    translation_loss,
)

pytestmark = pytest.mark.usefixtures("float32")


# ---- what waits --------------------------------------------------------------------------------------------------


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
        lambda x: torch.multinomial(x, 1),
        lambda x: x[x > 0],
        lambda x: x.masked_select(x > 0),
        lambda x: x.repeat_interleave(x.long()),
        lambda x: x.masked_scatter(x > 0, x)[x > 0],
        lambda x: list(range(x.long())),
        lambda x: torch.where(x > 0, x, 0.0),
        lambda x: torch.where(x > 0, 0, x),
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
        x[1:].add_(torch.where(x > 0, x, -x)[x.long()[:2]].masked_fill(x[1:] > 0, 0.0)).norm().clamp(min=1)
    assert waits.found == []


def images(number: int) -> Tensor:
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(number))


def every_token(model: nn.Module, ids: Tensor) -> Loss:
    logits = model.head(model.bert(ids, ids.new_full((len(ids),), 6)))
    return Loss(F.cross_entropy(logits.flatten(0, 1), ids.flatten(), reduction="sum"), ids.numel())


def masked(ids: Tensor) -> tuple[Masked, Tensor]:
    """Where the ids are above 6, another number for each batch; and the lengths."""
    return Masked(ids, ids.masked_fill(ids <= 6, IGNORE_INDEX)), ids.new_full((len(ids),), 6)


def masked_tokens(model: nn.Module, ids: Tensor) -> Loss:
    return masked_loss(model, *masked(ids))


def masked_pairs(model: nn.Module, ids: Tensor) -> Loss:
    return pretraining_loss(model, *masked(ids), torch.zeros_like(ids), ids[:, 0] % 2)


def replaced_tokens(model: nn.Module, ids: Tensor) -> Loss:
    return electra_loss(model, *masked(ids))


def first_label(model: nn.Module, images: Tensor) -> Loss:
    return Loss(-model(images).log_softmax(dim=-1)[:, 0].sum(), len(images))


SIZES = Config(d_model=8, heads=2, d_ff=12, layers=2, dropout=0.1)
Task = tuple[Callable[[], nn.Module], LossFunction, Callable[[int], Any]]
TASKS = [
    pytest.param((Probe, next_token_loss, texts), id="probe"),
    pytest.param((Probe, partial(next_token_loss, pad=1), texts), id="padding"),
    pytest.param((Probe, two_terms, texts), id="two terms"),
    pytest.param((partial(Gpt, 9, SIZES), next_token_loss, texts), id="GPT"),
    pytest.param((lambda: MaskedLanguageModel(Bert(9, SIZES)), every_token, texts), id="BERT"),
    pytest.param((lambda: MaskedLanguageModel(Bert(9, SIZES)), masked_tokens, texts), id="masked"),
    pytest.param((lambda: BertForPretraining(Bert(9, SIZES)), masked_pairs, texts), id="masked pairs"),
    pytest.param(
        (lambda: Electra(MaskedLanguageModel(Bert(9, SIZES)), Bert(9, SIZES)), replaced_tokens, texts), id="ELECTRA"
    ),
    pytest.param(
        (lambda: Transformer(Encoder(9, SIZES), Decoder(9, SIZES)), translation_loss, pairs),
        id="encoder-decoder",
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
    """Seven steps with clipping are looked at after the third, the sixth and the last, and at no other time.

    But for the ids and lengths of the first step's batches, which models check.
    """
    build, loss, batches = task
    steps = []

    def numbered(number: int) -> Any:
        steps.append((number, len(waits.found)))
        return batches(number)

    plan = Recipe(steps=7, clip=0.1, weight_decay=0.1, optimizer=optimizer, accumulate=accumulate)
    model = build()
    with Waits() as waits:
        history = fit(model, loss, numbered, plan)
    before_each = [found for number, found in steps if number % accumulate == 0]
    assert before_each[0] == 0
    assert [found - before_each[1] for found in before_each[1:]] == [0, 0, 1, 1, 1, 2]
    assert waits.found[before_each[1] :] == ["tolist"] * 3
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


def answers() -> Answers:
    return Answers(texts(0), torch.arange(6) > torch.tensor([[1], [2], [3], [0]]))


def rollout() -> Rollout:
    return Rollout(answers(), *torch.randn(4, 4, 5))


class Critic(Probe):
    """A value at each word."""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids)[..., 0]


LABELS = torch.tensor([0, 2])
OTHER_LOSSES: dict[str, Callable[[Tensor], Loss]] = {
    "distillation": lambda x: distillation_loss(x[0], x[1]),
    "soft distillation": lambda x: soft_distillation((x[0], x[1]), LABELS, x[2]),
    "hard distillation": lambda x: hard_distillation((x[0], x[1]), LABELS, x[2]),
    "Bradley–Terry": lambda x: bradley_terry_loss(*x[:2, 0]),
    "DPO": lambda x: dpo_loss(*x[:, 0], x[0, 1], beta=0.1),
    "answers": lambda x: answer_loss(Probe(), answers()),
    "PPO": lambda x: ppo_loss(Probe(), Critic(), rollout(), PpoRecipe()),
}


@pytest.mark.parametrize("name", OTHER_LOSSES)
def test_no_other_loss_waits(name: str) -> None:
    logits = torch.randn(3, 2, 5, requires_grad=True)
    with Waits() as waits:
        OTHER_LOSSES[name](logits).mean.backward()
    assert waits.found == []


def test_ppo_looks_at_its_losses_after_the_last_step() -> None:
    policy, critic = Probe(), Critic()
    optimizer = torch.optim.AdamW([*policy.parameters(), *critic.parameters()], fused=True)
    at_steps: list[int] = []
    optimizer.register_step_pre_hook(lambda *_: at_steps.append(len(waits.found)))
    with Waits() as waits:
        losses = ppo_update(policy, critic, optimizer, rollout(), PpoRecipe(epochs=2, minibatch=2))
    assert at_steps == [0] * 4
    assert len(waits.found) == len(losses) == 4
