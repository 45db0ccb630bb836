import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

from tensorswitch.estimators import TSConvRidgeClassifier, load_estimator, save_estimator
from tensorswitch.estimators import _image_settings as settings
from tensorswitch.features import as_images

SMALL = {"features": 256, "grid": 2, "sizes": (2, 3, 4), "flips": False}


@pytest.fixture(scope="module")
def digits():
    content = load_digits()
    return (content.images * 15).astype(np.uint8), content.target


def test_digits_without_settings(digits):
    images, y = digits
    model = TSConvRidgeClassifier().fit(images[:1000], y[:1000])
    assert model.score(images[1000:], y[1000:]) > 0.96
    assert not model.flips_
    p = model.predict_proba(images[1000:])
    np.testing.assert_allclose(p.sum(1), 1)
    assert -np.log(p[np.arange(797), y[1000:]]).mean() < 0.15


def test_layouts_of_images_give_the_same_model(digits):
    images, y = digits
    expected = TSConvRidgeClassifier(**SMALL).fit(images[:300], y[:300]).decision_function(images)
    for same, options in (
        (images[..., None], {}),
        (images[:, None], {}),
        (images.reshape(-1, 64), {"image_shape": (8, 8)}),
    ):
        model = TSConvRidgeClassifier(**SMALL, **options).fit(same[:300], y[:300])
        np.testing.assert_array_equal(model.decision_function(same), expected)


def test_a_clone_with_the_same_seed_is_the_same(digits):
    images, y = digits
    model = TSConvRidgeClassifier(**SMALL).fit(images[:300], y[:300])
    again = clone(model).fit(images[:300], y[:300])
    np.testing.assert_array_equal(again.decision_function(images), model.decision_function(images))


def test_torch_network_computes_the_same(digits):
    images, y = digits
    model = TSConvRidgeClassifier(**SMALL).fit(images[:300], y[:300])
    network = model.to_torch()
    with torch.no_grad():
        outputs = network(as_images(images))
    np.testing.assert_allclose(outputs.numpy(), model.decision_function(images), atol=1e-4)
    loss = torch.nn.functional.cross_entropy(network(as_images(images)), torch.as_tensor(y))
    loss.backward()
    assert [p.grad is not None for p in network.parameters()] == [True, True]


def test_chunks_and_later_classes_give_the_model_of_all_images(digits):
    images, y = digits
    model = TSConvRidgeClassifier(**SMALL, dtype="float64")
    model.partial_fit(images[:200], y[:200], classes=np.arange(10))
    reference = model.decision_function(images)
    assert reference.shape == (1797, 10)
    early = y[200:] < 5
    late = TSConvRidgeClassifier(**SMALL, dtype="float64")
    late.partial_fit(images[:200], y[:200], classes=np.arange(10))
    model.partial_fit(images[200:], y[200:])
    late.partial_fit(images[200:][early], y[200:][early])
    late.partial_fit(images[200:][~early], y[200:][~early])
    np.testing.assert_allclose(
        late.decision_function(images), model.decision_function(images), atol=1e-8
    )


def test_removed_images_leave_no_trace(digits):
    images, y = digits
    model = TSConvRidgeClassifier(**SMALL, dtype="float64")
    model.partial_fit(images[:200], y[:200], classes=np.arange(10))
    before = model.decision_function(images)
    alpha = model.alpha_
    model.partial_fit(images[200:300], y[200:300]).remove(images[200:300], y[200:300])
    assert model.alpha_ == pytest.approx(alpha, rel=1e-9)
    np.testing.assert_allclose(model.decision_function(images), before, atol=1e-9)


def test_mirror_images_count_as_rows(digits):
    images, y = digits
    flipped = TSConvRidgeClassifier(**{**SMALL, "flips": True}).fit(images[:300], y[:300])
    assert flipped.n_samples_seen_ == 300
    mirrored = flipped.decision_function(images[:300, :, ::-1])
    truth = mirrored.argmax(1) == y[:300]
    assert truth.mean() > 0.9


