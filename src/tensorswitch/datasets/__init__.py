"""Data sets by name, and arrays and pictures of the user: downloaded, checked and read.

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

from tensorswitch.datasets._arrays import held_out, load_arrays, read_rows
from tensorswitch.datasets._dataset import Dataset, Preparation, Split, validation_split
from tensorswitch.datasets._files import DataError, reading
from tensorswitch.datasets._pictures import (
    Pictures,
    is_picture,
    labelled_pictures,
    pictures_to_test,
    read_pictures,
)
from tensorswitch.datasets._sources import NAMES, fetch, folders, found, load

__all__ = [
    "NAMES",
    "DataError",
    "Dataset",
    "Pictures",
    "Preparation",
    "Split",
    "fetch",
    "folders",
    "found",
    "held_out",
    "is_picture",
    "labelled_pictures",
    "load",
    "load_arrays",
    "pictures_to_test",
    "read_pictures",
    "read_rows",
    "reading",
    "validation_split",
]
