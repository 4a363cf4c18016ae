"""Pretrains a GPT on a text. After an interruption, the same command resumes the run.

python -m tfbook.pretrain                                          tiny Shakespeare, characters, a small CPU
python -m tfbook.pretrain --corpus book.txt --vocab 1024           your own text, byte-pair encoding
torchrun --nproc-per-node 2 -m tfbook.pretrain --batch 64          two processes, one GPU each where there are GPUs
torchrun --nproc-per-node 8 --max-restarts 3 -m tfbook.pretrain --shard --tensor-parallel 2 --checkpoint-activations …

Of eight processes with --tensor-parallel 2, four pairs read a quarter of each batch, and a pair splits the matrices of
each block. With --shard the pairs share weights, gradients and moments. A checkpoint is read by any number of
processes, sharded or not; when a process dies, torchrun starts all again from the last one.
"""

from __future__ import annotations

import os

from tfbook.pretrain import driver
from tfbook.pretrain.options import Options
from tfbook.pretrain.run import pretrain
from tfbook.training import distributed


def main(arguments: list[str] | None = None) -> None:
    """Trains as the command line says; an error is one line."""
    driver.run_command_line(Options, _start, "python -m tfbook.pretrain", __doc__, arguments)


def _start(options: Options) -> None:
    if options.precision != "auto":
        os.environ["TFBOOK_PRECISION"] = options.precision
    with distributed.processes():
        pretrain(options)


if __name__ == "__main__":
    main()
