"""Published figures that lesson 20 plans against: sizes of models, and what training two of them has taken."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tfbook.parallel.planning import H100, V100, Plan


class Size(NamedTuple):
    """A model's parameters, when it was published, and where its name stands in the figure."""

    name: str
    year: float
    parameters: float
    source: str
    active: float = 0.0  # parameters that a token uses, of a mixture of experts; 0: all of them
    offset: tuple[float, float] = (7, 0)
    align: str = "left"


GROWTH = (
    Size("Transformer (big)", 2017.45, 213e6, "arXiv:1706.03762, table 3"),
    Size("GPT", 2018.45, 117e6, "Radford et al. (2018)", offset=(7, -4)),
    Size("BERT large", 2018.78, 340e6, "arXiv:1810.04805"),
    Size("GPT-2", 2019.12, 1.5e9, "Radford et al. (2019)"),
    Size("Megatron-LM", 2019.71, 8.3e9, "arXiv:1909.08053", offset=(-7, 3), align="right"),
    Size("T5", 2019.81, 11e9, "arXiv:1910.10683", offset=(0, 9), align="center"),
    Size("GPT-3", 2020.40, 175e9, "arXiv:2005.14165", offset=(-7, 0), align="right"),
    Size("Gopher", 2021.93, 280e9, "arXiv:2112.11446", offset=(-7, 0), align="right"),
    Size("MT-NLG", 2022.07, 530e9, "arXiv:2201.11990", offset=(-7, 6), align="right"),
    Size("Chinchilla", 2022.24, 70e9, "arXiv:2203.15556"),
    Size("PaLM", 2022.26, 540e9, "arXiv:2204.02311", offset=(7, 6)),
    Size("Llama 2", 2023.54, 70e9, "arXiv:2307.09288"),
    Size("Llama 3.1", 2024.56, 405e9, "arXiv:2407.21783", offset=(-7, 0), align="right"),
    Size("DeepSeek-V3 (37B active)", 2024.98, 671e9, "arXiv:2412.19437", 37e9, offset=(-7, 5), align="right"),
    Size("Kimi K2 (32B active)", 2025.57, 1.04e12, "arXiv:2507.20534", 32e9, offset=(-7, 7), align="right"),
)


class Published(NamedTuple):
    """Published numbers of a run, beside the plan for it; days are None where nobody has said."""

    plan: Plan
    operations: float
    days: float | None
    chip_hours: float
    megawatt_hours: float
    tonnes: float
    source: str
    circular: bool = False  # whether the plan's utilization comes from these very hours


GPT_3 = Published(
    Plan(parameters=174.6e9, tokens=300e9, chips=10_000, chip=V100, utilization=24.6 / 125, carbon=0.429),
    3.14e23,
    14.8,
    3.55e6,
    1287,
    552,
    "Brown et al. (2020), table D.1; Patterson et al. (2021), table 4",
    circular=True,
)
LLAMA_3 = Published(
    Plan(parameters=405e9, tokens=15.6e12, chips=16_384, chip=H100, utilization=0.4, carbon=0.414, overhead=1.0),
    3.8e25,
    None,
    30.84e6,
    30.84e6 * 700 / 1e6,  # the card's hours times its 700 W
    8930,
    "Llama Team (2024), section 3; Llama 3.1's model card",
)
LLAMA_TABLE_4 = {8192: 430, 16_384: 400}  # GPUs and TFLOP/s of each, Llama Team (2024); 380 with texts of 131,072
LLAMA_405B = Plan(  # the same table; its `turns` aren't published: 8 short stages per GPU, of a layer each
    parameters=405e9,
    tokens=15.6e12,
    chips=16_384,
    batch=2**24,
    text=8192,
    kind="ZeRO-2",
    tensor=8,
    pipeline=16,
    microbatches=16,
    turns=8,
)
_WHOLE = replace(LLAMA_405B, kind="ZeRO-3", pipeline=1, microbatches=1, turns=1)
LLAMA_PLANS = {
    "as trained": LLAMA_405B,
    "half the GPUs": replace(LLAMA_405B, chips=8192, microbatches=32),
    "one long stage per GPU": replace(LLAMA_405B, turns=1),
    "no pipeline": _WHOLE,
    "sharding alone": replace(_WHOLE, tensor=1, recompute=True),
    "sharding, each text cut in 8": replace(_WHOLE, tensor=1, text=1024),  # keys and values' traffic isn't counted
}
SHARDING_ALONE = Plan(parameters=30e9, tokens=600e9, chips=1024, batch=1e6, text=2048)  # which yours has to beat
