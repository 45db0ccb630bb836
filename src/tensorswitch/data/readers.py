"""Readers of files. Whatever is wrong with one, the error names it; nothing is unpickled."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

CIFAR_BYTES = 3073  # a label and 3 × 32 × 32 pixels
LABEL_COLUMNS = ("label", "labels", "class", "target", "y")


class DataError(ValueError):
    """Data that is missing, broken or not as expected."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Errors of any library become one that names the file."""
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"{path} is not there") from None
    except Exception as error:  # each library has its own way to say that a file is broken
        raise DataError(
            f"{path} cannot be read; it may be truncated or of another kind ({type(error).__name__}: {error})"
        ) from error


def read_idx(path: Path) -> np.ndarray:
    """An array of bytes in IDX format, gzipped or plain."""
    with reading(path):
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
            raise DataError(f"{path} is not an IDX file of unsigned bytes")
        axes = raw[3]
        if len(raw) < 4 + 4 * axes:
            raise DataError(f"{path} is truncated: it ends before the sizes of its {axes} axes")
        shape = tuple(int(n) for n in np.frombuffer(raw, ">u4", axes, offset=4))
        expected = 4 + 4 * axes + int(np.prod(shape))
        if len(raw) != expected:
            raise DataError(
                f"{path} has {len(raw)} bytes, expected {expected} for an array of {shape}: it is truncated or corrupt"
            )
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def read_cifar10(path: Path, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of batches in the binary distribution: a folder of ``.bin`` files, or the archive, which is not unpacked."""
    parts = []
    with reading(path):
        if path.is_dir():
            parts = [(path / name, (path / name).read_bytes()) for name in names]
        else:
            with tarfile.open(path) as archive:
                members = {
                    Path(member.name).name: member
                    for member in archive.getmembers()
                    if member.isfile()
                }
                for name in names:
                    file = archive.extractfile(members[name]) if name in members else None
                    if file is None:
                        raise DataError(
                            f"{path} has no file {name}: is it the binary distribution of CIFAR-10?"
                        )
                    parts.append((path, file.read()))
    for file_path, raw in parts:
        if not raw or len(raw) % CIFAR_BYTES:
            raise DataError(
                f"{file_path} has {len(raw)} bytes, which is no multiple of {CIFAR_BYTES}: it is truncated or corrupt"
            )
    records = np.frombuffer(b"".join(raw for _, raw in parts), np.uint8).reshape(-1, CIFAR_BYTES)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def read_svhn(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of a ``.mat`` file; the label 10 stands for the digit 0."""
    import scipy.io

    with reading(path):
        content = scipy.io.loadmat(path, variable_names=["X", "y"])
        images, labels = content["X"], content["y"].reshape(-1)
        if images.ndim != 4 or images.dtype != np.uint8 or images.shape[:3] != (32, 32, 3):
            raise DataError(
                f"{path}: X is {images.dtype} of shape {images.shape}, expected uint8 of (32, 32, 3, rows)"
            )
        return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), labels.astype(np.int64) % 10


def read_npy(path: Path) -> np.ndarray:
    with reading(path):
        return np.asarray(np.load(path, allow_pickle=False))


def read_npz(path: Path) -> dict[str, np.ndarray]:
    with reading(path), path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def read_table(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of a CSV or Parquet table; the labels are in the column ``label``, ``class``, ``target`` or ``y``, or else in the last."""
    try:
        import pandas as pd
    except ImportError:
        raise DataError(
            f"{path}: tables are read with pandas, which is not installed; install it with: pip install 'tensorswitch[tables]'"
        ) from None

    read: Callable[[Path], pd.DataFrame] = pd.read_csv if path.suffix == ".csv" else pd.read_parquet
    with reading(path):
        try:
            frame = read(path)
        except pd.errors.EmptyDataError:
            raise DataError(
                f"{path} is empty; expected a line of column names, then rows of features and a label"
            ) from None
    if frame.shape[1] < 2:
        raise DataError(f"{path} has {frame.shape[1]} column, expected features and labels")
    named = [column for column in frame.columns if str(column).lower() in LABEL_COLUMNS]
    label = named[0] if named else frame.columns[-1]
    features = frame.drop(columns=label)
    if words := [
        str(c) for c in features.columns if not pd.api.types.is_numeric_dtype(features[c])
    ]:
        raise DataError(
            f"{path}: the columns {', '.join(words)} are not numbers (labels were taken from {label!r}); encode or drop them"
        )
    if holes := [
        f"{c} (row {int(features[c].isna().argmax()) + 1})"
        for c in features.columns
        if features[c].isna().any()
    ]:
        raise DataError(
            f"{path}: values are missing in {', '.join(holes)}; fill them in or drop the rows"
        )
    if frame[label].isna().any():
        raise DataError(f"{path}: the label column {label!r} has missing values")
    return features.to_numpy(np.float32), frame[label].to_numpy()
