import numpy as np
import pytest

from apps.teach import Lesson, draw, random_drawings
from apps.teach.lesson import check_label
from tensorswitch.estimators import (
    TSConvRidgeClassifier,
    TSRidgeClassifier,
    load_estimator,
    save_estimator,
)
from tests.headers import rewritten


def noisy(points, count, seed):
    """Drawings of one shape, none like another."""
    random = np.random.default_rng(seed)
    shape = np.array(points, dtype=float)
    return [draw([shape + random.normal(0, 0.03, shape.shape)])[0] for _ in range(count)]


SHAPES = {
    "bar": [[0.5, 0.1], [0.5, 0.9]],
    "minus": [[0.1, 0.5], [0.9, 0.5]],
    "vee": [[0.1, 0.1], [0.5, 0.9], [0.9, 0.1]],
    "zed": [[0.1, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.9]],
}


def test_features_of_any_fitted_model():
    images = random_drawings(40, 1)
    model = TSConvRidgeClassifier(64, alpha=1.0, random_state=0).fit(images, np.arange(40) % 2)
    lesson = Lesson(model)
    for label, points in SHAPES.items():
        lesson.add(noisy(points, 1, 0)[0], label)
    assert lesson.answer(noisy(SHAPES["bar"], 1, 1)[0]).gates > 0
    assert lesson.accuracy() is None  # no label has two drawings


@pytest.fixture
def lesson():
    found = Lesson()
    for seed, (label, points) in enumerate(SHAPES.items()):
        for image in noisy(points, 4, seed):
            found.add(image, label)
    return found


def outputs(lesson, images):
    return lesson.model.decision_function(images)


def test_it_learns_shapes_from_four_drawings_each(lesson):
    for seed, (label, points) in enumerate(SHAPES.items()):
        for image in noisy(points, 5, 100 + seed):
            assert lesson.answer(image).labels[0] == label


def test_nothing_is_said_before_there_are_two_labels():
    lesson, images = Lesson(), random_drawings(3)
    assert lesson.answer(images[0]) is None
    assert lesson.accuracy() is None
    lesson.add(images[0], "a")
    lesson.add(images[1], "a")
    assert lesson.answer(images[0]) is None
    lesson.add(images[2], "b")
    assert lesson.answer(images[2]).labels[0] == "b"


def test_one_by_one_equals_all_at_once(lesson):
    whole = Lesson.of(lesson.images, lesson.labels)
    np.testing.assert_allclose(
        outputs(lesson, lesson.images), outputs(whole, lesson.images), atol=1e-9
    )
    assert lesson.accuracy() == whole.accuracy()


@pytest.mark.parametrize("kept", [lambda n: n % 3, lambda n: n >= 4, lambda n: n < 8])
def test_forgetting_equals_never_having_seen(lesson, kept):
    """Single drawings, all drawings of a label, and all but two labels."""
    images, labels = lesson.images, list(lesson.labels)
    rows = [n for n in range(len(labels)) if kept(n)]
    for number in set(lesson.numbers) - set(rows):
        lesson.remove(number)
    expected = Lesson.of(images[rows], [labels[n] for n in rows])
    np.testing.assert_allclose(outputs(lesson, images), outputs(expected, images), atol=1e-9)
    for image in images[:3]:
        np.testing.assert_allclose(
            lesson.answer(image).probabilities, expected.answer(image).probabilities, atol=1e-6
        )


def test_when_the_last_but_one_label_goes_there_is_no_model():
    lesson = Lesson()
    images = random_drawings(2)
    first, second = lesson.add(images[0], "a"), lesson.add(images[1], "b")
    lesson.remove(second)
    assert lesson.model is None
    lesson.remove(first)
    assert lesson.labels == []
    with pytest.raises(KeyError, match="no drawing 0"):
        lesson.remove(first)


