"""Class labels of any type as indices into the sorted classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import unique_labels


def check_classes(labels: Any, name: str = "y", of: int | None = None) -> np.ndarray:
    """Return the sorted classes, or raise if there are fewer than two.

    ``of`` is the number of rows before those without weight were left out.
    """
    found: np.ndarray = unique_labels(labels) if len(labels) else np.empty(0)
    if len(found) < 2:
        held = f"only one class: {found[0]}" if len(found) else "no labels"
        where = name
        if of is not None and of > len(labels):
            where = f"{name} of the rows whose sample_weight is not negligible"
        raise ValueError(f"a classifier needs at least 2 classes, but {where} contains {held}")
    return found


def class_places(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the index of each label among the classes, or raise if one is missing."""
    if (y.dtype.kind in "OUS") != (classes.dtype.kind in "OUS"):
        raise ValueError(
            f"y has labels of type {y.dtype}, but the classes have type {classes.dtype}: {classes}"
        )
    place: np.ndarray = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    if len(unknown := np.unique(y[classes[place] != y])):
        raise ValueError(
            f"y contains labels that are not among the classes {classes}: {unknown}; "
            "pass all classes to the first call of partial_fit"
        )
    return place.astype(np.int64)


def check_partial_fit(known: np.ndarray | None, classes: Any) -> np.ndarray:
    """Return the classes of ``partial_fit``, which the first call sets and no other may change."""
    if known is None:
        if classes is None:
            raise ValueError(
                "classes must be passed to the first call of partial_fit: the labels that are "
                "known to come, at least two"
            )
        return check_classes(classes, "classes")
    if classes is not None and not np.array_equal(unique_labels(classes), known):
        raise ValueError(
            f"classes={unique_labels(classes)} differ from those of the first call, {known}"
        )
    return known


def class_factors(
    class_weight: Any, classes: np.ndarray, places: np.ndarray, weight: np.ndarray | None
) -> np.ndarray:
    """Return the factor of each class; "balanced" counts rows by their weights."""
    if not isinstance(class_weight, str) or class_weight != "balanced":
        found: np.ndarray = compute_class_weight(class_weight, classes=classes, y=classes[places])
        return found
    counts = np.bincount(places, weight, len(classes)).astype(np.float64)
    share = counts.sum() / len(classes)
    factors: np.ndarray = np.divide(share, counts, out=np.zeros_like(counts), where=counts > 0)
    return factors
