"""A pretraining run: its folder, its progress, and the model that it produces.

Shapes: time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

from tfbook import files, runtime, training
from tfbook.attention.positions import Learned
from tfbook.generation import sampling
from tfbook.models import gpt
from tfbook.pretrain.corpus import (
    Corpus,
    TextVocabulary,
    byte_counts,
    load_text,
    read_corpus,
    read_vocabulary,
    write_corpus,
)
from tfbook.pretrain.measure import evaluation_windows, matmul_peak, score
from tfbook.pretrain.options import Options
from tfbook.text.windows import Windows
from tfbook.training import checkpoints, distributed
from tfbook.training.checkpoints import History
from tfbook.training.losses import next_token_loss

MAY_CHANGE = {"steps", "evaluate_every", "checkpoint_every", "sample", "out"}  # when a run is resumed


class Pretrained(NamedTuple):
    """A model and its vocabulary."""

    model: gpt.Gpt
    vocabulary: TextVocabulary


# ---- the folder of a run -----------------------------------------------------------------------------------------


def load_pretrained(folder: str | Path) -> Pretrained:
    """The model of a run's newest intact checkpoint, in eval mode, for `sampling.generate`.

    Raises FileNotFoundError when there is none, and CheckpointError or ValueError when a file is damaged.
    """
    options, vocabulary = read_options(folder), read_vocabulary(folder)
    model = gpt.Gpt(len(vocabulary), options.config).to(runtime.device())
    checkpoints.load_weights(_checkpoint(folder), model)
    return Pretrained(model.eval(), vocabulary)


def read_options(folder: str | Path) -> Options:
    """The options of the run in `folder`. Raises FileNotFoundError, and ValueError when the file is damaged."""
    path = _options(folder)
    try:
        return Options(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} does not hold the options of a run ({error})") from error


def prepare_corpus(options: Options) -> Corpus:
    """The corpus of the run in `options.out`: a new run writes it, and a resumed run reads it again.

    A folder without a checkpoint has nothing to resume, whatever a run that failed early left there. Raises ValueError
    when the folder holds a run with other options, and, before anything is written, when the text is too short.
    """
    with distributed.first_in_turn():
        if distributed.rank() == 0:
            _check_or_write(options)
        return read_corpus(options.out)


def _check_or_write(options: Options) -> None:
    saved = _checkpoint(options.out)
    if saved.exists() or files.previous(saved).exists():
        _check_same(options, read_options(options.out))
    else:
        write_corpus(options.out, load_text(options.corpus), options.vocab, context=options.context)
        _history(options.out).unlink(missing_ok=True)  # that of a run which never saved
    _write_json(_options(options.out), asdict(options))


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keeps a second run out of the folder; the system releases the lock of a process that dies, even by kill −9.

    Raises ValueError when another run holds it, or the path is no folder.
    """
    from filelock import FileLock, Timeout

    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out is {str(folder)!r}, which is a file; expected a folder, new or that of a run")
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "run.lock")
    try:
        with suppress(NotImplementedError):  # some network drives have no locks
            lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"another run is using {folder}; wait until it ends, or give another folder") from None
    try:
        yield
    finally:
        if lock.is_locked:
            with suppress(OSError):  # Windows deletes it on release
                Path(lock.lock_file).unlink()
            lock.release()


def _check_same(options: Options, before: Options) -> None:
    was = asdict(before)
    for name, now in asdict(options).items():
        if name not in MAY_CHANGE and was[name] != now:
            found = f"{options.out} holds a run with {name} {was[name]!r}, and {name} is {now!r}"
            raise ValueError(f"{found}; give the same options to resume it, or another folder")


def _checkpoint(folder: str | Path) -> Path:
    return Path(folder, "checkpoint.pt")


def _options(folder: str | Path) -> Path:
    return Path(folder, "options.json")


def _history(folder: str | Path) -> Path:
    return Path(folder, "history.json")


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with files.atomic_write(path) as file:
        file.write((json.dumps(content, indent=1) + "\n").encode())


# ---- the run -----------------------------------------------------------------------------------------------------


def pretrain(options: Options) -> History:
    """Trains a `Gpt` as the options say, or resumes the run in `options.out`; in the end it prints a sampled text.

    With several processes (`distributed.processes()`), each reads its share of a batch. Raises ValueError for options
    that do not match the text or the folder and while another run uses the folder, OSError where it cannot be written,
    and whatever `training.fit` raises.
    """
    runtime.keep_memory()
    if options.batch % (ranks := distributed.world_size()):
        raise ValueError(f"batch is {options.batch}; expected a multiple of {ranks}, the number of processes")
    with alone_in(Path(options.out)) if distributed.rank() == 0 else nullcontext():
        return _pretrain(options)