def test_contributions_add_up_to_the_output(lesson):
    image = noisy(SHAPES["vee"], 1, 7)[0]
    found = lesson.answer(image)
    place = list(lesson.model.classes_).index("vee")
    explained = lesson.model.explain(image[None])
    total = found.contributions.sum() + explained.constant[0, place]
    np.testing.assert_allclose(total, outputs(lesson, image[None])[0, place], atol=1e-9)
    assert 0 < found.open_gates < found.gates


def test_a_refused_drawing_changes_nothing(lesson):
    before = outputs(lesson, lesson.images), list(lesson.labels), lesson.numbers[:]
    image = lesson.images[0]
    for label in ("", "  ", "x" * 21, "a\x1b[2J", None, 7):
        with pytest.raises(ValueError, match="label"):
            lesson.add(image, label)
    with pytest.raises(ValueError, match="uint8"):
        lesson.add(image.astype(float), "bar")
    with pytest.raises(ValueError, match="shape"):
        lesson.add(image[:27], "bar")
    np.testing.assert_array_equal(outputs(lesson, lesson.images), before[0])
    assert (lesson.labels, lesson.numbers) == before[1:]


def test_labels_are_normalised():
    assert check_label(" e\u0301 ") == "é"


def test_too_many_drawings_and_labels_are_refused(lesson, monkeypatch):
    image = lesson.images[0]
    monkeypatch.setattr("apps.teach.lesson.MOST_LABELS", 4)
    with pytest.raises(ValueError, match="at most 4 labels"):
        lesson.add(image, "new")
    monkeypatch.setattr("apps.teach.lesson.MOST_DRAWINGS", 16)
    with pytest.raises(ValueError, match="at most 16 drawings"):
        lesson.add(image, "bar")
    assert len(lesson.labels) == 16


def test_saved_lessons_continue_exactly(lesson, tmp_path):
    path = tmp_path / "shapes.safetensors"
    lesson.save(path)
    again = Lesson.load(path)
    assert again.labels == lesson.labels
    np.testing.assert_array_equal(again.images, lesson.images)
    image = noisy(SHAPES["zed"], 1, 9)[0]
    again.add(image, "zed")
    lesson.add(image, "zed")
    np.testing.assert_allclose(
        outputs(again, lesson.images), outputs(lesson, lesson.images), atol=1e-9
    )
    model = load_estimator(path)  # usable without the page
    assert model.predict(image[None])[0] == "zed"


def test_other_files_are_refused(lesson, tmp_path):
    path = tmp_path / "other.safetensors"
    X = np.random.default_rng(0).normal(size=(20, 3))
    save_estimator(TSRidgeClassifier(4, random_state=0).fit(X, X[:, 0] > 0), path)
    with pytest.raises(ValueError, match="not one of drawings"):
        Lesson.load(path)
    save_estimator(lesson.model, path)
    with pytest.raises(ValueError, match="without its drawings"):
        Lesson.load(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="damaged"):
        Lesson.load(path)
    save_estimator(lesson.model, path, drawings=np.zeros((2, 5, 5), np.uint8), labels=["a", "b"])
    with pytest.raises(ValueError, match="shape"):
        Lesson.load(path)


def test_a_lesson_without_a_model_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="two labels"):
        Lesson().save(tmp_path / "none.safetensors")
    assert not list(tmp_path.iterdir())


def test_exported_drawings_are_data(lesson, tmp_path):
    from tensorswitch import compare

    path = tmp_path / "drawings.npz"
    path.write_bytes(lesson.npz())
    found = compare.load_problem(str(path))
    assert len(found) == 16
    assert list(found.class_names) == sorted(SHAPES)
    assert found.is_image


def test_nothing_is_not_exported():
    with pytest.raises(ValueError, match="no drawings to export"):
        Lesson().npz()


def test_a_file_that_lacks_something_is_named(lesson, tmp_path):
    lesson.save(tmp_path / "a.safetensors")
    rewritten(tmp_path / "a.safetensors", lambda header: header["value"]["state"].pop("fitted"))
    with pytest.raises(ValueError, match=r"a\.safetensors"):
        Lesson.load(tmp_path / "a.safetensors")