def test_flips_are_found_to_help_where_left_and_right_mean_nothing():
    random = np.random.default_rng(0)
    y = random.integers(0, 2, 900)
    images = random.random((900, 12, 12)) * 0.4
    for i in range(900):  # a bar that leans, in either direction, or a square
        place = random.integers(0, 7)
        if y[i]:
            bar = np.eye(5) if random.random() < 0.5 else np.eye(5)[:, ::-1]
            images[i, place : place + 5, place : place + 5] += bar
        else:
            images[i, place : place + 3, place : place + 3] += 0.5
    targets = torch.as_tensor(2.0 * y[:, None] - 1).float()
    found = settings.choose_settings(as_images(images), targets, 2, (3, 5), "auto", {}, 0)
    assert isinstance(found.flips, bool)
    arrow = np.where(y[:, None, None] == 1, np.arange(12.0), np.arange(11.0, -1, -1))
    left = as_images(images * 0.1 + arrow / 12)
    assert not settings.choose_settings(left, targets, 2, (3, 5), "auto", {}, 0).flips


def test_time_budget_picks_the_size(digits):
    images, y = digits
    quick = TSConvRidgeClassifier(grid=2, flips=False, time_budget=1e-3).fit(images[:300], y[:300])
    assert quick.bank_.out_features <= settings.CONSTANTS.ladder[0]
    with pytest.raises(ValueError, match="time_budget"):
        TSConvRidgeClassifier(time_budget=-1).fit(images[:300], y[:300])
    with pytest.raises(ValueError, match="all images at once"):
        TSConvRidgeClassifier(time_budget=9).partial_fit(images[:300], y[:300], classes=range(10))


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((20, 8, 8)), np.arange(20) % 2, "flat"),
        (np.random.default_rng(0).random((20, 1, 8)), np.arange(20) % 2, "finer than|smaller|flat"),
        (np.random.default_rng(0).random((20, 8, 8)), None, "y is missing"),
        (np.random.default_rng(0).random((20, 8, 8)), np.zeros(20), "2 classes"),
        (np.random.default_rng(0).random((20, 8, 8)), np.arange(19), "inconsistent"),
        (np.random.default_rng(0).random((20, 64)), np.arange(20) % 2, "image_shape"),
        (np.empty((0, 8, 8)), np.empty(0), "no images"),
        (np.full((20, 8, 8), np.nan), np.arange(20) % 2, "NaN"),
        ([np.zeros((8, 8)), np.zeros((9, 9))], [0, 1], "inhomogeneous|one size"),
    ],
)
def test_bad_input_is_named_and_leaves_the_model_unfitted(images, labels, message):
    model = TSConvRidgeClassifier(**SMALL)
    with pytest.raises(ValueError, match=message):
        model.fit(images, labels)
    with pytest.raises(NotFittedError):
        model.predict(np.zeros((1, 8, 8)))


def test_failed_partial_fit_leaves_the_sums_as_they_were(digits):
    images, y = digits
    model = TSConvRidgeClassifier(**SMALL).fit(images[:300], y[:300])
    before = model.decision_function(images)
    with pytest.raises(ValueError, match=r"\(7, 8, 1\).*\(8, 8, 1\)"):
        model.partial_fit(images[:5, 1:], y[:5])
    with pytest.raises(ValueError, match=r"\(8, 8, 3\).*\(8, 8, 1\)"):
        model.predict(np.zeros((2, 8, 8, 3)))
    np.testing.assert_array_equal(model.decision_function(images), before)


def test_too_little_memory_is_said(digits):
    images, y = digits
    with pytest.raises(MemoryError, match=r"needs .* GB for 300 rows and 256 features"):
        TSConvRidgeClassifier(**SMALL, solver="streaming", memory_gb=0.01).fit(
            images[:300], y[:300]
        )


@pytest.mark.parametrize(
    "options", [{}, {"copies": 3}, {"pool": "max"}, {"copies": 2, "pool": "max"}, {"power": 0.7}]
)
def test_contributions_of_pixels_add_up_to_the_outputs(digits, options):
    images, y = digits
    model = TSConvRidgeClassifier(**SMALL, dtype="float64", **options).fit(images[:200], y[:200])
    explanation = model.explain(images[:20])
    assert explanation.contributions.shape == (20, 10, 8, 8)
    np.testing.assert_allclose(explanation.outputs, model.decision_function(images[:20]), atol=1e-8)


def test_contributions_of_large_images_add_up():
    random = np.random.default_rng(0)
    images, y = random.random((40, 101, 60)), np.arange(40) % 2
    images[y == 1, :30] += 1
    model = TSConvRidgeClassifier(128, grid=2, flips=False, dtype="float64").fit(images, y)
    explanation = model.explain(images[:5])
    assert explanation.contributions.shape == (5, 1, 101, 60)
    expected = model.decision_function(images[:5])
    np.testing.assert_allclose(explanation.outputs[:, 0], expected, atol=1e-6)


