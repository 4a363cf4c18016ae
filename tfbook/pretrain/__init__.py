"""Pretraining a GPT, from a text file to a model that generates text: `python -m tfbook.pretrain --help`.

The same command runs on one CPU, on one GPU and, under `torchrun`, in several processes.
"""

from tfbook.pretrain.corpus import Corpus, byte_counts, load_text, read_corpus, write_corpus
from tfbook.pretrain.measure import evaluation_windows, matmul_peak, score
from tfbook.pretrain.options import Options
from tfbook.pretrain.run import Pretrained, load_pretrained, prepare_corpus, pretrain, read_options, sample_text

__all__ = [
    "Corpus",
    "Options",
    "Pretrained",
    "byte_counts",
    "evaluation_windows",
    "load_pretrained",
    "load_text",
    "matmul_peak",
    "prepare_corpus",
    "pretrain",
    "read_corpus",
    "read_options",
    "sample_text",
    "score",
    "write_corpus",
]
