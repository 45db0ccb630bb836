"""Data sets by name: downloaded with checksums, read, and prepared as in the paper."""

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
