"""Lesson 20's tables of runs on paper, and the verdict on a plan that has to beat another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from tfbook.lessons.scaling_out.facts import SHARDING_ALONE, Published
from tfbook.parallel.planning import STAGES, Plan

if TYPE_CHECKING:
    from pandas import DataFrame


def against_published(runs: Mapping[str, Published]) -> DataFrame:
    """Operations, days and chip hours as planned and as published, and whether their ratio checks anything."""
    import pandas as pd

    rows = []
    for name, run in runs.items():
        plan = run.plan
        pairs = {
            "operations": (plan.operations, run.operations),
            "days": (plan.days, run.days),
            "million chip hours": (plan.chip_hours / 1e6, run.chip_hours / 1e6),
        }
        for what, (planned, published) in pairs.items():
            ratio = "" if published is None else f"{planned / published:.2f}"
            told = "" if published is None else f"{published:,.3g}"
            circular = what == "operations" or run.circular
            checks = "" if published is None else "no, circular" if circular else "consistency"
            row = {"run": name, "": what, "planned": f"{planned:,.3g}", "published": told, "ratio": ratio}
            rows.append(row | {"a check?": checks})
    return pd.DataFrame(rows).set_index(["run", ""])


def cut_table(plans: Mapping[str, Plan], step_time: Callable[..., float]) -> DataFrame:
    """One line for each plan: copies × tensor × pipeline, memory, the time of a step by `step_time`, days.

    With 32-bit gradients the time is the plan's own, since `step_time` knows one size of a number.
    """
    import pandas as pd

    rows = {}
    for name, plan in plans.items():
        tensor = plan.waits["tensor"]
        sizes = plan.tokens_per_microbatch, plan.tokens_to_hide, plan.microbatches
        # Interleaved, a chip's stages are shorter, and so is the bubble: as of fewer stages.
        stages = 1 + plan.waits["bubble"] * plan.microbatches
        time = step_time(*sizes, stages, tensor, STAGES.index(plan.kind))
        time = (time + plan.recompute / 3) * (1 + plan.waits["no text"])
        rows[name] = {
            "copies × tensor × pipeline": f"{plan.copies:,} × {plan.tensor} × {plan.pipeline}",
            "GB per GPU": round(plan.bytes_per_chip / 1e9, 1),
            "GPUs with a text": f"{plan.reading / plan.copies:.1%}",
            "blocks run": "forward twice" if plan.recompute else "forward once",
            "time of a step": round(time, 2),
            "with 32-bit gradients": round(replace(plan, gradient_bytes=4).slowdown, 2),
            "TFLOP/s": round(plan.utilization * plan.chip.peak / time / 1e12),
            "days": round(plan.days * time, 1),
        }
    return pd.DataFrame(rows).T


def plan_table(plans: Mapping[str, Plan]) -> DataFrame:
    """Plans side by side, line by line."""
    import pandas as pd

    return pd.DataFrame({name: _lines(plan) for name, plan in plans.items()})


def _lines(plan: Plan) -> dict[str, str]:
    waits = ", ".join(f"{name} {share:.2f}" for name, share in plan.waits.items() if share)
    return {
        "copies × tensor × pipeline": f"{plan.copies:,} × {plan.tensor} × {plan.pipeline}",
        "days": f"{plan.days * plan.slowdown:,.1f}",
        "rent": f"${plan.rent:,.0f}",
        "electricity": f"{plan.megawatt_hours:,.1f} MWh, ${plan.power_bill:,.0f}",
        "on each GPU": f"{plan.bytes_per_chip / 1e9:,.1f} GB of {plan.chip.memory / 1e9:.0f}",
        "of it, activations": f"{plan.bytes_by_part['activations'] / 1e9:,.1f} GB",
        "tokens per copy and microbatch": f"{plan.tokens_per_microbatch:,.0f}; hides with {plan.tokens_to_hide:,.0f}",
        "waits, per second of computing": waits or "nothing",
        "as fast as": f"{plan.speedup:,.0f} GPUs that never wait",
    }


@dataclass(frozen=True)
class PlanToBeat:
    """A plan, and the days in which another one of the same run can do it: cuts, ZeRO stage, recomputation are free."""

    plan: Plan
    days: float
    free: ClassVar[tuple[str, ...]] = ("kind", "tensor", "pipeline", "microbatches", "turns", "recompute")

    def check(self, plan: Plan) -> None:
        """Prints the verdict."""
        print(self.judge(plan))

    def judge(self, plan: Plan) -> str:
        """Whether the plan is of the same run, fits, and takes fewer days, in a line."""
        if replace(plan, **{name: getattr(self.plan, name) for name in self.free}) != self.plan:
            return "○ not yet: this is another run; change only " + ", ".join(self.free)
        taken, before = plan.days * plan.slowdown, self.plan.days * self.plan.slowdown
        if not plan.fits:
            return f"○ not yet: {plan.bytes_per_chip / 1e9:,.1f} GB don't fit on a GPU of {plan.chip.memory / 1e9:.0f}"
        if taken >= self.days:
            return (
                f"○ not yet: it fits and takes {taken:.2f} days; fewer than {self.days:g} are possible. "
                f"Most of what is lost: {_largest_loss(plan)}"
            )
        return f"✓ it fits and takes {taken:.2f} days instead of {before:.2f}"


CAUSES = {
    "copies": "sending between copies that doesn't hide: fewer copies have more tokens each",
    "tensor": "the matrices' sums: cut them among fewer GPUs",
    "bubble": "the pipeline's bubble: more microbatches, more turns, or fewer stages",
    "no text": "copies that have fewer texts than the others, or none: make fewer copies",
    "recompute": "running each block twice: without it, is there room now?",
}


def _largest_loss(plan: Plan) -> str:
    """The cause that costs a plan most, in seconds per second of computing, and what helps."""
    lost = plan.waits | {"recompute": plan.recompute / 3}
    cause = max(lost, key=lambda name: lost[name])
    return f"{lost[cause]:.2f} s per second of computing, {CAUSES[cause]}"


beat_sharding = PlanToBeat(SHARDING_ALONE, days=3.3)
