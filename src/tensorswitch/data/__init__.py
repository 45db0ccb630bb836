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
from tensorswitch.data.encoder import TableEncoder
from tensorswitch.data.images import Pictures, is_picture, read_pictures
from tensorswitch.data.own import as_rows, as_text, labels_beside
from tensorswitch.data.problem import Parts, Problem, table_problem
from tensorswitch.data.readers import DataError
from tensorswitch.data.sources import NAMES, fetch, folders, found, load, load_problem
from tensorswitch.data.tables import Table, is_table, read_table

__all__ = [
    "NAMES",
    "DataError",
    "Dataset",
    "Parts",
    "Pictures",
    "Preparation",
    "Problem",
    "Split",
    "Table",
    "TableEncoder",
    "as_rows",
    "as_text",
    "fetch",
    "folders",
    "found",
    "is_picture",
    "is_table",
    "labels_beside",
    "load",
    "load_problem",
    "read_pictures",
    "read_table",
    "table_problem",
]
