"""Data sets: embedded, downloaded or read from files, and the paper's preprocessing."""

from tensorswitch.data import (
    NAMES,
    DataError,
    Dataset,
    Preparation,
    Split,
    fetch,
    folders,
    found,
    load,
)

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
