"""Runs a stored experiment again and writes its result and provenance to data/results.

python tools/experiment.py bahdanau_attention.bottleneck
python tools/experiment.py                         list the experiments
"""

from __future__ import annotations

import argparse
import time
from importlib import import_module

import book

from tfbook import runtime
from tfbook.course.experiments import current_commit, store

EXPERIMENTS = (
    "bahdanau_attention.bottleneck",
    "bahdanau_attention.tatoeba",
    "scoring_functions.growth",
    "scoring_functions.scores",
    "positions.addition",
    "positions.control",
    "positions.lengths",
    "transformer.against_recurrence",
    "transformer.norms",
    "transformer.parts",
    "transformer.regularisers",
    "transformer.searches",
    "tokenizers.vocabularies",
    "bert_masking.by_labels",
    "bert_masking.directions",
    "bert_masking.distilled",
    "bert_masking.electra",
    "bert_masking.hiding",
    "bert_masking.sharing",
    "gpt_pretraining.induction",
    "gpt_pretraining.scaling",
    "vit_patches.few_shuffled",
    "vit_patches.growth",
    "vit_patches.longer",
    "vit_patches.patch_sizes",
    "vit_patches.pixels",
    "vit_patches.pooling",
    "vit_patches.searches",
    "vit_patches.shuffles",
    "vit_patches.squares",
    "vit_patches.teachers",
    "efficient_attention.long_range",
    "efficient_attention.memory",
    "efficient_attention.times",
)


def run(name: str) -> None:
    """Runs `name` and stores what it returns."""
    module, _, function = name.partition(".")
    experiment = getattr(import_module(f"tfbook.course.experiments.{module}"), function)
    commit, start = current_commit(), time.perf_counter()
    runtime.setup()
    rows = experiment()
    seconds, command = time.perf_counter() - start, f"python tools/experiment.py {name}"
    path = store(name, rows, command=command, commit=commit, seconds=seconds)
    print(f"{len(rows)} rows in {path.relative_to(book.ROOT)}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=EXPERIMENTS)
    options = parser.parse_args(arguments)
    if options.name is None:
        print(*EXPERIMENTS, sep="\n")
    else:
        run(options.name)


if __name__ == "__main__":
    main()
