"""Models placed on four processes, and on two: what one process would have done, in less memory, by so many bytes."""

import copy
import faulthandler
import json
import os
import pickle
import random
import shutil
import signal
import sys
import zlib
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tfbook import files, pretrain, runtime
from tfbook.models.bert import Bert, MaskedLanguageModel
from tfbook.models.blocks import Config
from tfbook.models.feed_forward import SwiGLU
from tfbook.models.gpt import Gpt
from tfbook.models.tensor_parallel import check_tensor_parallel, split_model
from tfbook.pretrain.options import Options
from tfbook.text.masking import IGNORE_INDEX, Masked
from tfbook.text.windows import Windows
from tfbook.training import (
    CheckpointError,
    DamagedCheckpoint,
    History,
    Loss,
    Recipe,
    distributed,
    fit,
    load_weights,
    loop,
    masked_loss,
    next_token_loss,
)
from tfbook.training.placement import blocks_of, whole_state
from tfbook.training.traffic import Traffic

pytestmark = pytest.mark.usefixtures("float32")

VOCAB, TIME, BATCH = 64, 9, 16
CONFIG = Config(d_model=32, heads=4, d_ff=128, layers=2)
RECIPE = Recipe(steps=10, lr=3e-3, clip=0.5, weight_decay=0.1, checkpoint_every=8)
GRIDS: dict[str, dict[str, Any]] = {
    "replicated": {},
    "sharded": {"shard": True},
    "tensor": {"tensor_parallel": 4},
    "replicated × tensor": {"tensor_parallel": 2},
    "sharded × tensor": {"tensor_parallel": 2, "shard": True},
}


# ---- models and losses -------------------------------------------------------------------------------------------


def ids(number: int) -> Tensor:
    """The share of this row of processes, in which half of the texts end early: no two shares have as many tokens."""
    whole = torch.randint(1, VOCAB, (BATCH, TIME), generator=torch.Generator().manual_seed(number))
    lengths = 3 + torch.arange(BATCH) % 7
    grid = distributed.grid()
    return whole.masked_fill(torch.arange(TIME) >= lengths[:, None], 0)[grid.row :: grid.data]


def filled(model: nn.Module, texts: Tensor) -> Loss:
    """`masked_loss` with every third token masked; it enters the model by its body and by its head."""
    asked = (texts % 3 == 0) & (texts > 0)
    masked = Masked(texts.masked_fill(asked, 1), texts.masked_fill(~asked, IGNORE_INDEX))
    return masked_loss(model, masked, (texts > 0).sum(dim=1))


def two_terms(model: nn.Module, texts: Tensor) -> Loss:
    """Next tokens, and the squares of some embeddings, which are counted for themselves."""
    some = model.embed(texts[texts[:, 4] == 0, 0])
    return next_token_loss(model, texts, pad=0) + Loss(some.square().sum(), len(some))


MODELS: dict[str, Any] = {
    "gpt": lambda: Gpt(VOCAB, CONFIG),
    "swiglu": lambda: Gpt(VOCAB, replace(CONFIG, feed_forward=SwiGLU, position="rotary")),
    "bert": lambda: MaskedLanguageModel(Bert(VOCAB, CONFIG)),
}
next_token = partial(next_token_loss, pad=0)
SHORT = replace(RECIPE, steps=3)
RUNS: dict[str, tuple[str, Any, Recipe]] = {  # model, loss, recipe
    "adamw": ("gpt", next_token, replace(RECIPE, checkpoint_activations=True)),
    "muon": ("gpt", next_token, replace(RECIPE, optimizer="muon")),
    "two terms": ("gpt", two_terms, replace(SHORT, accumulate=2)),
    "swiglu": ("swiglu", next_token, SHORT),
    "by parts": ("bert", filled, SHORT),
}
TINY = {"layers": 1, "heads": 2, "d_model": 8, "context": 8, "batch": 4, "steps": 12, "warmup": 2}
TINY |= {"evaluate_every": 6, "checkpoint_every": 3, "sample": 5, "shard": True}
PAIRS = [  # of grid and run
    *((grid, "adamw") for grid in GRIDS),
    *(("sharded", run) for run in ("two terms", "by parts")),
    *(("sharded × tensor", run) for run in ("muon", "swiglu")),
]
SAVED = [("sharded", "adamw"), ("replicated × tensor", "adamw"), ("sharded × tensor", "muon")]


def train(run: str, checkpoint: Path | None = None, **changed: Any) -> tuple[History, nn.Module]:
    """One of the runs on the grid in use; each process begins with other weights."""
    name, loss, recipe = RUNS[run]
    torch.manual_seed(distributed.rank())
    model = MODELS[name]()
    if distributed.grid().tensor > 1:
        split_model(model, distributed.grid().mesh["tensor"])
    return fit(model, loss, ids, replace(recipe, **changed), checkpoint=checkpoint, evaluate=number_of_logits), model


