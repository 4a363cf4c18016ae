"""A pretraining run: its corpus, its progress, and the model that it produces.

Shapes: time.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

from tfbook import runtime
from tfbook.attention.positions import Learned
from tfbook.generation import sampling
from tfbook.models import gpt
from tfbook.models.tensor_parallel import split_model
from tfbook.pretrain import driver
from tfbook.pretrain.corpus import (
    FILES,
    Corpus,
    TextVocabulary,
    byte_counts,
    load_text,
    read_corpus,
    read_vocabulary,
    write_corpus,
)
from tfbook.pretrain.measure import evaluation_windows, matmul_peak, score
from tfbook.pretrain.options import Options, read
from tfbook.text.windows import Windows
from tfbook.training import checkpoints, distributed
from tfbook.training.checkpoints import History
from tfbook.training.losses import next_token_loss


class Pretrained(NamedTuple):
    """A model and its vocabulary."""

    model: gpt.Gpt
    vocabulary: TextVocabulary


def load_pretrained(folder: str | Path) -> Pretrained:
    """The model of a run's newest intact checkpoint, in eval mode, for `sampling.generate`.

    Raises FileNotFoundError when there is none, and CheckpointError or ValueError when a file is damaged or another
    run's.
    """
    options, vocabulary = read_options(folder), read_vocabulary(folder)
    model = gpt.Gpt(len(vocabulary), options.config).to(runtime.device())
    about = driver.about(replace(options, out=str(folder)), FILES)
    checkpoints.load_weights(driver.checkpoint(folder), model, about=about)
    return Pretrained(model.eval(), vocabulary)


def read_options(folder: str | Path) -> Options:
    """The options of the run in `folder`. Raises FileNotFoundError, and ValueError when the file is damaged."""
    return read(Options, driver.options_file(folder))


def prepare_corpus(options: Options) -> Corpus:
    """The corpus of the run in `options.out`: a new run writes it, and a resumed run reads it again.

    Raises ValueError when the folder holds a run with other options, and, before anything is written, when the text is
    too short.
    """
    driver.begin_run(options, partial(_write_corpus, options))
    return read_corpus(options.folder)


def _write_corpus(options: Options) -> None:
    write_corpus(options.folder, load_text(options.corpus), options.vocab, context=options.context)


# ---- the run -----------------------------------------------------------------------------------------------------


def pretrain(options: Options) -> History:
    """Trains a `Gpt` as the options say, or resumes the run in `options.out`; in the end it prints a sampled text.

    With several processes (`distributed.processes()`), each reads its share of a batch, and with `tensor_parallel` that
    many share one. Raises ValueError for options that do not match the text, the folder, the machine or the number of
    processes, and what `driver.run` raises.
    """
    runtime.keep_memory()
    with distributed.arranged(shard=options.shard, tensor_parallel=options.tensor_parallel) as grid:
        if options.batch % grid.data:
            readers = "processes" if grid.tensor == 1 else f"processes / tensor_parallel = {grid.tensor}"
            raise ValueError(f"batch is {options.batch}; expected a multiple of {grid.data}, the number of {readers}")
        driver.check_memory(_least_memory(options))
        return driver.run(options, partial(_set_up, options), partial(_write_corpus, options))


def _least_memory(options: Options) -> int:
    """Bytes of weights with their gradients and moments, of a batch's residual stream, and of the sample's cache."""
    weights = 12 * options.layers * options.d_model**2  # of the blocks: counting them all would build them all
    stream = options.batch // distributed.grid().data * options.context * options.layers * options.d_model
    return 16 * weights + 2 * stream + 4 * options.sample * options.layers * options.d_model


def _set_up(options: Options) -> driver.Job:
    corpus = read_corpus(options.folder)
    runtime.seed(options.seed)
    model = gpt.Gpt(len(corpus.vocabulary), options.config).to(runtime.device())
    grid = distributed.grid()
    if grid.tensor > 1:
        split_model(model, grid.mesh["tensor"])
    runtime.seed(options.seed + grid.row)  # so that dropout differs between processes
    batches, progress = _batches(options, corpus), Progress(options, corpus)
    return driver.Job(
        model=model,
        loss=next_token_loss,
        batches=batches,
        recipe=options.recipe,
        evaluate=progress.evaluate,
        report=progress.report,
        finish=partial(_print_sample, options, Pretrained(model, corpus.vocabulary), corpus.valid[:1].long()),
        files=FILES,
    )


def _batches(options: Options, corpus: Corpus) -> Windows:
    grid, length = distributed.grid(), options.context + 1
    return Windows(
        corpus.train,
        length=length,
        size=options.batch,
        seed=options.seed,
        rank=grid.row,
        ranks=grid.data,
        in_order=options.order == "text",
    )


class Progress:
    """Evaluates a run; the first process prints a line for each evaluation."""

    def __init__(self, options: Options, corpus: Corpus):
        self.options, self.vocab = options, len(corpus.vocabulary)
        limit = max(1, options.evaluate_on // options.context)
        self.windows = evaluation_windows(corpus.valid, options.context, limit=limit)
        self.token_bytes = byte_counts(corpus.vocabulary)
        self.peak = distributed.mean(matmul_peak()) * distributed.world_size()  # all measure at the same time
        if distributed.rank() == 0:
            self._print_setup(corpus)

    def _print_setup(self, corpus: Corpus) -> None:
        weights = gpt.parameter_count(self.vocab, self.options.config)
        print(f"text: {len(corpus.train):,} training tokens, vocabulary {self.vocab:,}")
        print(f"model: {weights:,} parameters; {self.windows[:, 1:].numel():,} validation tokens")
        peak = f"{self.peak / 1e9:,.0f} GFLOP/s in a matrix product (utilization is relative to it)"
        print(f"machine: {distributed.grid()} on {runtime.device()}, {runtime.precision()}, {peak}", flush=True)

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
            driver.say(_line(row))


def _line(row: dict[str, float]) -> str:
    losses = f"loss {row['train_loss']:.4f}  validation {row['valid_loss']:.4f}"
    units = f"perplexity {row['perplexity']:.2f}  {row['bits_per_byte']:.4f} bits/byte"
    speed = f"{row['tokens_per_second']:,.0f} tokens/s  utilization {row['utilization']:.0%}"
    return f"step {row['step']:>6,}  {losses}  {units}  {speed}"


def _print_sample(options: Options, pretrained: Pretrained, start: Tensor) -> None:
    if options.sample:
        if distributed.world_size() > 1:  # of which this one has a part
            pretrained = load_pretrained(options.out)
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
