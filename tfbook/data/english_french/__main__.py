"""``python -m tfbook.data.english_french`` writes the corpus to data/."""

from .build import PATH, write

write()
print(f"wrote {PATH}")
