"""Words that a story determines, and the probability that a model gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from tfbook.data.stories import WORLD, Story, check_story
from tfbook.data.stories.lexicon import NAMES, NOUNS, PLACES
from tfbook.text.vocabulary import Vocabulary

# ---- words that a story determines -----------------------------------------------------------------------------------

KINDS: dict[str, tuple[str, ...]] = {
    "names": NAMES[: WORLD.names],
    "things": tuple(NOUNS[: WORLD.things]),
    "places": tuple(PLACES[: WORLD.places]),
    "pronouns": ("he", "she"),
}


def determined(story: Story) -> dict[str, list[int]]:
    """Positions where a story leaves no choice: every other word of the kind contradicts what came before.

    The checker reads each story up to the end of the event, with each alternative word of that kind in turn.
    """
    found: dict[str, list[int]] = {kind: [] for kind in KINDS}
    for event in story.told:
        words = list(story.words[: event.end])
        for i in range(event.begin, event.end):
            for kind, alike in KINDS.items():
                if words[i] in alike and all(_contradicts(words, i, other) for other in alike):
                    found[kind].append(i)
    return found


def _contradicts(words: Sequence[str], i: int, other: str) -> bool:
    if words[i] == other:
        return True
    verdict = check_story([*words[:i], other, *words[i + 1 :]])
    return bool(verdict.faults or verdict.unread)


@torch.no_grad()
def right_share(
    model: Callable[[Tensor], Tensor],
    ids: Int[Tensor, "batch time"],
    places: Mapping[str, Sequence[tuple[int, int]]],
    vocab: Vocabulary,
) -> dict[str, float]:
    """For each kind, the probability of the right word among all words of its kind, averaged over (row, position).

    A model that knows only that a name must follow gives it about 1 / number of names.
    """
    logp = model(ids).float().log_softmax(dim=-1)
    shares = {}
    for kind, where in places.items():
        rows, columns = torch.tensor(where, device=ids.device).T
        of_kind = logp[rows, columns - 1][:, vocab.encode(KINDS[kind])].log_softmax(dim=-1)
        right = torch.tensor([KINDS[kind].index(vocab.tokens[i]) for i in ids[rows, columns].tolist()])
        shares[kind] = float(of_kind.gather(1, right.to(ids.device)[:, None]).exp().mean())
    return shares
