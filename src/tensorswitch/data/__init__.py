"""Data sets: embedded, downloaded or read from files, and the paper's preprocessing.

Examples
--------
>>> from tensorswitch.data import load
>>> data = load("digits")
>>> data.train_images.shape, data.train_images.dtype
((1257, 1, 8, 8), dtype('uint8'))
>>> split = data.protocol(components=32)
>>> split.train.shape, split.validation.shape, split.test.shape
((1006, 32), (251, 32), (540, 32))
"""

from tensorswitch.data.dataset import Dataset, Preparation, Split
from tensorswitch.data.readers import DataError
from tensorswitch.data.sources import NAMES, fetch, folders, found, load

__all__ = [
    "NAMES",
    "DataError",
    "Dataset",
    "Preparation",
    "Split",
    "fetch",
    "folders",
    "found",
    "load",
]
