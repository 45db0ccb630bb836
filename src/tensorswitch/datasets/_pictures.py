"""Folders of images: one folder per class, pictures of any size."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tensorswitch.datasets._files import DataError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
TESTS = ("test", "val", "valid", "validation")  # folders, the first is for testing
SIDE = 32  # to which pictures are resized, unless all of them are of one smaller size
WIDE = ("I", "I;16", "I;16B", "I;16L", "I;16N", "F")  # modes of Pillow with more than 8 bits
GREY = ("1", "L", "LA", *WIDE)
ORIENTATION = 0x0112  # the EXIF tag; from 5 on, width and height are exchanged


class Pictures(NamedTuple):
    """Images of one size, their paths relative to the folder, and the folder of each, if any."""

    images: np.ndarray
    files: list[str]
    labels: list[str] | None


def is_picture(path: str | Path) -> bool:
    """Return whether a path has the suffix of a picture."""
    return Path(path).suffix.lower() in SUFFIXES


def read_pictures(path: str | Path, shape: tuple[int, int, int] | None = None) -> Pictures:
    """Read a picture, a folder of pictures, or a folder with a folder of pictures per class.

    Without a shape of (channels, height, width), pictures are grey if all are, and 32 × 32 unless
    all of them have one size of at most 64 × 64.
    """
    path = Path(path)
    root = path.parent if path.is_file() else path
    files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if _counts(f, path))
    if not files:
        what = f"has no pictures ({', '.join(SUFFIXES)}) in it; expected a folder for each class"
        raise DataError(f"the folder {path} {what}")
    nested = [file.parent != root for file in files]
    if any(nested) and not all(nested):
        loose = files[nested.index(False)]
        raise DataError(f"{loose} is not in a class folder, but other pictures in {path} are")
    shape = shape or _common_shape(files)
    images = np.stack([_read(file, shape) for file in files])
    labels = [file.relative_to(root).parts[0] for file in files] if any(nested) else None
    return Pictures(images, [str(file.relative_to(root)) for file in files], labels)


def labelled_pictures(path: Path) -> tuple[Pictures, np.ndarray | None, list[str]]:
    """Read a folder of classes, or parts to train and to test with: pictures, test rows, notes."""
    parts = _parts(path)
    # The first is for testing; others are learned from, as methods hold out rows of their own.
    held = [name for name in TESTS if name in parts]
    given = "train" in parts and bool(held)
    pictures = [read_pictures(parts["train"] if given else path)]
    if given:
        if unused := sorted(parts[name].name for name in set(parts) - {"train", *held}):
            raise DataError(
                f"{path} has folders train and {held[0]}, so that {', '.join(unused)} cannot be "
                "classes; expected only folders of pictures to train and to test with"
            )
        channels, height, width = pictures[0].images.shape[1:]
        names = (*held[1:], held[0])
        pictures += [read_pictures(parts[name], (channels, height, width)) for name in names]
    if any(part.labels is None for part in pictures):
        what = "are not in folders; expected a folder for each class"
        raise DataError(f"the pictures of {path} {what}")
    images = np.concatenate([part.images for part in pictures])
    files = [file for part in pictures for file in part.files]
    labels = [label for part in pictures for label in part.labels or []]
    shades = "grey" if images.shape[1] == 1 else "colour"
    notes = [f"{len(images)} pictures as {images.shape[2]} × {images.shape[3]} {shades}"]
    if not given:
        return Pictures(images, files, labels), None, notes
    learned = " and ".join(["train", *held[1:]])
    notes.append(f"pictures of {learned} are learned from, those of {held[0]} are for testing")
    test = np.arange(len(images) - len(pictures[-1].images), len(images))
    return Pictures(images, files, labels), test, notes


def pictures_to_test(path: Path) -> Path | None:
    """Return the folder of pictures to test with, if there is one beside a folder to train with."""
    parts = _parts(path) if path.is_dir() else {}
    held = [parts[name] for name in TESTS if name in parts]
    return held[0] if held and "train" in parts else None


def _parts(path: Path) -> dict[str, Path]:
    folders = (p for p in path.iterdir() if p.is_dir() and not p.name.startswith((".", "__")))
    return {p.name.lower(): p for p in folders}


def _counts(file: Path, root: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(root).parts)
    return is_picture(file) and not hidden and file.is_file()


def _common_shape(files: list[Path]) -> tuple[int, int, int]:
    sizes, grey = set(), True
    for file in files:
        with _opened(file) as picture:
            found = picture.getexif().get(ORIENTATION, 1)  # a PNG is decoded for it
            turned = isinstance(found, int) and found > 4
            sizes.add(picture.size[::-1] if turned else picture.size)
            grey = grey and picture.mode in GREY
    (width, height), *others = sizes
    if others or max(width, height) > 2 * SIDE or min(width, height) < 2:
        width = height = SIDE
    return (1 if grey else 3, height, width)


def _read(file: Path, shape: tuple[int, int, int]) -> np.ndarray:
    """Return a picture as bytes of shape (channels, height, width)."""
    channels, height, width = shape
    with _opened(file) as picture:
        from PIL import Image, ImageOps

        picture = ImageOps.exif_transpose(picture)
        if picture.mode in WIDE:  # 16 bits or more, scaled to 8
            values = np.asarray(picture, dtype=np.float64)
            largest = values.max(initial=0)
            fractions = picture.mode == "F" and largest <= 1
            top = 1.0 if fractions else 65535.0 if largest > 255 else 255.0
            picture = Image.fromarray((values / top * 255).clip(0, 255).astype(np.uint8))
        elif picture.has_transparency_data:  # what cannot be seen may have any colour
            picture = picture.convert("RGBA")
            ground = Image.new("RGBA", picture.size, "white")
            picture = Image.alpha_composite(ground, picture)
        picture = picture.convert("L" if channels == 1 else "RGB")
        if picture.size != (width, height):
            picture = picture.resize((width, height), Image.Resampling.BILINEAR)
        pixels = np.asarray(picture, dtype=np.uint8)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    try:
        from PIL import Image

        with Image.open(file) as picture:
            yield picture
    except ImportError:
        what = "reading pictures needs Pillow; install it with: pip install 'tensorswitch[images]'"
        raise DataError(f"{file}: {what}") from None
    except Exception as error:  # Pillow raises whatever its decoders raise
        raise DataError(f"{file} cannot be read as a picture ({error})") from error