def number_of_logits(model: nn.Module) -> dict[str, float]:
    """An evaluation that calls the model."""
    lengths = [torch.tensor([3])] if isinstance(model, MaskedLanguageModel) else []
    return {"logits": model(torch.ones(1, 3, dtype=torch.int64), *lengths).numel()}


# ---- what each process does --------------------------------------------------------------------------------------


def held(model: nn.Module) -> int:
    """The bytes of this process's parts of weights, gradients and moments, which are as large as the weights."""
    return sum(16 * weight.to_local().numel() for weight in model.parameters())


def all_pairs(folder: Path) -> dict[str, Any]:
    """All runs on the grids that they are tried on; some leave checkpoints of steps eight and ten."""
    found = {}
    for grid, run in PAIRS:
        with distributed.arranged(**GRIDS[grid]):
            history, model = train(run, folder / f"four {grid} {run}.pt" if (grid, run) in SAVED else None)
            found[f"{grid} {run}"] = history, whole_state(model)
    return found


def measured() -> dict[str, Any]:
    """Bytes that each process holds, and sends in one step, on each grid."""
    found = {}
    for name, grid in GRIDS.items():
        with distributed.arranged(**grid), Traffic() as traffic:
            _, _, recipe = RUNS["adamw"]
            model = MODELS["gpt"]()
            if distributed.grid().tensor > 1:
                split_model(model, distributed.grid().mesh["tensor"])
            fit(model, next_token, ids, replace(recipe, steps=1, checkpoint_activations=False))
        found[name] = distributed.all_gathered((held(model), traffic.total))
    return found


def ahead() -> History:
    """A run whose host does not wait for its device."""
    before, loop.RUNS_AHEAD = loop.RUNS_AHEAD, ("cpu",)
    try:
        with distributed.arranged(**GRIDS["sharded × tensor"]):
            return train("muon")[0]
    finally:
        loop.RUNS_AHEAD = before


def compiled() -> tuple[History, int]:
    """A run that compiles, and the number of graphs that were made."""
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    before, torch.compile = torch.compile, partial(torch.compile, backend=backend)
    try:
        with distributed.arranged(**GRIDS["sharded"]):
            return train("adamw", compile=True, steps=2)[0], len(graphs)
    finally:
        torch.compile = before


def resume_all(folder: Path) -> dict[str, Any]:
    """The ends of runs whose checkpoints four processes, or one, have left; two go on with them."""
    found = {}
    for path in sorted(folder.glob("*.pt")):
        with distributed.arranged(shard="tensor" in path.stem or "one" in path.stem):
            history, model = train(path.stem.split()[-1], path)
            found[path.stem] = history, whole_state(model)
    return found


def be_killed(folder: Path) -> None:
    """A run of two processes, of which the second kills itself at a step, once; and one that nothing happens to."""
    options = Options(**TINY, corpus=str(folder / "text.txt"), out=str(folder / "unbroken"))
    again = os.environ["TORCHELASTIC_RESTART_COUNT"] == "1"
    if not again:
        pretrain.pretrain(options)
    fatal, read = random.SystemRandom().randint(4, options.steps - 1), Windows.__call__

    def fatally(windows: Windows, step: int) -> Tensor:
        if distributed.rank() == 0:
            with (folder / "steps.txt").open("a") as file:
                print(int(again), step, file=file)
        if distributed.rank() == 1 and not again and step == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return read(windows, step)

    Windows.__call__ = fatally
    pretrain.pretrain(replace(options, out=str(folder / "killed")))


def work(task: str, folder: Path) -> None:
    os.environ["TFBOOK_PRECISION"] = "float32"
    faulthandler.dump_traceback_later(250, exit=True)
    with distributed.processes():
        if task == "four":
            found = {"runs": all_pairs(folder), "measured": measured(), "compiled": compiled(), "ahead": ahead()}
        elif os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            found = {"runs": resume_all(folder)}
        if distributed.rank() == 0 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            torch.save(found, folder / f"{task}.found")
        if task == "two":
            be_killed(folder)


# ---- what came of it ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where four processes, and then two, have left what they found."""
    folder = tmp_path_factory.mktemp("placed")
    (folder / "text.txt").write_text("Wer reitet so spät durch Nacht und Wind?\n" * 20, encoding="utf-8")
    distributed.launch(Path(__file__), "four", str(folder), processes=4)
    for path in folder.glob("*.pt"):
        os.replace(files.previous(path), path)
    shutil.copytree(folder, folder / "copied")  # for one process to go on with
    return folder


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """The checkpoints of step eight that four have left, for one test."""
    return shutil.copytree(folder / "copied", tmp_path / "copied")


