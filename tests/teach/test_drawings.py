import numpy as np
import pytest

from apps.teach import draw, embedded_digits, random_drawings
from apps.teach.drawings import SIDE

CROSS = [np.array([[0.2, 0.2], [0.8, 0.8]]), np.array([[0.8, 0.2], [0.2, 0.8]])]


@pytest.mark.parametrize(("factor", "shift"), [(1, 0.1), (0.5, 0.3), (0.45, 0)])
def test_place_and_size_do_not_matter(factor, shift):
    expected, _ = draw(CROSS)
    found, _ = draw([factor * stroke + shift for stroke in CROSS])
    np.testing.assert_allclose(found.astype(int), expected.astype(int), atol=1)


def test_the_centre_of_mass_is_in_the_middle():
    hook = [np.array([[0.1, 0.1], [0.1, 0.9], [0.3, 0.9]])]
    image = draw(hook)[0].astype(float)
    y, x = np.mgrid[:SIDE, :SIDE]
    middle = (SIDE - 1) / 2
    assert abs((x * image).sum() / image.sum() - middle) < 0.5
    assert abs((y * image).sum() / image.sum() - middle) < 0.5


def test_a_dot_stays_small():
    dot, _ = draw([np.array([[0.5, 0.5]])])
    assert 0 < (dot > 0).sum() < 16
    small, _ = draw([np.array([[0.5, 0.5], [0.51, 0.5]])])
    assert (small > 0).sum() < 20


def test_points_map_to_the_pixels_with_ink():
    image, frame = draw(CROSS)
    for stroke in CROSS:
        x, y = frame.pixels(stroke).astype(int).T
        assert (image[y, x] > 127).all()


def test_random_drawings_depend_on_the_seed_alone():
    first, again, other = random_drawings(3, 1), random_drawings(3, 1), random_drawings(3, 2)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert first.dtype == np.uint8
    assert first.shape == (3, SIDE, SIDE)


def test_embedded_digits_fill_the_box():
    images, labels = embedded_digits()
    assert images.shape == (1797, SIDE, SIDE)
    assert sorted(set(labels)) == list("0123456789")
    share = (images > 127).mean(axis=(1, 2))
    assert (share > 0.02).all()
    assert (share < 0.4).all()
