"""Data sets by name: downloaded with checksums, read, and prepared as in the paper.

Examples
--------
>>> from tensorswitch.datasets import load
>>> data = load("digits")
>>> data.train_images.shape, data.train_images.dtype
((1257, 1, 8, 8), dtype('uint8'))
>>> split = data.protocol(components=32)
>>> split.train.shape, split.validation.shape, split.test.shape
((1006, 32), (251, 32), (540, 32))
"""

from tensorswitch.datasets._dataset import Dataset, Preparation, Split
from tensorswitch.datasets._files import DataError
from tensorswitch.datasets._sources import NAMES, fetch, folders, found, load

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