@pytest.fixture(scope="module")
def four(folder: Path) -> dict[str, Any]:
    return torch.load(folder / "four.found", weights_only=False)


@cache
def alone(run: str) -> tuple[History, dict[str, Tensor]]:
    """What one process does."""
    history, model = train(run)
    return history, copy.deepcopy(model.state_dict())


def assert_same(found: tuple[History, dict[str, Tensor]], run: str) -> None:
    """Losses, norms and weights as of one process."""
    history, weights = alone(run)
    assert found[0].loss == pytest.approx(history.loss, abs=1e-5)
    assert found[0].grad_norm == pytest.approx(history.grad_norm, rel=1e-4)
    torch.manual_seed(0)
    start = MODELS[RUNS[run][0]]().state_dict()
    moves = [(weights[name] - start[name]).abs().max() for name in start]
    assert max(moves) > 5e-3, "what does not move is equal anyway"
    torch.testing.assert_close(found[1], weights, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("grid", "run"), PAIRS)
def test_four_processes_do_what_one_does(four: dict[str, Any], grid: str, run: str) -> None:
    """Though no two have as many tokens: weights after the last step, to 1e-5."""
    assert_same(four["runs"][f"{grid} {run}"], run)
    assert four["runs"][f"{grid} {run}"][0].evaluations[-1]["logits"] == 3 * VOCAB


def test_a_host_that_runs_ahead_and_blocks_that_are_compiled_do_the_same(four: dict[str, Any]) -> None:
    assert four["ahead"].loss == pytest.approx(alone("muon")[0].loss, abs=1e-5)
    history, graphs = four["compiled"]
    assert history.loss == pytest.approx(alone("adamw")[0].loss[:2], abs=1e-5)
    assert graphs >= 1


def counts(grid: str) -> tuple[float, float, int, int]:
    """Parameters of the blocks and of the rest that a row's process has before sharding; rows, and their length."""
    model, d, f = MODELS["gpt"](), CONFIG.d_model, CONFIG.d_ff
    tensor = GRIDS[grid].get("tensor_parallel", 1)
    blocks = sum(block.parameter_count() for block in model.stack.blocks)
    split = CONFIG.layers * (4 * d * d + 3 * d + 2 * d * f + f)  # all but W_O's and down's biases, and norms
    return blocks - split + split / tensor, model.parameter_count() - blocks, 4 // tensor, tensor


@pytest.mark.parametrize("grid", GRIDS)
def test_memory_follows_the_formula(four: dict[str, Any], grid: str) -> None:
    """16 bytes for each parameter (weight, gradient, two moments), over the rows where they share."""
    blocks, rest, rows, _ = counts(grid)
    for held, _ in four["measured"][grid]:
        assert held == 16 * (blocks + rest) / (rows if "sharded" in grid else 1)


@pytest.mark.parametrize("grid", GRIDS)
def test_bytes_sent_follow_the_formula(four: dict[str, Any], grid: str) -> None:
    """Replicated: a sum of gradients. Sharded: blocks are gathered twice, the rest once, and gradients scattered.

    Tensor: four sums of a residual stream per block, two of them in the backward pass.
    """
    blocks, rest, rows, tensor = counts(grid)
    whole = (2 * blocks + rest) + (blocks + rest) if "sharded" in grid else 2 * (blocks + rest)
    stream = BATCH // rows * (TIME - 1) * CONFIG.d_model
    sums = 4 * CONFIG.layers * stream
    expected = 4 * ((rows - 1) / rows * whole + 2 * (tensor - 1) / tensor * sums)
    for _, sent in four["measured"][grid]:
        assert sent == pytest.approx(expected, rel=0.02)


# ---- checkpoints -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("grid", "run"), SAVED)
def test_what_four_have_saved_one_takes_up(copied: Path, grid: str, run: str) -> None:
    """After eight steps of ten: weights, moments, schedule and the place in the data."""
    path = copied / f"four {grid} {run}.pt"
    history, model = train(run, path)
    assert_same((history, model.state_dict()), run)
    assert history.steps == 10
    fresh = MODELS["gpt"]()
    load_weights(path, fresh)
    torch.testing.assert_close(fresh.state_dict(), model.state_dict(), rtol=0, atol=0)


def test_a_part_that_is_damaged_or_missing_is_noticed(copied: Path) -> None:
    """Here no checkpoint before it is there to be taken."""
    path = copied / "four sharded adamw.pt"
    [parts] = {torch.load(path)["parts"]["folder"]}
    part = max(Path(path.parent, parts).glob("*.distcp"))
    content = part.read_bytes()
    for change in (lambda: part.write_bytes(content[:-9] + b"x" + content[-8:]), part.unlink):
        change()
        with pytest.raises(DamagedCheckpoint, match=r"four sharded adamw.pt is damaged \(.*; delete it to start over"):
            load_weights(path, MODELS["gpt"]())
        part.write_bytes(content)
    load_weights(path, MODELS["gpt"]())


