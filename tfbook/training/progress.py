"""A progress bar that suits where it is drawn: a widget in notebooks with ipywidgets, a line of text elsewhere."""

import warnings

from tqdm import TqdmWarning

with warnings.catch_warnings():
    warnings.simplefilter("ignore", TqdmWarning)  # that ipywidgets is missing: a line of text does as well
    from tqdm.auto import tqdm

__all__ = ["tqdm"]
