import numpy as np
import pytest
from sklearn.decomposition import PCA

from tensorswitch.datasets import DataError, Dataset, load


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def test_the_protocol_centres_by_the_training_mean(digits):
    split = digits.protocol(validation=100)
    np.testing.assert_allclose(split.train.mean(0), 0, atol=1e-5)
    assert abs(split.validation.mean()) > 1e-4
    assert split.train.shape == (1157, 64)
    assert split.train.dtype == np.float32


def test_components_are_those_of_scikit_learn(digits):
    whole, split = digits.protocol(), digits.protocol(10)
    expected = PCA(10).fit(whole.train.astype(np.float64)).transform(whole.test)
    np.testing.assert_allclose(np.abs(split.test), np.abs(expected), atol=1e-4)


def test_the_shuffle_depends_on_the_seed_alone(digits):
    one, same, other = (digits.protocol(seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.train, same.train)
    assert (one.train_labels != other.train_labels).any()


@pytest.mark.parametrize("components", [None, 5])
def test_new_images_are_preprocessed_in_the_same_way(digits, components):
    split = digits.protocol(components)
    np.testing.assert_allclose(split.preparation(digits.test_images), split.test)
    with pytest.raises(DataError, match=r"images have shape \(1, 9, 9\) each"):
        split.preparation(np.zeros((2, 1, 9, 9), np.uint8))


def test_small_images_are_padded():
    images = np.full((20, 1, 28, 28), 255, np.uint8)
    data = Dataset("ones", images, np.arange(20) % 2, images, np.arange(20) % 2, ("a", "b"))
    split = data.protocol(flat=False)
    assert split.train.shape == (16, 1, 32, 32)
    assert split.preparation.mean[0, 1, 1] == 0
    assert split.preparation.mean[0, 2, 2] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"components": 0}, "components must be a positive integer"),
        ({"components": 65}, "at most 64 for 1006 rows"),
        ({"components": 5, "flat": False}, "components and flat=False exclude each other"),
        ({"validation": 1257}, "less than the number of training images, 1257"),
    ],
)
def test_wrong_arguments_are_named(digits, options, message):
    with pytest.raises(ValueError, match=message):
        digits.protocol(**options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_labels": np.zeros(3, int)}, "4 train images but 3 labels"),
        (
            {"test_images": np.zeros((0, 5)), "test_labels": np.zeros(0, int)},
            "there are no test images",
        ),
        (
            {"test_images": np.zeros((4, 6))},
            r"training images have shape \(5,\), but test images \(6,\)",
        ),
        (
            {"test_labels": np.array([0, 1, 2, 0])},
            "test labels range from 0 to 2, but there are 2 classes",
        ),
    ],
)
def test_inconsistent_data_raise(change, message):
    fields = {
        "train_images": np.zeros((4, 5)),
        "train_labels": np.zeros(4, int),
        "test_images": np.zeros((4, 5)),
        "test_labels": np.zeros(4, int),
    }
    with pytest.raises(DataError, match=message):
        Dataset("mine", **{**fields, **change}, class_names=("a", "b"))