def test_a_table_of_contents_runs_no_code(copied: Path) -> None:
    """Though PyTorch's is a pickle."""
    path = copied / "four replicated × tensor adamw.pt"
    record = torch.load(path)
    table = path.with_name(record["parts"]["folder"]) / ".metadata"
    table.write_bytes(pickle.dumps(print))
    record["parts"]["files"][".metadata"] = zlib.crc32(table.read_bytes())
    torch.save(record, path)
    with pytest.raises(CheckpointError, match=r"print is no part of a table of contents"):
        load_weights(path, MODELS["gpt"]())


@pytest.fixture(scope="module")
def two(folder: Path, four: dict[str, Any]) -> dict[str, Any]:
    """What two processes have made of what four, and one, have left; one of them was killed later."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFBOOK_PRECISION", "float32")
        runtime.precision.cache_clear()
        train("muon", folder / "one muon.pt", steps=8)
    printed = distributed.launch(Path(__file__), "two", str(folder), restarts=1)
    return torch.load(folder / "two.found", weights_only=False) | {"printed": printed}


@pytest.mark.parametrize("name", [*(f"four {grid} {run}" for grid, run in SAVED), "one muon"])
def test_what_four_or_one_have_saved_two_take_up(two: dict[str, Any], name: str) -> None:
    """On other grids."""
    assert_same(two["runs"][name], name.split()[-1])


def test_old_parts_are_removed(folder: Path, two: dict[str, Any]) -> None:
    """Those of the newest checkpoint and of the one before are kept."""
    for grid, run in SAVED:
        assert len([*folder.glob(f"four {grid} {run}.pt.parts-*")]) == 2


def test_one_death_costs_the_steps_since_the_last_checkpoint(folder: Path, two: dict[str, Any]) -> None:
    """`torchrun` starts both again, and the run ends as the one that nothing happened to."""
    unbroken, killed = (json.loads((folder / name / "history.json").read_text()) for name in ("unbroken", "killed"))
    assert killed["loss"] == unbroken["loss"]
    assert killed["grad_norm"] == unbroken["grad_norm"]
    steps = [[int(number) for number in line.split()] for line in (folder / "steps.txt").read_text().splitlines()]
    before, after = ([step for again, step in steps if again == number] for number in (0, 1))
    assert after == [*range(after[0], 12)]
    assert before[-1] // 3 * 3 in (after[0], after[0] + 3), "it was killed before or after the first had read"
    weights = [pretrain.load_pretrained(folder / name).model.state_dict() for name in ("unbroken", "killed")]
    torch.testing.assert_close(*weights, rtol=0, atol=0)
    assert "machine: 2 processes, sharded on cpu" in two["printed"]


# ---- what cannot be split ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"heads": 2}, "heads is 2; expected a multiple of tensor_parallel = 4"),
        ({"d_ff": 6}, "d_ff is 6; expected a multiple of tensor_parallel = 4"),
        ({"dropout": 0.1}, r"dropout is 0.1; tensor parallelism supports 0 only"),
        ({"position": "ALiBi"}, "position is ALiBi; tensor parallelism supports those that bias no head's scores"),
        ({"mixer": "Mamba"}, "mixer is a Mamba; tensor parallelism supports MultiHeadAttention only"),
    ],
)
def test_what_cannot_be_split_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_tensor_parallel(Gpt(9, replace(CONFIG, **changed)), 4)


def test_blocks_are_those_of_the_outer_lists() -> None:
    """Each once, and experts in a block are no blocks."""
    inner = nn.ModuleList([nn.Linear(1, 1)])
    block = nn.Sequential(inner)
    model = nn.ModuleDict({"stack": nn.ModuleList([block, block, nn.Linear(1, 2)]), "other": nn.ModuleList([inner[0]])})
    assert blocks_of(model) == [block, model["stack"][2], inner[0]]


def test_a_launch_that_fails_says_what_was_printed() -> None:
    code = "import os, sys; print('rank', os.environ['RANK'], sys.argv[1:]); sys.exit(1)"
    with pytest.raises(RuntimeError, match=r"(?s)the processes failed; they printed.*rank 0 \['ill'\]"):
        distributed.launch(code, "ill", processes=1)
    with pytest.raises(RuntimeError, match=r"the processes took more than 0.1 s"):
        distributed.launch("import time; time.sleep(60)", processes=1, timeout=0.1)


if __name__ == "__main__":
    work(sys.argv[1], Path(sys.argv[2]))
