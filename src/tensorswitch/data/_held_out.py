"""Rows for training and rows for testing, where the data do not say which."""

from __future__ import annotations

import numpy as np

from tensorswitch.data.readers import DataError

TEST_SHARE = 0.3


def held_out(target: np.ndarray, classes: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return 70 % of the rows for training and 30 % for testing, with all classes in the former.

    Parameters
    ----------
    target : ndarray of shape (rows,)
        Indices of classes, or numbers.
    classes : bool
        Whether they are classes, of which both parts get their shares if there are enough rows.

    Returns
    -------
    train, test : ndarray of int
        Indices of the rows.
    """
    from sklearn.model_selection import train_test_split

    every = np.arange(len(target))
    if not classes:
        train, test = train_test_split(every, test_size=TEST_SHARE, random_state=0)
        return np.sort(train), np.sort(test)
    counts = np.bincount(target)
    alone = every[counts[target] == 1]
    others = every[counts[target] > 1]
    if not len(others):
        raise DataError("each row has a class of its own; there is nothing to learn")
    room = np.ceil(TEST_SHARE * len(others)) >= (counts > 1).sum()
    labels = target[others] if room else None
    train, test = train_test_split(others, test_size=TEST_SHARE, random_state=0, stratify=labels)
    lost = np.setdiff1d(target[test], target[train])
    moved = [test[target[test] == label][0] for label in lost]
    train = np.concatenate([train, alone, np.array(moved, dtype=int)])
    return np.sort(train), np.setdiff1d(every, train)
