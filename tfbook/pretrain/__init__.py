"""Pretraining of a GPT from a text to a model that speaks: `python -m tfbook.pretrain --help`.

The same command runs on one CPU, on one GPU and, under `torchrun`, in several processes.
"""

from tfbook.pretrain.corpus import Corpus, byte_counts, read_corpus, text_of, write_corpus
from tfbook.pretrain.measure import matmul_peak, score, windows_of
from tfbook.pretrain.options import Options
from tfbook.pretrain.run import Pretrained, load_pretrained, prepared, pretrain, read_options, said

__all__ = [
    "Corpus",
    "Options",
    "Pretrained",
    "byte_counts",
    "load_pretrained",
    "matmul_peak",
    "prepared",
    "pretrain",
    "read_corpus",
    "read_options",
    "said",
    "score",
    "text_of",
    "windows_of",
    "write_corpus",
]
