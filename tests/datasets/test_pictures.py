"""Pictures of all kinds become the pixels that one sees."""

import numpy as np
import pytest

from tensorswitch.datasets import DataError, _pictures

labelled_pictures, read_pictures = _pictures.labelled_pictures, _pictures.read_pictures

Image = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_white(tmp_path, mode):
    pixels = np.zeros((8, 8, 4), dtype=np.uint8)
    pixels[2:5, 3:7, 3] = 255  # a black shape on a ground that cannot be seen
    if mode == "P":  # the first colour of the palette, all of which are black, cannot be seen
        picture = Image.frombytes("P", (8, 8), (pixels[..., 3] > 0).tobytes())
        picture.putpalette([0, 0, 0] * 256)
        picture.save(tmp_path / "a.png", transparency=0)
    else:
        Image.fromarray(pixels).convert(mode).save(tmp_path / "a.png")
    found = read_pictures(tmp_path / "a.png").images[0]
    expected = np.where(pixels[..., 3] > 0, 0, 255)
    np.testing.assert_array_equal(found, np.broadcast_to(expected, found.shape))


def test_numbers_between_zero_and_one_are_shades(tmp_path):
    shades = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
    Image.fromarray(shades).save(tmp_path / "a.tif")
    found = read_pictures(tmp_path / "a.tif").images[0, 0]
    np.testing.assert_allclose(found, 255 * shades, atol=1)


@pytest.mark.parametrize("order", ["<u2", ">u2"])
def test_pictures_of_16_bits_are_scaled_to_8(tmp_path, order):
    values = np.linspace(0, 65535, 64).reshape(8, 8).astype(order)
    mode = "I;16" if order == "<u2" else "I;16B"
    Image.frombytes(mode, (8, 8), values.tobytes()).save(tmp_path / "a.tif")
    found = read_pictures(tmp_path / "a.tif").images
    assert found.shape == (1, 1, 8, 8)
    np.testing.assert_allclose(found[0, 0], values / 257.0, atol=1)


def test_turned_photographs_keep_their_proportions(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    for name in ("a.jpg", "b.jpg"):
        Image.new("RGB", (64, 48)).save(tmp_path / name, exif=exif)
    assert read_pictures(tmp_path).images.shape == (2, 3, 64, 48)


def test_a_picture_that_ends_early_is_named(tmp_path):
    for name in ("a", "b"):
        Image.fromarray(np.full((40, 30), 9, np.uint8)).save(tmp_path / f"{name}.png")
    (tmp_path / "b.png").write_bytes((tmp_path / "a.png").read_bytes()[:60])
    with pytest.raises(DataError, match=r"b\.png cannot be read as a picture"):
        read_pictures(tmp_path)


def test_an_orientation_that_is_no_number_is_none(tmp_path, monkeypatch):
    Image.fromarray(np.full((8, 6), 9, np.uint8)).save(tmp_path / "a.jpg")
    monkeypatch.setattr(Image.Image, "getexif", lambda picture: {0x0112: "up"})
    assert read_pictures(tmp_path).images.shape == (1, 1, 8, 6)


def test_parts_to_train_validate_and_test_with(tmp_path):
    for part, count in (("train", 3), ("val", 2), ("test", 1)):
        for name in ("cat", "dog"):
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            for i in range(count):
                Image.fromarray(np.full((8, 8), 9 * i, np.uint8)).save(folder / f"{i}.png")
    pictures, test, notes = labelled_pictures(tmp_path)
    assert pictures.labels == [*["cat"] * 3, *["dog"] * 3, "cat", "cat", "dog", "dog", "cat", "dog"]
    assert test.tolist() == [10, 11]
    assert notes == [
        "12 pictures as 8 × 8 grey",
        "pictures of train and val are learned from, those of test are for testing",
    ]
    (tmp_path / "more").mkdir()
    with pytest.raises(DataError, match="so that more cannot be classes"):
        labelled_pictures(tmp_path)
