"""Pretrains a GPT on a text. After an interruption, the same command resumes the run.

python -m tfbook.pretrain                                          tiny Shakespeare, characters, a small CPU
python -m tfbook.pretrain --corpus book.txt --vocab 1024           your own text, byte-pair encoding
torchrun --nproc-per-node 2 -m tfbook.pretrain --batch 64          two processes, one GPU each where there are GPUs
"""

from __future__ import annotations

import argparse
import os
from dataclasses import fields

from tfbook.pretrain.options import Options
from tfbook.pretrain.run import pretrain
from tfbook.training import distributed
from tfbook.training.checkpoints import CheckpointError
from tfbook.training.loop import NonFiniteLoss


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tfbook.pretrain", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option in fields(Options):
        meaning, choices = option.metadata["help"], option.metadata["choices"]
        shown = option.name if choices is None else None
        parser.add_argument(
            f"--{option.name.replace('_', '-')}",
            type=type(option.default),
            default=option.default,
            choices=choices,
            metavar=shown and type(option.default).__name__,
            help=f"{meaning} ({option.default})",
        )
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Trains as the command line says; an error is one line."""
    parser = _parser()
    try:
        options = Options(**vars(parser.parse_args(arguments)))
        if options.precision != "auto":
            os.environ["TFBOOK_PRECISION"] = options.precision
        with distributed.processes():
            pretrain(options)
    except (ValueError, OSError, CheckpointError, NonFiniteLoss) as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")


if __name__ == "__main__":
    main()
