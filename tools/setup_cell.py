# @title Setup: run this cell first
# It finds tfbook, or installs it where there is none (Colab, Kaggle).
import subprocess
import sys
from importlib import invalidate_caches, metadata, util
from pathlib import Path

if not getattr(util.find_spec("tfbook"), "origin", None):
    clones = [str(p) for p in Path.cwd().parents if (p / "tfbook/__init__.py").is_file()]
    sys.path[:0] = clones[:1]
    if not clones:  # pip keeps the versions of what is here, and speaks only when it fails
        here = [name for name in ("torch", "torchvision", "numpy") if util.find_spec(name)]
        kept = [f"{name}=={metadata.version(name)}" for name in here]
        package = "tfbook @ git+https://github.com/OWNER/tfbook"
        command = [sys.executable, "-m", "pip", "install", "-q", package, *kept]
        pip = subprocess.run(command, capture_output=True, text=True)
        if pip.returncode:
            raise RuntimeError(f"pip could not install tfbook:\n{pip.stdout}{pip.stderr}")
        invalidate_caches()
