"""Labels of any kind as places in a sorted list of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.multiclass import unique_labels


def check_classes(labels: Any, name: str = "y") -> np.ndarray:
    """Sorted, and at least two."""
    found: np.ndarray = unique_labels(labels) if len(labels) else np.empty(0)
    if len(found) < 2:
        held = f"one class only: {found[0]}" if len(found) else "none"
        raise ValueError(f"the classifier needs at least 2 classes, but {name} holds {held}")
    return found


def class_places(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    if (y.dtype.kind in "OUS") != (classes.dtype.kind in "OUS"):
        raise ValueError(
            f"y has labels of type {y.dtype}, but the classes are {classes.dtype}: {classes}"
        )
    place: np.ndarray = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    if len(unknown := np.unique(y[classes[place] != y])):
        raise ValueError(
            f"y has labels that are not among the classes {classes}: {unknown}; name all classes in the first partial_fit"
        )
    return place.astype(np.int64)


def check_partial_fit(known: np.ndarray | None, classes: Any) -> np.ndarray:
    """The classes of a model that learns chunk by chunk: named by its first call, and the same in every other."""
    if known is None:
        if classes is None:
            raise ValueError(
                "classes must be given to the first call of partial_fit: all labels that any chunk may have"
            )
        return check_classes(classes, "classes")
    if classes is not None and not np.array_equal(unique_labels(classes), known):
        raise ValueError(
            f"classes={unique_labels(classes)} differ from those of the first call, {known}"
        )
    return known
