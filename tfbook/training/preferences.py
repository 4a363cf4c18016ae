"""Learning from preferences: demonstrations, a reward learned from pairs, and pairs without a reward (DPO).

Shapes: batch (texts, or pairs of them), time, next (the time − 1 tokens that have one before them), vocab.
"""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tfbook.text.answers import Answers
from tfbook.training.losses import Loss

# ---- log-probabilities of texts ----------------------------------------------------------------------------------


def token_log_probs(
    logits: Float[Tensor, "batch next vocab"], tokens: Int[Tensor, "batch next"]
) -> Float[Tensor, "batch next"]:
    """log p(token) of each of these tokens, in nats, from the logits at the token before it."""
    return -F.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten().long(), reduction="none").view(tokens.shape)


def log_probs(model: nn.Module, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch next"]:
    """log p(id_t | ids before t) of each id but the first, in nats; the gradient reaches the model."""
    return token_log_probs(model(ids[:, :-1]), ids[:, 1:])


def answer_log_probs(model: nn.Module, answers: Answers) -> Float[Tensor, " batch"]:
    """log p(answer | prompt) = Σ_t log p(token_t | before) over the answer's tokens, in nats."""
    return log_probs(model, answers.ids).masked_fill(~answers.answered[:, 1:], 0.0).sum(dim=1)


def answer_loss(model: nn.Module, answers: Answers) -> Loss:
    """Supervised fine-tuning: −log p of the answers' tokens, in nats; counts these, excluding the prompts.

    (Ouyang et al., 2022, section 3.5.)
    """
    return Loss(-answer_log_probs(model, answers).sum(), answers.answered[:, 1:].sum())


# ---- pairs -------------------------------------------------------------------------------------------------------


def bradley_terry_loss(chosen: Float[Tensor, " batch"], rejected: Float[Tensor, " batch"]) -> Loss:
    """−log σ(r_chosen − r_rejected) of the rewards of each pair, in nats; counts pairs.

    σ of the difference is the probability that the first is preferred (Bradley & Terry, 1952), so this is its
    cross-entropy (Ouyang et al., 2022, eq. 1). A constant added to all rewards changes nothing.
    """
    return Loss(-F.logsigmoid(chosen.float() - rejected.float()).sum(), len(chosen))


def dpo_loss(
    chosen: Float[Tensor, " batch"],
    rejected: Float[Tensor, " batch"],
    reference_chosen: Float[Tensor, " batch"],
    reference_rejected: Float[Tensor, " batch"],
    *,
    beta: float,
) -> Loss:
    """−log σ(β (log π/π_ref(chosen) − log π/π_ref(rejected))) of each pair, in nats; counts pairs.

    The arguments are `answer_log_probs` under the model π and under the frozen reference. The loss is
    `bradley_terry_loss` of the rewards that the model implies, β log π/π_ref (Rafailov et al., 2023, eq. 7). Raises
    ValueError unless β > 0.
    """
    return bradley_terry_loss(
        implied_rewards(chosen, reference_chosen, beta=beta), implied_rewards(rejected, reference_rejected, beta=beta)
    )


def implied_rewards(
    log_probs: Float[Tensor, " batch"], reference: Float[Tensor, " batch"], *, beta: float
) -> Float[Tensor, " batch"]:
    """β log π(answer)/π_ref(answer): the reward, up to a constant of the prompt, for which π is optimal.

    (Rafailov et al., 2023, eq. 5.) Raises ValueError unless β > 0.
    """
    if not beta > 0:
        raise ValueError(f"beta is {beta}; expected more than 0")
    return beta * (log_probs - reference)
