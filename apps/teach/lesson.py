"""A lesson: drawings with labels, and an estimator that has learned exactly from them."""

from __future__ import annotations

import io
import math
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from apps.teach.drawings import SIDE, embedded_digits, random_drawings
from tensorswitch.estimators import TSConvRidgeClassifier, load_estimator_with_notes, save_estimator

__all__ = ["Answer", "Lesson", "check_label", "pattern_features"]

FEATURES = 512  # with more, an update takes over 50 ms
LEARNED = 400  # random drawings from which the gates are learned
MOST_DRAWINGS = 5_000
MOST_LABELS = 100
LONGEST_LABEL = 20
JOINERS = "\u200c\u200d\u00a0"  # of letters and emoji, and the space that does not break


class Answer(NamedTuple):
    """What a lesson says about a drawing."""

    labels: list[str]  # the most probable first
    probabilities: list[float]
    contributions: np.ndarray  # of each pixel to the output of the first label
    open_gates: int  # pairs of a gate and a patch for which the gate is open
    gates: int  # all such pairs


@cache
def pattern_features() -> TSConvRidgeClassifier:
    """Return a model whose features were learned from random strokes, for any symbols."""
    images = random_drawings(LEARNED)
    model = TSConvRidgeClassifier(
        FEATURES, sizes=(5, 9), grid=3, flips=False, alpha="0.1 mean", dtype="float64"
    )
    return model.fit(images, np.arange(LEARNED) % 2)


