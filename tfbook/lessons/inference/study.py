"""Study of lesson 16: what a token of the storyteller costs on this machine, and what each lever changes."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from tfbook.generation.speculative import accept as accept, residual as residual
from tfbook.lessons.inference import exercises
from tfbook.lessons.inference.answers import answer as answer
from tfbook.lessons.inference.claims import CLAIMS as CLAIMS
from tfbook.lessons.inference.grouping import (
    GROUPS as GROUPS,
    converted as converted,
    first_heads as first_heads,
    held_out as held_out,
    loss_on as loss_on,
    pool_heads as pool_heads,
    uptrained as uptrained,
)
from tfbook.lessons.inference.guessing_ahead import (
    LONG as LONG,
    TEMPERATURE,
    Counts as Counts,
    acceptances as acceptances,
    best_gain as best_gain,
    chi_square as chi_square,
    counted_stories as counted_stories,
    gain_table as gain_table,
    gains as gains,
    lever_pairs as lever_pairs,
    race as race,
    rule_counts as rule_counts,
    same_source as same_source,
    second_words as second_words,
    where_they_differ as where_they_differ,
)
from tfbook.lessons.inference.law import (
    critical_batch as critical_batch,
    critical_table as critical_table,
    h100_factor as h100_factor,
    h100_table as h100_table,
    heavier as heavier,
    law_steps as law_steps,
    random_model as random_model,
    rates as rates,
)
from tfbook.lessons.inference.levers import (
    FORMATS as FORMATS,
    Scoreboard as Scoreboard,
    cached_loss as cached_loss,
    far_away as far_away,
    far_table as far_table,
    format_runs as format_runs,
    format_table as format_table,
    in_format as in_format,
    long_runs as long_runs,
    speculation_run as speculation_run,
)
from tfbook.lessons.inference.prices import (
    LLAMA_70B as LLAMA_70B,
    price_questions as price_questions,
    price_table as price_table,
    prices as prices,
)
from tfbook.lessons.inference.racing import (
    race_lanes as race_lanes,
    show_race as show_race,
)
from tfbook.lessons.inference.serving import (
    OPENING as OPENING,
    for_engine as for_engine,
    middle_runs as middle_runs,
    queue_of as queue_of,
    schedule as schedule,
    served as served,
    summaries as summaries,
    tables_after as tables_after,
)
from tfbook.lessons.inference.timing import (
    PAST as PAST,
    compared as compared,
    pushed_out as pushed_out,
    reading as reading,
    rows_in_cache as rows_in_cache,
    seconds as seconds,
    table_of as table_of,
)
from tfbook.models.language_model import LanguageModel
from tfbook.pretrain.storyteller import Storyteller, judge as judge, load_storyteller


def storyteller(name: str = "storyteller") -> Storyteller:
    """The model that ships with tfbook, on the CPU: the lesson asks what one core does."""
    teller = load_storyteller(name)
    return Storyteller(teller.model.cpu(), teller.vocabulary)


best_k = exercises.best_k.reference


@torch.inference_mode()
def after(model: LanguageModel, text: Int64[Tensor, "1 time"]) -> Float[Tensor, " vocab"]:
    """The probabilities of what follows a text, at the lesson's temperature."""
    return (model(text)[0, -1] / TEMPERATURE).softmax(dim=-1)
