# Setup: run this cell first. It finds tfbook, or installs it where there is none (Colab, Kaggle).
import subprocess
import sys
from importlib import invalidate_caches, metadata, util
from pathlib import Path

if not getattr(util.find_spec("tfbook"), "origin", None):
    here = Path.cwd()
    clone = next((folder for folder in (here, *here.parents) if (folder / "tfbook" / "__init__.py").is_file()), None)
    if clone:
        sys.path.insert(0, str(clone))
    else:  # pip gets the versions of what is here already, so that it replaces none of them
        kept = [f"{p}=={metadata.version(p)}" for p in ("torch", "torchvision", "numpy") if util.find_spec(p)]
        package = "tfbook @ git+https://github.com/OWNER/tfbook"
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", package, *kept], check=True)
        invalidate_caches()
