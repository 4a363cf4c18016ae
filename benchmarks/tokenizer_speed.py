"""Time of `tfbook.text`, learning and encoding, against the Rust library `tokenizers` and Karpathy's minbpe.

    git clone https://github.com/karpathy/minbpe && pip install tiktoken
    python benchmarks/tokenizer_speed.py [--text shakespeare.txt] [--minbpe minbpe] [--rounds 5] [--out speed.json]

All learn a vocabulary of 1,024 from the same text (tiny Shakespeare unless given) with GPT-2's pattern, and encode that
text. They take turns; a ratio is the middle of the rounds' ratios to ours, above 1 where ours is faster. The library
keeps to one thread. minbpe, which takes minutes, has one turn.
"""

from __future__ import annotations

import os

os.environ |= {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}  # before the library starts its threads

import argparse
import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import tokenizers

from tfbook import data
from tfbook.course.cost import in_turns
from tfbook.course.experiments import machine, markdown
from tfbook.text import GPT2_PATTERN, Tokenizer

VOCAB = 1024
BARS = {  # a peer's time over ours, at the least
    ("learn", "tokenizers"): 0.5,
    ("learn", "minbpe"): 100.0,
    ("encode", "tokenizers"): 1.0,
    ("encode", "tokenizers, no offsets"): 1.0,
}


def rust(text: str) -> tokenizers.Tokenizer:
    """The library's byte-level BPE, learned from one text."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=VOCAB, initial_alphabet=alphabet, show_progress=False)
    library.train_from_iterator([text], trainer)
    return library


def learning(text: str, rounds: int) -> dict[str, list[float]]:
    """Seconds that each takes to learn, in each round."""
    return in_turns({"tfbook": lambda: Tokenizer.learn([text], VOCAB), "tokenizers": lambda: rust(text)}, rounds)


def encoding(text: str, rounds: int) -> dict[str, list[float]]:
    """Seconds that each takes to encode, in each round; ours begins with an empty cache, and once more with a full one.

    Raises ValueError when their ids differ, since then they did not do the same work.
    """
    ours, theirs = Tokenizer.learn([text], VOCAB), rust(text)
    if ours.encode(text) != theirs.encode(text).ids:
        raise ValueError("text gives other ids in tfbook than in tokenizers; expected the same")
    runs: dict[str, Callable[[], object]] = {
        "tfbook": lambda: Tokenizer(ours.tokens, ours.merges).encode(text),
        "tfbook, again": lambda: ours.encode(text),
        "tokenizers": lambda: theirs.encode(text).ids,
        "tokenizers, no offsets": lambda: theirs.encode_batch_fast([text])[0].ids,
    }
    return in_turns(runs, rounds)


def minbpe_seconds(folder: Path, text: str) -> dict[str, float]:
    """Seconds that minbpe's RegexTokenizer takes to learn and to encode."""
    sys.path.insert(0, str(folder))
    from minbpe import RegexTokenizer

    theirs = RegexTokenizer(pattern=GPT2_PATTERN)
    start = time.perf_counter()
    theirs.train(text, VOCAB)
    learned = time.perf_counter()
    theirs.encode(text)
    return {"learn": learned - start, "encode": time.perf_counter() - learned}


def rows(task: str, seconds: dict[str, list[float]], characters: int) -> list[dict[str, Any]]:
    """The middle time and ratio of each, and the ratio's bar where it has one."""
    found = []
    for name, times in seconds.items():
        ratio = median(theirs / ours for theirs, ours in zip(times, seconds["tfbook"], strict=True))
        figures = {"seconds": round(median(times), 3), "M chars/s": float(f"{characters / median(times) / 1e6:.3g}")}
        found.append({"task": task, "by": name, **figures, "ratio": round(ratio, 2), "bar": BARS.get((task, name), "")})
    return found


def main() -> int:
    """Measures, prints the table and where it comes from; exit status 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="another text than tiny Shakespeare")
    parser.add_argument("--minbpe", type=Path, help="the folder of a clone of karpathy/minbpe")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="a JSON file for rows, machine and date")
    arguments = parser.parse_args()
    text = data.read_text_file(arguments.text) if arguments.text else whole(data.load("tiny-shakespeare"))
    seconds = {"learn": learning(text, arguments.rounds), "encode": encoding(text, arguments.rounds)}
    if arguments.minbpe:
        for task, time_taken in minbpe_seconds(arguments.minbpe, text).items():
            seconds[task]["minbpe"] = [time_taken] * arguments.rounds
    found = [row for task, times in seconds.items() for row in rows(task, times, len(text))]
    where = {"machine": machine(), "date": datetime.now(UTC).date().isoformat()}
    print(f"{markdown(found)}\n\n{' · '.join([*where.values(), f'{len(text):,} characters', f'vocabulary {VOCAB:,}'])}")
    if arguments.out:
        arguments.out.write_text(json.dumps({**where, "rows": found}, indent=1) + "\n", encoding="utf-8")
    return int(any(row["ratio"] < row["bar"] for row in found if row["bar"]))


def whole(text: data.Text) -> str:
    """Both parts of a text."""
    return text.train + text.valid


if __name__ == "__main__":
    sys.exit(main())
