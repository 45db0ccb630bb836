"""Readers of data files, which name what they cannot read, and unpickle nothing."""

import gzip
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

CIFAR_BYTES = 3073  # a label and 3 × 32 × 32 pixels
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # images and labels, those of tests


class DataError(ValueError):
    """Raised for data that is missing, damaged or not in the expected format."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Convert errors of any library to a :class:`DataError` that names the file."""
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"{path} does not exist") from None
    except Exception as error:  # each library raises its own errors for damaged files
        what = "cannot be read; it may be truncated or in another format"
        raise DataError(f"{path} {what} ({type(error).__name__}: {error})") from error


def read_idx(path: Path) -> np.ndarray:
    """Read an array of bytes in IDX format."""
    with reading(path):
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
            raise DataError(f"{path} is not an IDX file of unsigned bytes")
        axes = raw[3]
        shape = tuple(int(n) for n in np.frombuffer(raw, ">u4", axes, offset=4))
        expected = 4 + 4 * axes + int(np.prod(shape))
        if len(raw) != expected:
            what = f"{len(raw)} bytes, expected {expected} for an array of {shape}"
            raise DataError(f"{path} has {what}: it is truncated or corrupt")
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def read_idx_folder(folder: Path) -> Arrays:
    """Read the four IDX files of a data set in the format of MNIST."""
    parts = []
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            stem = folder / f"{part}-{kind}-ubyte"
            path = stem if stem.exists() else stem.with_name(stem.name + ".gz")
            parts.append(read_idx(path))
    images, labels, test_images, test_labels = parts
    names = ("training images", "training labels", "test images", "test labels")
    for name, array, axes in zip(names, parts, (3, 1, 3, 1), strict=True):
        if array.ndim != axes or not array.size:
            what = f"shape {array.shape}, expected {axes} non-empty axes"
            raise DataError(f"{folder}: the {name} have {what}")
    train = images[:, None], labels.astype(np.int64)
    return *train, test_images[:, None], test_labels.astype(np.int64)


def read_cifar10(path: Path, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Read batches of the binary distribution of CIFAR-10."""
    parts = []
    with reading(path):
        if path.is_dir():
            parts = [(path / name, (path / name).read_bytes()) for name in names]
        else:
            with tarfile.open(path) as archive:
                members = {Path(m.name).name: m for m in archive.getmembers() if m.isfile()}
                for name in names:
                    file = archive.extractfile(members[name]) if name in members else None
                    if file is None:
                        what = f"no file {name}: is it the binary distribution of CIFAR-10?"
                        raise DataError(f"{path} has {what}")
                    parts.append((path, file.read()))
    for file_path, raw in parts:
        if not raw or len(raw) % CIFAR_BYTES:
            what = f"{len(raw)} bytes, which is not a positive multiple of {CIFAR_BYTES}"
            raise DataError(f"{file_path} has {what}: it is truncated or corrupt")
    records = np.frombuffer(b"".join(raw for _, raw in parts), np.uint8).reshape(-1, CIFAR_BYTES)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def read_svhn(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read images and labels of SVHN from a ``.mat`` file."""
    import scipy.io

    with reading(path):
        content = scipy.io.loadmat(path, variable_names=["X", "y"])
        images, labels = content["X"], content["y"].reshape(-1)
        if images.ndim != 4 or images.dtype != np.uint8 or images.shape[:3] != (32, 32, 3):
            what = "expected uint8 of shape (32, 32, 3, rows)"
            raise DataError(f"{path}: X is {images.dtype} of shape {images.shape}, {what}")
        return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), labels.astype(np.int64) % 10


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of an ``.npz`` file by their names in lower case."""
    with reading(path), path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        return {key.lower(): file[key] for key in file.files}
