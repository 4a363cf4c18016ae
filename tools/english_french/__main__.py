"""``python tools/english_french`` writes the corpus to data/."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from english_french.build import PATH, write

write()
print(f"wrote {PATH}")