class Lesson:
    """Drawings with labels and the ridge regression of all of them, up to date after each.

        W, c = argmin Σ ‖Wᵀ φ + c − t‖² + λ ‖W‖²

    The sums of :class:`tensorswitch.estimators.TSConvRidgeClassifier` grow and shrink with the
    drawings, so the model never depends on their order, nor on drawings that were removed.

    Attributes
    ----------
    labels : list of str
        The label of each drawing.
    numbers : list of int
        Numbers that identify the drawings.
    model : TSConvRidgeClassifier or None
        The estimator; None as long as there are fewer than two labels.

    Examples
    --------
    >>> import numpy as np
    >>> from apps.teach import Lesson, draw
    >>> minus, _ = draw([np.array([[0.1, 0.5], [0.9, 0.5]])])
    >>> bar, _ = draw([np.array([[0.5, 0.1], [0.5, 0.9]])])
    >>> lesson = Lesson()
    >>> first, second = lesson.add(minus, "minus"), lesson.add(bar, "bar")
    >>> lesson.answer(minus).labels
    ['minus', 'bar']
    """

    def __init__(self, features: TSConvRidgeClassifier | None = None) -> None:
        self._features = pattern_features() if features is None else features
        self.labels: list[str] = []
        self.numbers: list[int] = []
        self.model: TSConvRidgeClassifier | None = None
        self._images: list[np.ndarray] = []
        self._next = 0

    @classmethod
    def of(
        cls, images: np.ndarray, labels: list[str], features: TSConvRidgeClassifier | None = None
    ) -> Lesson:
        """Return a lesson with drawings."""
        _check_images(images)
        if len(images) != len(labels):
            raise ValueError(f"there are {len(images)} drawings, but {len(labels)} labels")
        lesson = cls(features)
        lesson.labels = [check_label(label) for label in labels]
        lesson._check_room(len(images) - 1, lesson.labels)
        lesson._images = list(images)
        lesson.numbers = list(range(len(images)))
        lesson._next = len(images)
        lesson._relearn()
        return lesson

    @classmethod
    def digits(cls) -> Lesson:
        """Return a lesson that starts with scikit-learn's handwritten digits."""
        return cls.of(*embedded_digits())

    @property
    def images(self) -> np.ndarray:
        """The drawings, of shape (n, 28, 28)."""
        empty = np.empty((0, SIDE, SIDE), dtype=np.uint8)
        return np.stack(self._images) if self._images else empty

    @property
    def features(self) -> int:
        """Number of features."""
        return int(self._features.bank_.out_features)

    def add(self, image: np.ndarray, label: str) -> int:
        """Learn one drawing, of a label that may be new, and return its number."""
        _check_images(image[None])
        label = check_label(label)
        self._check_room(len(self.labels), [*self.labels, label])
        if self.model is not None:
            self.model.partial_fit(image[None], [label])
        number, self._next = self._next, self._next + 1
        self._images.append(image)
        self.labels.append(label)
        self.numbers.append(number)
        if self.model is None:
            self._relearn()
        return number

    def remove(self, number: int) -> None:
        """Forget one drawing, as if it had never been there."""
        if number not in self.numbers:
            raise KeyError(f"there is no drawing {number}")
        place = self.numbers.index(number)
        image, label = self._images[place], self.labels[place]
        last = self.labels.count(label) == 1
        if self.model is not None and len({*self.labels}) - last < 2:
            self.model = None
        elif self.model is not None:
            self.model.remove(image[None], [label])
            if last:
                self.model.drop_empty_classes()
        for held in (self._images, self.labels, self.numbers):
            del held[place]

    def answer(self, image: np.ndarray) -> Answer | None:
        """Return what the model says about a drawing, or None without two labels."""
        _check_images(image[None])
        if self.model is None:
            return None
        probabilities = self.model.predict_proba(image[None])[0]
        order = np.argsort(-probabilities, kind="stable")
        shares = self.model.explain(image[None]).contributions[0]
        if len(shares) == 1:  # two labels have one output, which is positive for the second
            shares = np.stack([-shares[0], shares[0]])
        opened, gates = self._open_gates(image)
        return Answer(
            [str(label) for label in self.model.classes_[order]],
            probabilities[order].tolist(),
            shares[order[0]],
            opened,
            gates,
        )

    def accuracy(self) -> float | None:
        """Return the cross-validated accuracy, or None while there are too few drawings for it."""
        if self.model is None or len(set(self.labels)) == len(self.labels):
            return None  # a label without another drawing cannot be guessed
        score = self.model.cv_score_
        return None if math.isnan(score) else score

    def save(self, path: str | Path) -> None:
        """Save the model and its drawings as a safetensors file, atomically.

        :func:`tensorswitch.estimators.load_estimator` reads the model, which takes images of 28 ×
        28 pixels.
        """
        if self.model is None:
            raise ValueError("there is nothing to save: draw symbols of at least two labels first")
        save_estimator(self.model, path, drawings=self.images, labels=list(self.labels))

    @classmethod
    def load(cls, path: str | Path) -> Lesson:
        """Read a lesson that :meth:`save` wrote. Nothing is unpickled."""
        model, notes = load_estimator_with_notes(path)
        shape = getattr(model, "image_shape_", None)
        if not isinstance(model, TSConvRidgeClassifier) or shape != (SIDE, SIDE, 1):
            raise ValueError(f"{path} contains a model, but not one of drawings")
        images, labels = notes.get("drawings"), notes.get("labels")
        if not isinstance(images, np.ndarray) or not isinstance(labels, list):
            raise ValueError(f"{path} contains a model without its drawings")
        try:
            return cls.of(images, labels, model)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise ValueError(f"{path} is damaged ({error})") from error

    def npz(self) -> bytes:
        """Return the drawings as the content of an ``.npz`` file for ``tensorswitch compare``."""
        if not self.labels:
            raise ValueError("there are no drawings to export")
        buffer = io.BytesIO()
        np.savez_compressed(buffer, x=self.images, y=np.array(self.labels, dtype=str))
        return buffer.getvalue()

    def _relearn(self) -> None:
        """Sum over all drawings."""
        if len(set(self.labels)) < 2:
            self.model = None
            return
        model = self._features.without_rows(classes=self.labels)
        self.model = model.partial_fit(self.images, self.labels)

    def _check_room(self, drawings: int, labels: list[str]) -> None:
        if drawings >= MOST_DRAWINGS:
            raise ValueError(f"a lesson holds at most {MOST_DRAWINGS:,} drawings; remove some")
        if len(set(labels)) > MOST_LABELS:
            raise ValueError(f"a lesson holds at most {MOST_LABELS} labels")

    def _open_gates(self, image: np.ndarray) -> tuple[int, int]:
        bank = self._features.bank_
        kind = next(buffer.dtype for buffer in bank.buffers() if buffer.is_floating_point())
        x = torch.from_numpy(image / 255.0)[None, None].to(kind)
        opened = [part.open_gates(x) for part in bank.parts]  # type: ignore[operator]
        return sum(int(o.sum()) for o in opened), sum(o.numel() for o in opened)


def check_label(label: Any) -> str:
    """Return a label without surrounding spaces."""
    if not isinstance(label, str):
        raise ValueError(f"a label must be text, got {type(label).__name__}")
    found: str = unicodedata.normalize("NFC", label).strip()
    if not 0 < len(found) <= LONGEST_LABEL:
        raise ValueError(f"a label has 1 to {LONGEST_LABEL} characters, got {len(found)}")
    if not all(c.isprintable() or c in JOINERS for c in found):
        raise ValueError("a label must not contain control characters")
    return found


def _check_images(images: np.ndarray) -> None:
    if images.dtype != np.uint8 or images.ndim != 3 or images.shape[1:] != (SIDE, SIDE):
        raise ValueError(
            f"drawings must be uint8 arrays of shape (n, {SIDE}, {SIDE}), "
            f"got {images.dtype} {images.shape}"
        )
