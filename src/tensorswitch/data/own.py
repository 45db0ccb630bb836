"""The user's own data: tables, arrays, and folders of images."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tensorswitch.data._held_out import held_out
from tensorswitch.data.dataset import Dataset
from tensorswitch.data.images import read_pictures
from tensorswitch.data.problem import FEWEST, Problem, table_problem
from tensorswitch.data.readers import DataError, read_idx_folder, read_npy, read_npz
from tensorswitch.data.tables import is_table

__all__ = ["as_rows", "as_text", "labels_beside", "own_dataset", "own_problem"]

ARRAYS = (".npz", ".npy")
LOST = 1e-4  # of the spread of a feature, beyond which rounding it to float32 matters
TESTS = ("test", "val", "valid", "validation")  # folders of pictures, the first is for testing


def own_problem(
    path: Path,
    *,
    target: str | None = None,
    ignore: Iterable[str] = (),
    id_column: str | None = None,
    task: str | None = None,
) -> Problem:
    """Return the rows of a file or folder and what is to be predicted for them.

    Parameters
    ----------
    path : Path
        A file or folder as in :func:`tensorswitch.data.load`.
    target, ignore, id_column, task : various
        For tables, as in :func:`tensorswitch.data.table_problem`.

    Returns
    -------
    Problem
        The problem.
    """
    _check_format(path)
    if path.is_file() and is_table(path):
        return table_problem(path, target, ignore=ignore, id_column=id_column, task=task)
    given = {"target": target, "ignore": [*ignore], "id_column": id_column, "task": task}
    check_no_columns(path, given)
    if path.is_dir() and not any(path.glob("*-ubyte*")):
        return _picture_problem(path)
    return Problem.from_dataset(_arrays(path))


def own_dataset(path: Path, *, target: str | None = None, ignore: Iterable[str] = ()) -> Dataset:
    """Return the data set of a file or folder.

    Parameters
    ----------
    path : Path
        A file or folder as in :func:`tensorswitch.data.load`.
    target, ignore : various
        For tables, as in :func:`tensorswitch.data.table_problem`.

    Returns
    -------
    Dataset
        The data set.
    """
    _check_format(path)
    if (path.is_file() and not is_table(path)) or any(path.glob("*-ubyte*")):
        check_no_columns(path, {"target": target, "ignore": list(ignore)})
        return _arrays(path)
    return own_problem(path, target=target, ignore=ignore).dataset()


def _check_format(path: Path) -> None:
    if path.is_file() and path.suffix not in ARRAYS and not is_table(path):
        raise DataError(
            f"{path} has an unknown format; supported are tables (.csv, .tsv, .parquet, .arrow), "
            ".npz, .npy and folders with images or IDX files"
        )


def check_no_columns(name: str | Path, options: dict[str, Any]) -> None:
    """Raise if options for tables were given for data without named columns.

    Parameters
    ----------
    name : str or Path
        Name of the data.
    options : dict
        Options by name.
    """
    if wrong := [option for option, value in options.items() if value]:
        raise DataError(
            f"{name} is not a table with named columns, so {wrong[0]} does not apply to it"
        )


def pictures_to_test(path: Path) -> Path | None:
    """Return the folder of pictures to test with, if there is one beside a folder to train with.

    Parameters
    ----------
    path : Path
        A folder, or a file.

    Returns
    -------
    Path or None
        The folder.
    """
    parts = _parts(path) if path.is_dir() else {}
    held = [parts[name] for name in TESTS if name in parts]
    return held[0] if held and "train" in parts else None


def _parts(path: Path) -> dict[str, Path]:
    folders = (p for p in path.iterdir() if p.is_dir() and not p.name.startswith((".", "__")))
    return {p.name.lower(): p for p in folders}


def _picture_problem(path: Path) -> Problem:
    """Return the problem of a folder of pictures, with its test rows if it has a folder of them."""
    parts = _parts(path)
    held = [name for name in TESTS if name in parts]
    given = "train" in parts and bool(held)
    pictures = [read_pictures(parts["train"] if given else path)]
    if given:
        if unused := sorted(parts[name].name for name in set(parts) - {"train", *held}):
            raise DataError(
                f"{path} has folders train and {held[0]}, so that {', '.join(unused)} cannot be "
                "classes; expected only folders of pictures to train and to test with"
            )
        shape = pictures[0].images.shape[1:]
        size = shape[0], shape[1], shape[2]
        # Those to validate with are learned from, as each method holds out rows of its own.
        pictures += [read_pictures(parts[name], size) for name in (*held[1:], held[0])]
    labels: list[str] = []
    for part in pictures:
        if part.labels is None:
            raise DataError(
                f"the pictures of {path} are not in folders; expected a folder for each class"
            )
        labels += part.labels
    names, codes = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        raise DataError(f"{path}: all pictures are of class {names[0]}; two classes are required")
    images = np.concatenate([part.images for part in pictures])
    if not given and len(images) < FEWEST:
        raise DataError(
            f"{path} has only {len(images)} pictures; at least {FEWEST} are required to hold out "
            "a test set"
        )
    test = np.arange(len(images) - len(pictures[-1].images), len(images)) if given else None
    shades = "grey" if images.shape[1] == 1 else "colour"
    notes = [f"{len(images)} pictures as {images.shape[2]} × {images.shape[3]} {shades}"]
    if given:
        parts_used = " and ".join(["train", *held[1:]])
        notes.append(
            f"pictures of {parts_used} are learned from, those of {held[0]} are for testing"
        )
    classes = tuple(map(str, names))
    target = codes.astype(np.int64)
    name = path.resolve().name
    return Problem(name, images, target, classes, given_test=test, notes=tuple(notes))


def _arrays(path: Path) -> Dataset:
    """Return the data set of a file of arrays or a folder of IDX files."""
    if path.is_dir():
        images, labels, test_images, test_labels = read_idx_folder(path)
        classes = tuple(str(i) for i in range(int(max(labels.max(), test_labels.max())) + 1))
        return Dataset(path.name, images, labels, test_images, test_labels, classes)
    if path.suffix == ".npz":
        arrays = {key.lower(): value for key, value in read_npz(path).items()}
        for keys in (
            ("x_train", "y_train", "x_test", "y_test"),
            ("train_images", "train_labels", "test_images", "test_labels"),
        ):
            if set(keys) <= set(arrays):
                return _labelled(path, *(arrays[key] for key in keys))
        if {"x", "y"} <= set(arrays):
            return _labelled(path, arrays["x"], arrays["y"])
        raise DataError(
            f"{path} contains {', '.join(arrays) or 'no arrays'}; "
            "expected x_train, y_train, x_test, y_test, or x and y"
        )
    if path.suffix == ".npy":
        labels_path = labels_beside(path)
        if labels_path is None:
            raise DataError(
                f"{path} has no labels: save the rows as x.npy and the labels as y.npy in the same "
                "folder (or images.npy and labels.npy)"
            )
        return _labelled(path, read_npy(path), read_npy(labels_path))
    raise AssertionError(f"the format of {path} has been checked")


def labels_beside(path: Path) -> Path | None:
    """Return the file with the labels of the rows in a ``.npy`` file.

    Parameters
    ----------
    path : Path
        The file with the rows.

    Returns
    -------
    Path or None
        The file next to it, or None if there is none.
    """
    name = {"x": "y.npy", "X": "y.npy", "images": "labels.npy"}.get(path.stem)
    return path.with_name(name) if name and path.with_name(name).exists() else None


def _labelled(
    path: Path,
    x: np.ndarray,
    y: np.ndarray,
    x_test: np.ndarray | None = None,
    y_test: np.ndarray | None = None,
) -> Dataset:
    """Convert labels of any type to indices, and hold out a test set if there is none."""
    for labels in (y, y_test):
        if labels is not None and labels.ndim == 2 and labels.shape[1] > 1:
            raise DataError(
                f"{path}: labels of shape {labels.shape} appear to be one-hot; "
                "use one label per row, as given by y.argmax(1)"
            )
    y, y_test = as_text(path, y), None if y_test is None else as_text(path, y_test)
    x, y = as_rows(path, x), y.reshape(-1)
    if len(x) != len(y):
        raise DataError(f"{path}: {len(x)} rows but {len(y)} labels")
    every = y if y_test is None else np.concatenate([y, y_test.reshape(-1)])
    if every.dtype.kind == "f" and not (
        np.isfinite(every).all() and (every == every.round()).all()
    ):
        raise DataError(
            f"{path}: some labels are fractions, missing or infinite; labels must name classes"
        )
    if every.dtype.kind == "f" and np.abs(every).max(initial=0) > 2**53:
        raise DataError(
            f"{path}: labels as large as {np.abs(every).max():.3g} are not exact as floating-point "
            "numbers; use integers or strings"
        )
    if every.dtype.kind == "f":
        every = every.astype(np.int64)  # 1.0 and 1 are the same class
    names, codes = np.unique(every, return_inverse=True)
    if len(names) < 2:
        raise DataError(
            f"{path}: all labels are {names[0] if len(names) else 'missing'}; "
            "at least two classes are required"
        )
    if x_test is None:
        if len(x) < 10:
            raise DataError(
                f"{path} has only {len(x)} rows; at least 10 are required to hold out a test set"
            )
        train, held = held_out(codes, classes=True)
        classes = tuple(map(str, names))
        return Dataset(path.stem, x[train], codes[train], x[held], codes[held], classes)
    test = as_rows(path, x_test, wide=x.dtype == np.float64)
    if test.dtype != x.dtype:
        raise DataError(
            f"{path}: training images are {x.dtype} but test images are {test.dtype}; use the same "
            "type for both, since uint8 is scaled as pixels"
        )
    return Dataset(path.stem, x, codes[: len(y)], test, codes[len(y) :], tuple(map(str, names)))


def as_text(path: Path, labels: np.ndarray) -> np.ndarray:
    """Return labels of bytes as text, and others as they are.

    Parameters
    ----------
    path : Path
        The file of the labels, for error messages.
    labels : ndarray
        Labels of any type.

    Returns
    -------
    ndarray
        The labels.
    """
    if labels.dtype.kind != "S":
        return labels
    try:
        return np.char.decode(labels, "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: labels of bytes must be text in UTF-8 ({error})") from error


def as_rows(path: Path, x: np.ndarray, wide: bool | None = None) -> np.ndarray:
    """Convert rows to images with channels first, or to features.

    Parameters
    ----------
    path : Path
        The file of the rows, for error messages.
    x : ndarray
        Rows of features, (rows, height, width), or images with the channels first or last.
    wide : bool, optional
        Whether features become float64. By default, if float32 would lose them, as those far from
        zero compared with their spread (Unix times).

    Returns
    -------
    ndarray
        Bytes stay uint8; all other types become float32, or float64 if they are wide.
    """
    if x.dtype.kind not in "fiub":
        raise DataError(f"{path}: rows must be numeric, got {x.dtype}")
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[3] in (1, 3, 4) and x.shape[1] not in (1, 3, 4):
        x = x.transpose(0, 3, 1, 2)
    elif x.ndim not in (2, 4):
        raise DataError(f"{path}: rows of shape {x.shape[1:]} are neither features nor images")
    if x.dtype == np.uint8:
        return x
    if x.ndim == 2 and x.dtype not in (np.float16, np.float32):
        exact = x.astype(np.float64, copy=False)
        if _loses_digits(exact) if wide is None else wide:
            return exact
    return x.astype(np.float32)


def _loses_digits(x: np.ndarray) -> bool:
    """Return whether rounding to float32 changes a feature by more than a trace of its spread."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounding, spread = np.abs(x - x.astype(np.float32)).max(0, initial=0.0), x.std(0)
        return bool(((rounding > LOST * spread) & (spread > 0)).any())
