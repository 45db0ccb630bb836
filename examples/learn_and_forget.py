"""Learn classes one after another, from many clients, and forget images on request: exactly.

    python examples/learn_and_forget.py

Digits arrive two classes at a time, then from a hundred clients that have one class each. Both
times the model is that of all images at once. Then every hundredth image is removed, and the model
is that of the others.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from tensorswitch.estimators import TSConvRidgeClassifier


def main() -> None:
    """Print how far the models are from each other."""
    digits = load_digits()
    images, labels = digits.images[:1500], digits.target[:1500]
    test, truth = digits.images[1500:], digits.target[1500:]

    # The features are learned from the first images, without labels; then rows only count as sums.
    first = TSConvRidgeClassifier(1024, flips=False, dtype="float64").fit(
        images[:300], labels[:300]
    )
    whole = first.without_rows().partial_fit(images, labels)
    print(f"all images at once: {100 * whole.score(test, truth):.1f} % right")

    later = first.without_rows()
    for task in range(5):
        rows = np.isin(labels, [2 * task, 2 * task + 1])
        later.partial_fit(images[rows], labels[rows])
    print(f"two classes at a time: outputs differ by {difference(later, whole, test):.1e}")

    server = first.without_rows()
    for part in np.array_split(np.argsort(labels, kind="stable"), 100):
        server.merge(first.without_rows().partial_fit(images[part], labels[part]))
    print(f"a hundred clients, merged: outputs differ by {difference(server, whole, test):.1e}")

    removed = np.arange(len(images)) % 100 == 0
    server.remove(images[removed], labels[removed])
    without = first.without_rows().partial_fit(images[~removed], labels[~removed])
    print(f"1 % of the images removed: outputs differ by {difference(server, without, test):.1e}")


def difference(
    one: TSConvRidgeClassifier, other: TSConvRidgeClassifier, images: np.ndarray
) -> float:
    """Return the largest difference of the outputs of two models."""
    return float(np.abs(one.decision_function(images) - other.decision_function(images)).max())


if __name__ == "__main__":
    main()
