"""A corpus of a few pairs, and a translator that a test trains on it in a moment."""

from collections.abc import Sequence

from tfbook.attention import POSITIONS
from tfbook.data.translation import Translations
from tfbook.lessons.transformer.study import Variant
from tfbook.models.blocks import Config
from tfbook.text import Pair

TINY = Config(d_model=8, heads=2, d_ff=16, layers=1, position=POSITIONS["rotary"])
SHORT = Variant(config=TINY, warmup=2, steps=4)


def toy_corpus(pairs: Sequence[Pair]) -> Translations:
    """The same pairs in every split, each the only reference of its source."""
    return Translations(
        name="toy",
        source_language="english",
        target_language="french",
        splits={split: list(pairs) for split in ("train", "valid", "test", "long", "template")},
        references={pair.source: [pair.target] for pair in pairs},
    )
