"""Drawings: strokes of a pen as small images of a common size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.ndimage import center_of_mass, zoom

__all__ = ["SIDE", "Frame", "draw", "embedded_digits", "random_drawings"]

SIDE = 28  # height and width of the images
BOX = 20  # pixels of the longer side of what is drawn, as in MNIST
PEN = 1.1  # radius of the pen in pixels
STEP = 0.5  # pixels between points of a stroke
LARGEST = 4.0  # smaller drawings are magnified by no more, so that a dot stays a dot
Strokes = Sequence[np.ndarray]


class Frame(NamedTuple):
    """Where a drawing lies in its image: ``pixels = scale · (points − corner)``."""

    scale: float
    corner: np.ndarray

    def pixels(self, points: np.ndarray) -> np.ndarray:
        """Return points (n, 2), x before y, in pixels of the image."""
        return self.scale * (points - self.corner)


def _frame_of(strokes: Strokes) -> Frame:
    """Return the frame with the drawing in its middle and 20 pixels for its longer side."""
    points = np.concatenate(strokes)
    low, high = points.min(0), points.max(0)
    scale = min(BOX / max(float((high - low).max()), 1e-9), LARGEST * BOX)
    return Frame(scale, (low + high) / 2 - SIDE / 2 / scale)


def draw(strokes: Strokes) -> tuple[np.ndarray, Frame]:
    """Return a drawing as an image that does not depend on its place and size.

    Strokes are points (n, 2) in the unit square, x before y. The longer side of the drawing has 20
    of the 28 pixels, its centre of mass lies in the middle, and ink is 255.

    Examples
    --------
    >>> import numpy as np
    >>> from apps.teach import draw
    >>> image, _ = draw([np.array([[0.1, 0.5], [0.9, 0.5]])])
    >>> image.shape, int(image[14, 14]), int(image[0, 0])
    ((28, 28), 255, 0)
    """
    frame = _frame_of(strokes)
    row, column = center_of_mass(_ink(strokes, frame))
    middle = (SIDE - 1) / 2
    moved = np.array([column - middle, row - middle]) / frame.scale
    frame = frame._replace(corner=frame.corner + moved)
    return np.rint(255 * _ink(strokes, frame)).astype(np.uint8), frame


def _ink(strokes: Strokes, frame: Frame) -> np.ndarray:
    """Return the ink in each pixel, which falls from 1 to 0 at the edge of the pen."""
    starts, ends = [], []
    for stroke in strokes:
        points = _thinned(frame.pixels(stroke)) - 0.5  # pixel (0, 0) has its centre at 0.5
        starts.append(points[:-1] if len(points) > 1 else points)
        ends.append(points[1:] if len(points) > 1 else points)
    (ax, ay), (bx, by) = (np.concatenate(p).astype(np.float32).T[..., None] for p in (starts, ends))
    y, x = np.mgrid[:SIDE, :SIDE].reshape(2, 1, -1).astype(np.float32)
    along_x, along_y = bx - ax, by - ay
    length = np.maximum(along_x**2 + along_y**2, 1e-12)
    position = (((x - ax) * along_x + (y - ay) * along_y) / length).clip(0, 1)
    squares = (x - ax - position * along_x) ** 2 + (y - ay - position * along_y) ** 2
    return (PEN + 0.5 - np.sqrt(squares.min(0))).clip(0, 1).reshape(SIDE, SIDE)


def _thinned(points: np.ndarray) -> np.ndarray:
    """Leave out points of a stroke that are closer to each other than pixels can show."""
    steps = np.floor(np.append(0, np.hypot(*np.diff(points, axis=0).T).cumsum()) / STEP)
    kept = np.append(True, np.diff(steps) > 0)
    kept[-1] = True
    return points[kept]


def random_drawings(count: int, seed: int = 0) -> np.ndarray:
    """Return drawings of random smooth strokes, of shape (count, 28, 28).

    Patches of them show lines, ends, corners and crossings, without the shapes of any alphabet.
    """
    random = np.random.default_rng(seed)
    time = np.linspace(0, 1, 24)
    images = []
    for _ in range(count):
        strokes = []
        for _ in range(random.integers(1, 4)):
            knots = random.uniform(0.1, 0.9, (random.integers(2, 6), 2))
            places = np.linspace(0, 1, len(knots))
            bend = random.random() < 0.7 and len(knots) > 2
            curve = CubicSpline(places, knots)(time) if bend else _polyline(places, knots, time)
            strokes.append(curve)
        images.append(draw(strokes)[0])
    return np.stack(images)


def _polyline(places: np.ndarray, knots: np.ndarray, time: np.ndarray) -> np.ndarray:
    return np.stack([np.interp(time, places, knots[:, axis]) for axis in range(2)], 1)


def embedded_digits() -> tuple[np.ndarray, list[str]]:
    """Return scikit-learn's handwritten digits as drawings."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = []
    for small in digits.images / 16:
        large = zoom(np.pad(small, 1), 2.4, order=3)  # 8 pixels become about 19
        ink = ((large - 0.5) / 0.3).clip(0, 1)
        row, column = center_of_mass(ink)
        image = np.zeros((SIDE, SIDE))
        top, left = (
            min(max(round((SIDE - 1) / 2 - middle), 0), SIDE - len(ink)) for middle in (row, column)
        )
        image[top : top + len(ink), left : left + len(ink)] = ink
        images.append(np.rint(255 * image).astype(np.uint8))
    return np.stack(images), [str(label) for label in digits.target]
