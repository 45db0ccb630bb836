"""Readers of data files.

A file that cannot be read raises :class:`DataError` with its name. Nothing is unpickled.
"""

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
    """Raised for data that is missing, damaged or not in the expected format."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Convert errors of any library to a :class:`DataError` that names the file.

    Parameters
    ----------
    path : Path
        The file that is being read.

    Yields
    ------
    None
        Control, once.
    """
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"{path} does not exist") from None
    except Exception as error:  # each library raises its own errors for damaged files
        reason = f"{type(error).__name__}: {error}"
        raise DataError(
            f"{path} cannot be read; it may be truncated or in another format ({reason})"
        ) from error


def read_idx(path: Path) -> np.ndarray:
    """Read an array of bytes in IDX format.

    Parameters
    ----------
    path : Path
        The file, compressed if it ends in ``.gz``.

    Returns
    -------
    ndarray of uint8
        The array.
    """
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
                f"{path} has {len(raw)} bytes, expected {expected} for an array of {shape}: "
                "it is truncated or corrupt"
            )
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def read_cifar10(path: Path, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Read batches of the binary distribution of CIFAR-10.

    Parameters
    ----------
    path : Path
        A folder with ``.bin`` files, or the archive, which is read without being unpacked.
    names : list of str
        Names of the batches.

    Returns
    -------
    images : ndarray of uint8 of shape (rows, 3, 32, 32)
        The images.
    labels : ndarray of int64 of shape (rows,)
        The labels.
    """
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
                f"{file_path} has {len(raw)} bytes, which is not a positive multiple of "
                f"{CIFAR_BYTES}: it is truncated or corrupt"
            )
    records = np.frombuffer(b"".join(raw for _, raw in parts), np.uint8).reshape(-1, CIFAR_BYTES)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def read_svhn(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read images and labels of SVHN from a ``.mat`` file.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    images : ndarray of uint8 of shape (rows, 3, 32, 32)
        The images.
    labels : ndarray of int64 of shape (rows,)
        The digits. The file stores 0 as 10.
    """
    import scipy.io

    with reading(path):
        content = scipy.io.loadmat(path, variable_names=["X", "y"])
        images, labels = content["X"], content["y"].reshape(-1)
        if images.ndim != 4 or images.dtype != np.uint8 or images.shape[:3] != (32, 32, 3):
            raise DataError(
                f"{path}: X is {images.dtype} of shape {images.shape}, "
                "expected uint8 of shape (32, 32, 3, rows)"
            )
        return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), labels.astype(np.int64) % 10


def read_npy(path: Path) -> np.ndarray:
    """Read the array of a ``.npy`` file.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    ndarray
        The array.
    """
    with reading(path):
        return np.asarray(np.load(path, allow_pickle=False))


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of an ``.npz`` file.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    dict of str to ndarray
        The arrays by name.
    """
    with reading(path), path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def read_table(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read features and labels from a CSV or Parquet table.

    Parameters
    ----------
    path : Path
        The file. The labels are in the first column named ``label``, ``labels``, ``class``,
        ``target`` or ``y``, or else in the last column.

    Returns
    -------
    features : ndarray of float32 of shape (rows, columns)
        The other columns.
    labels : ndarray of shape (rows,)
        The labels.
    """
    try:
        import pandas as pd
    except ImportError:
        raise DataError(
            f"{path}: reading tables requires pandas; "
            "install it with: pip install 'tensorswitch[tables]'"
        ) from None

    read: Callable[[Path], pd.DataFrame] = pd.read_csv if path.suffix == ".csv" else pd.read_parquet
    with reading(path):
        try:
            frame = read(path)
        except pd.errors.EmptyDataError:
            raise DataError(
                f"{path} is empty; expected a line of column names and rows of features and labels"
            ) from None
    if frame.shape[1] < 2:
        raise DataError(f"{path} has {frame.shape[1]} column, expected features and labels")
    named = [column for column in frame.columns if str(column).lower() in LABEL_COLUMNS]
    label = named[0] if named else frame.columns[-1]
    features = frame.drop(columns=label)
    numeric = pd.api.types.is_numeric_dtype
    words = [str(c) for c in features.columns if not numeric(features[c])]
    if words:
        raise DataError(
            f"{path}: the columns {', '.join(words)} are not numeric (labels were taken from "
            f"{label!r}); encode or drop them"
        )
    holes = [
        f"{c} (row {int(features[c].isna().argmax()) + 1})"
        for c in features.columns
        if features[c].isna().any()
    ]
    if holes:
        raise DataError(
            f"{path}: values are missing in {', '.join(holes)}; impute them or drop the rows"
        )
    if frame[label].isna().any():
        raise DataError(f"{path}: the label column {label!r} has missing values")
    return features.to_numpy(np.float32), frame[label].to_numpy()
