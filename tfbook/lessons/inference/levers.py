"""The levers of lesson 16 side by side: weights and caches in fewer bits, and the scoreboard."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from math import nan
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor
from torch.nn import functional as F

from tfbook.course.roofline import H100, Roofline, Work, decode_work, weight_bytes
from tfbook.generation.frozen import Frozen
from tfbook.generation.quantization import quantize, quantized_cache, size_in_bytes
from tfbook.lessons.inference.guessing_ahead import LONG, Gain
from tfbook.lessons.inference.prices import CONTEXT, LLAMA_7B
from tfbook.lessons.inference.timing import PAST, Predicted, compared, reading, seconds
from tfbook.models.gpt import Gpt
from tfbook.models.language_model import LanguageModel
from tfbook.text.vocabulary import PAD

# ---- weights and caches in fewer bits ------------------------------------------------------------------------------

FORMATS = ("float32", "int8, converted first", "int8", "int4, rows, converted first", "int4, groups")


def in_format(model: Gpt, name: str) -> Frozen:
    """The model with its matrices in one of `FORMATS`: with a scale for each row, or for each 32 numbers of it.

    "int8" and "int4, groups" are converted inside the product, the other integers before it.
    """
    if name == "float32":
        return Frozen(model)
    few = quantize(model, int(name[3]), 32 if "groups" in name else None)
    return Frozen(few, torch.bfloat16 if name in ("int8", "int4, groups") else torch.float32)


def bytes_read(frozen: Frozen) -> int:
    """The bytes of the weights that a step reads: all but the embedding, of which it takes one row."""
    return size_in_bytes(frozen) - size_in_bytes(frozen.embed)


def cached_loss(model: LanguageModel, ids: Int64[Tensor, "story time"], *, eight_bits: bool) -> float:
    """Nats per token where each token is read alone, after a cache in 32 or in 8 bits."""
    with torch.inference_mode(), quantized_cache(model) if eight_bits else nullcontext():
        cache = model.new_cache()
        logits = torch.cat([model(ids[:, t : t + 1], cache=cache) for t in range(ids.shape[1] - 1)], dim=1)
    targets = ids[:, 1:]
    counts = targets != PAD
    return float(F.cross_entropy(logits[counts], targets[counts]))


def format_table(
    forms: Mapping[str, Frozen], took: Mapping[str, Mapping[str, float]], losses: Mapping[str, float]
) -> Any:
    """Megabytes, loss added, and the speed by the bytes of the weights and as measured, in a column for each model."""
    import pandas as pd

    rows = {
        "MB": [f"{bytes_read(form) / 1e6:.2f}" for form in forms.values()],
        "loss added": [f"{losses[name] - losses['float32']:+.4f}" for name in forms],
        "by bytes": [f"{bytes_read(forms['float32']) / bytes_read(form):.1f} ×" for form in forms.values()],
    }
    for model, times in took.items():
        rows[f"{model}, measured"] = [f"{times['float32'] / times[name]:.1f} ×" for name in forms]
    return pd.DataFrame(rows, index=[*forms])


# ---- the scoreboard ------------------------------------------------------------------------------------------------


class Scoreboard:
    """The levers in the order in which they are added: what was predicted, what was measured, and what it gave up."""

    def __init__(self) -> None:
        self.runs: list[Predicted] = []
        self.rows: list[tuple[str, float, float, str]] = []

    def add(self, name: str, run: Predicted, base: Predicted, gives_up: str) -> None:
        """A lever, with the plain run that was measured beside it; a name that is there is replaced.

        Other programs may be busier at one time than at another, so its speed is kept relative to the first run's.
        """
        first = self.runs[0].measured if self.runs else base.measured
        placed = run._replace(name=name, measured=first * run.measured / base.measured)
        self.runs = [each for each in self.runs if each.name != name] + [placed]
        self.rows = [row for row in self.rows if row[0] != name]
        self.rows.append((name, run.predicted / base.predicted, run.measured / base.measured, gives_up))

    def points(self, *without: str) -> list[Predicted]:
        """The runs, without some that would lie on others in a figure."""
        return [run for run in self.runs if run.name not in without]

    def table(self) -> Any:
        """The levers as a table."""
        import pandas as pd

        rows = {
            "predicted": [f"{row[1]:.1f} ×" for row in self.rows],
            "measured": [f"{row[2]:.1f} ×" for row in self.rows],
            "what it gives up": [row[3] for row in self.rows],
        }
        return pd.DataFrame(rows, index=[row[0] for row in self.rows])


PROPOSED, ACCEPTED = 4, 0.8  # of speculation on the H100: an assumption


def far_away() -> list[Predicted]:
    """Llama 2 7B on an H100 by arithmetic: each lever alone, and groups with 64 texts. Tokens are those that stay."""
    parameters, cache = LLAMA_7B.parameters, LLAMA_7B.cache(CONTEXT, 2)
    one, flops = LLAMA_7B.step(1), LLAMA_7B.step(1).flops
    works = {
        "one text": (one, 1.0),
        "int8": (Work(flops, parameters + cache), 1.0),
        "int4": (Work(flops, parameters * 0.5625 + cache), 1.0),  # a scale of 2 bytes for each 32 weights
        "64 texts": (LLAMA_7B.step(64), 64.0),
        "and 8 groups": (Work(LLAMA_7B.step(64).flops, 2 * parameters + 16 * cache), 64.0),  # a quarter of 32 heads
        f"guess {PROPOSED}": (LLAMA_7B.step(1, new=PROPOSED + 1), sum(ACCEPTED**i for i in range(PROPOSED + 1))),
    }
    return [Predicted(name, work, count, count / H100.seconds(work), nan) for name, (work, count) in works.items()]


def far_table() -> Any:
    """Milliseconds of a step and tokens per second beside one text, for `far_away`."""
    import pandas as pd

    runs = far_away()
    rows = {
        "tokens per step": [f"{run.tokens:.3g}" for run in runs],
        "ms per step": [f"{1e3 * run.tokens / run.predicted:.1f}" for run in runs],
        "tokens/s": [f"{run.predicted:,.0f}" for run in runs],
        "predicted": [f"{run.predicted / runs[0].predicted:.1f} ×" for run in runs],
    }
    return pd.DataFrame(rows, index=[run.name for run in runs])


def format_runs(
    model: Gpt, forms: Mapping[str, Frozen], took: Mapping[str, float], machine: Roofline
) -> dict[str, Predicted]:
    """Each format's step after `PAST` positions, predicted and measured."""
    work = decode_work(model, PAST)
    cache = work.bytes - weight_bytes(model)
    works = {name: Work(work.flops, bytes_read(form) + cache) for name, form in forms.items()}
    return {name: Predicted(name, each, 1, 1 / machine.seconds(each), 1 / took[name]) for name, each in works.items()}


def long_runs(
    model: Gpt, plain: LanguageModel, forms: Mapping[str, tuple[Gpt, LanguageModel]], machine: Roofline, texts: int = 16
) -> list[Predicted]:
    """One short text of the model, and a step of so many long ones for each form, timed in turns.

    A form is a model, whose work is counted, and the one that runs.
    """
    works = {"one text": (decode_work(model, PAST), 1)}
    steps = {"one text": reading(plain)}
    for name, (each, form) in forms.items():
        works[name] = decode_work(each, LONG, batch=texts), texts
        steps[name] = reading(form, batch=texts, past=LONG)
    return compared(works, seconds(steps, 2, repeats=2), machine)


def speculation_run(gain: Gain, model: Gpt, draft: Gpt, machine: Roofline) -> Predicted:
    """Speculation with a draft model: k steps of the draft and a pass over k + 1 tokens, for the tokens of a round."""
    judging = Work(model.flops(gain.k + 1, past=PAST), decode_work(model, PAST).bytes)
    least = gain.k * machine.seconds(decode_work(draft, PAST)) + machine.seconds(judging)
    return Predicted("speculation", judging, gain.tokens, gain.tokens / least, 1 / gain.guessing)