def _pretrain(options: Options) -> History:
    corpus = prepare_corpus(options)
    runtime.seed(options.seed)
    model = gpt.Gpt(len(corpus.vocabulary), options.config).to(runtime.device())
    runtime.seed(options.seed + distributed.rank())  # so that dropout differs between processes
    batches, progress = _batches(options, corpus), Progress(options, corpus)
    history = training.fit(
        model,
        next_token_loss,
        batches,
        options.recipe,
        evaluate=progress.evaluate,
        checkpoint=_checkpoint(options.out),
        report=progress.report,
    )
    if distributed.rank() == 0:
        _conclude(options, Pretrained(model, corpus.vocabulary), corpus.valid[:1].long(), history)
    return history


def _batches(options: Options, corpus: Corpus) -> Windows:
    rank, ranks = distributed.rank(), distributed.world_size()
    length = options.context + 1
    return Windows(corpus.train, length=length, size=options.batch, seed=options.seed, rank=rank, ranks=ranks)


class Progress:
    """Evaluates a run; the first process writes and prints a line for each evaluation."""

    def __init__(self, options: Options, corpus: Corpus):
        self.options, self.vocab = options, len(corpus.vocabulary)
        limit = max(1, options.evaluate_on // options.context)
        self.windows = evaluation_windows(corpus.valid, options.context, limit=limit)
        self.token_bytes = byte_counts(corpus.vocabulary)
        self.peak = (
            distributed.mean(matmul_peak()) * distributed.world_size()
        )  # of all processes, which measure at the same time
        if distributed.rank() == 0:
            self._print_setup(corpus)

    def _print_setup(self, corpus: Corpus) -> None:
        weights = gpt.parameter_count(self.vocab, self.options.config)
        processes = f"{distributed.world_size()} process{'es' if distributed.world_size() > 1 else ''}"
        print(f"text: {len(corpus.train):,} training tokens, vocabulary {self.vocab:,}")
        print(f"model: {weights:,} parameters; {self.windows[:, 1:].numel():,} validation tokens")
        peak = f"{self.peak / 1e9:,.0f} GFLOP/s in a matrix product (utilization is relative to it)"
        print(f"machine: {processes} on {runtime.device()}, {runtime.precision()}, {peak}", flush=True)

    def evaluate(self, model: gpt.Gpt) -> dict[str, float]:
        """Loss, perplexity and bits per byte on the validation text."""
        with runtime.autocast(self.options.recipe.mixed_precision):
            return score(model, self.windows, self.token_bytes)

    def report(self, history: History) -> None:
        """Adds training loss, speed and utilization since the previous evaluation to the newest one, and prints it."""
        row, first = history.evaluations[-1], 0
        if len(history.evaluations) > 1:
            first = int(history.evaluations[-2]["step"])
        seconds = history.elapsed - (history.seconds[first - 1] if first else 0.0)
        tokens = self.options.batch * self.options.accumulate * self.options.context * (history.steps - first)
        row["train_loss"] = sum(history.loss[first:]) / (history.steps - first)
        row["tokens_per_second"] = tokens / seconds
        row["utilization"] = gpt.utilization(
            tokens / seconds, self.vocab, self.options.config, self.options.context, peak=self.peak
        )
        if distributed.rank() == 0:
            _write_json(_history(self.options.out), asdict(history))
            _print_above_the_bar(_line(row))


def _line(row: dict[str, float]) -> str:
    losses = f"loss {row['train_loss']:.4f}  validation {row['valid_loss']:.4f}"
    units = f"perplexity {row['perplexity']:.2f}  {row['bits_per_byte']:.4f} bits/byte"
    speed = f"{row['tokens_per_second']:,.0f} tokens/s  utilization {row['utilization']:.0%}"
    return f"step {row['step']:>6,}  {losses}  {units}  {speed}"


def _print_above_the_bar(line: str) -> None:
    from tqdm.auto import tqdm  # here, because its import looks for a notebook

    tqdm.write(line)


def _conclude(options: Options, pretrained: Pretrained, start: Tensor, history: History) -> None:
    state = "stopped; the same command resumes the run" if history.interrupted else "done"
    print(f"{history.steps:,} steps in {history.elapsed:,.1f} s: {state}")
    if options.sample and not history.interrupted:
        print(sample_text(pretrained, start, options.sample, options.seed))


def sample_text(pretrained: Pretrained, start: Int64[Tensor, " time"], max_new_tokens: int, seed: int) -> str:
    """A sampled text that begins with the tokens `start`; it is no longer than the learned positions of the model."""
    model, vocabulary = pretrained
    if isinstance(model.stack.position, Learned):
        max_new_tokens = min(max_new_tokens, model.stack.position.embedding.num_embeddings - len(start) + 1)
    ids = start[None].to(next(model.parameters()).device)
    generator, filters = torch.Generator(ids.device).manual_seed(seed), [sampling.temperature(0.8)]
    generated = sampling.generate(model, ids, max_new_tokens=max_new_tokens, filters=filters, generator=generator)
    return vocabulary.decode(generated[0].tolist())