@pytest.mark.parametrize("flips", [False, True])
def test_conjugate_gradients_give_the_readout_of_the_sums(digits, flips, tmp_path):
    images, y = digits
    options = {**SMALL, "flips": flips, "alpha": ("0.1 mean", "0.01 mean")}
    sums, free = (
        TSConvRidgeClassifier(**options, solver=solver).fit(images[:900], y[:900])
        for solver in ("streaming", "matrix-free")
    )
    expected = sums.decision_function(images)
    np.testing.assert_allclose(free.decision_function(images), expected, atol=0.02)
    np.testing.assert_allclose(free.predict_proba(images), sums.predict_proba(images), atol=0.05)
    save_estimator(free, tmp_path / "free.safetensors")
    again = load_estimator(tmp_path / "free.safetensors")
    np.testing.assert_array_equal(again.decision_function(images), free.decision_function(images))
    assert not hasattr(free, "remove")


def test_images_without_weight_do_not_count(digits):
    images, y = digits
    weight = (np.arange(300) % 3 > 0).astype(float)
    some = weight > 0
    weighted = TSConvRidgeClassifier(**SMALL).fit(images[:300], y[:300], weight)
    expected = TSConvRidgeClassifier(**SMALL).fit(images[:300][some], y[:300][some])
    np.testing.assert_allclose(
        weighted.decision_function(images), expected.decision_function(images), atol=1e-4
    )


def test_bytes_and_other_units_are_not_mixed(digits):
    images, y = digits
    model = TSConvRidgeClassifier(**SMALL).fit(images[:300], y[:300])
    fractions = images.astype(np.float32) / 255
    np.testing.assert_allclose(
        model.decision_function(fractions), model.decision_function(images), atol=1e-4
    )
    with pytest.raises(ValueError, match="values up to 240, but the model was fitted to bytes"):
        model.predict(images.astype(float))
    floats = TSConvRidgeClassifier(**SMALL).fit(images[:300].astype(float), y[:300])
    with pytest.raises(ValueError, match=r"images are bytes .* fitted to values up to 240"):
        floats.predict(images)


def test_sparse_images_are_refused(digits):
    images, y = digits
    with pytest.raises(TypeError, match="images cannot be sparse"):
        TSConvRidgeClassifier(image_shape=(8, 8)).fit(csr_array(images.reshape(-1, 64)), y)


@pytest.mark.parametrize("width", [2, 3])
def test_thin_images_have_a_grid_that_suits(digits, width):
    images, labels = digits[0][:300, :, :width], digits[1][:300]
    model = TSConvRidgeClassifier(features=64, random_state=0).fit(images, labels)
    assert model.score(images, labels) > 0.15


@pytest.mark.parametrize("fitted", ["bytes", "fractions"])
def test_images_are_removed_as_bytes_or_as_fractions(digits, fitted):
    images, y = digits
    kinds = {"bytes": images, "fractions": images / 255.0}
    given, other = kinds.pop(fitted), kinds.popitem()[1]
    options = {**SMALL, "dtype": "float64", "flips": False}
    model, expected = (TSConvRidgeClassifier(**options).fit(given[:300], y[:300]) for _ in "ab")
    model.remove(other[:60], y[:60])
    expected.remove(given[:60], y[:60])
    np.testing.assert_allclose(
        model.predict_proba(images), expected.predict_proba(images), atol=1e-6
    )
    assert model.cv_score_ == expected.cv_score_


def test_small_integers_are_taken_as_they_are():
    images, y = load_digits().images[:300], load_digits().target[:300]
    model = TSConvRidgeClassifier(**SMALL).fit(images, y)
    expected = model.decision_function(images)
    for kind in (np.int8, np.int16):
        np.testing.assert_array_equal(model.decision_function(images.astype(kind)), expected)


def test_flat_rows_may_have_their_channels_first(digits):
    images, y = digits[0][:300], digits[1][:300]
    colours = np.stack([images, 255 - images, images // 2], axis=1)
    expected = TSConvRidgeClassifier(**SMALL).fit(colours, y)
    model = TSConvRidgeClassifier(**SMALL, image_shape=(3, 8, 8))
    model.fit(colours.reshape(300, -1), y)
    assert model.image_shape_ == expected.image_shape_ == (8, 8, 3)
    found = model.decision_function(colours.reshape(300, -1))
    np.testing.assert_array_equal(found, expected.decision_function(colours))
