"""Rows of a file for a model that was trained on others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tensorswitch.compare._metrics import Predictions
from tensorswitch.compare._predictor import Predictor
from tensorswitch.data import (
    NAMES,
    DataError,
    as_rows,
    as_text,
    is_picture,
    is_table,
    labels_beside,
    load,
    read_pictures,
    read_table,
)
from tensorswitch.data.labels import class_name, number_name
from tensorswitch.data.own import pictures_to_test
from tensorswitch.data.readers import read_npy, read_npz


class NewRows(NamedTuple):
    """Rows of a file in their order, what is true of them, if it is known, and what names them.

    ``what`` they are is for messages; ``notes`` say which columns are missing or new.
    """

    rows: Any
    truth: np.ndarray | None
    ids: list[Any] | None
    id_name: str
    what: str
    notes: list[str]


def predict_rows(
    predictor: Predictor, data: str | Path, id_column: str | None = None, sep: str | None = None
) -> tuple[Predictions, NewRows]:
    """Predict all rows of a file.

    Parameters
    ----------
    predictor : Predictor
        The model.
    data : str or Path
        A table, an ``.npy`` or ``.npz`` file, a picture, a folder of pictures, or a data set, of
        which the test rows are used.
    id_column : str, optional
        Column of a table that identifies rows; by default the one that was given in training.
    sep : str, optional
        What separates the columns of a table, if it is not found.

    Returns
    -------
    predictions : Predictions
        In the order of the rows, with the truth if the file has it.
    rows : NewRows
        The rows.

    Raises
    ------
    DataError
        If the rows cannot be read or do not fit the model.

    Examples
    --------
    >>> from tensorswitch.compare import load_problem, predict_rows, train
    >>> predictor, _ = train(load_problem("digits"), "linear", holdout=True)
    >>> predictions, rows = predict_rows(predictor, "digits")
    >>> rows.what, len(predictions)
    ('test rows of digits', 540)
    """
    if predictor.is_table:
        rows = _table_rows(predictor, Path(data), id_column, sep)
    elif id_column is not None:
        raise DataError(f"the model was not trained on a table, so there is no column {id_column}")
    else:
        rows = _array_rows(predictor, Path(data), str(data))
        _check_array(predictor, data, rows.rows)
    return replace(predictor.predict(rows.rows), truth=rows.truth), rows


def _table_rows(
    predictor: Predictor, path: Path, id_column: str | None, sep: str | None
) -> NewRows:
    """Read a table as the training rows were written."""
    if not path.exists():
        raise DataError(f"{path} does not exist")
    if path.is_dir() or not is_table(path):
        raise DataError(f"{path} is not a table, but the model was trained on one")
    encoder, target = predictor.encoder, predictor.target_name
    asked = id_column or predictor.id_name
    kinds = dict(encoder.kinds)
    if asked:
        kinds[asked] = "words" if asked in kinds else "text"
    regression = predictor.class_names is None
    kinds[target] = (predictor.target_written or "number") if regression else "text"
    table = read_table(path, kinds, **({} if sep is None else {"sep": sep}))
    notes = list(table.notes)
    if id_column is not None:
        table.column(id_column)
    missing, new = encoder.differences(table.without([target]))
    new = [name for name in new if name != asked]
    if len(missing) == len({*encoder.sources}):
        raise DataError(
            f"{path} has none of the columns that the model was trained on: "
            f"{', '.join(missing[:8])}{' …' if len(missing) > 8 else ''}"
        )
    if missing:
        notes.append(f"missing columns, which count as missing values: {', '.join(missing)}")
    if new:
        notes.append(f"new columns, which are not used: {', '.join(new)}")
    notes += encoder.describe_unseen(table)
    truth = _truth(table, target, predictor) if target in table.columns else None
    ids = list(table.columns[asked]) if asked in table.columns else None
    return NewRows(table, truth, ids, asked if ids else "row", f"rows of {path}", notes)


def _truth(table: Any, target: str, predictor: Predictor) -> np.ndarray | None:
    """Return the true targets, or None if they are missing in some rows."""
    values = table.columns[target]
    if predictor.class_names is None:
        if values.dtype.kind != "f":
            raise DataError(f"{table.name}: the target {target!r} is not a column of numbers")
        return None if np.isnan(values).any() else values
    known, written = set(predictor.class_names), predictor.target_written
    named = {cell: class_name(cell, known, written) for cell in set(values)}
    return None if None in named.values() else np.array([named[cell] for cell in values])


def columns_of(encoder: Any) -> list[str]:
    """Return the names of the columns that an encoder uses, in the order of its ``sources``."""
    return [getattr(column, "name", column) for column in encoder.columns]


def cell(rows: Any, column: str, row: int) -> str:
    """Return a cell of a table as text; "?" if it is missing."""
    value = np.asarray(rows[column])[row]
    if value is None or str(value) in ("NaT", "<NA>", "nan"):
        return "?"
    return number_name(round(float(value), 6)) if isinstance(value, float) else str(value)


def _check_array(predictor: Predictor, data: str | Path, rows: np.ndarray) -> None:
    """Raise if rows are not like those of training."""
    if not len(rows):
        raise DataError(f"{data} has no rows to predict")
    # Numbers of all types are alike; bytes are scaled as pixels.
    if (rows.dtype == np.uint8) != (predictor.row_type == "uint8"):
        raise DataError(
            f"{data} contains {rows.dtype}, but the model was trained on {predictor.row_type}; "
            "use the same type, since bytes are scaled as pixels"
        )
    if rows.shape[1:] != tuple(predictor.row_shape):
        raise DataError(
            f"{data} has rows of shape {rows.shape[1:]}, but the model was trained on "
            f"{tuple(predictor.row_shape)}"
        )
    if not np.isfinite(rows).all():
        raise DataError(f"{data} contains NaN or infinity")


def _array_rows(predictor: Predictor, path: Path, name: str) -> NewRows:
    """Read pictures, arrays or a data set."""
    is_idx = any(path.glob("*-ubyte*"))
    if name not in NAMES and (is_picture(path) or (path.is_dir() and not is_idx)):
        if not path.exists():
            raise DataError(f"{path} does not exist")
        if len(predictor.row_shape) != 3:
            raise DataError(f"{path} has pictures, but the model was trained on rows of numbers")
        channels, height, width = predictor.row_shape
        path = pictures_to_test(path) or path
        pictures = read_pictures(path, (channels, height, width))
        truth = None if pictures.labels is None else np.array(pictures.labels)
        what = f"pictures of {path}"
        return NewRows(pictures.images, truth, pictures.files, "file", what, [])
    if path.suffix == ".npy":
        beside = labels_beside(path)
        return _labelled_rows(path, read_npy(path), None if beside is None else read_npy(beside))
    if path.suffix == ".npz":
        arrays = {key.lower(): value for key, value in read_npz(path).items()}
        if "x" in arrays:
            return _labelled_rows(path, arrays["x"], arrays.get("y"))
    content = load(name)
    truth = np.array(content.class_names)[content.test_labels]
    return NewRows(content.test_images, truth, None, "row", f"test rows of {name}", [])


def _labelled_rows(path: Path, x: np.ndarray, y: np.ndarray | None) -> NewRows:
    """Return rows of an array with their labels, if there are any."""
    rows, truth = as_rows(path, x, wide=True), None
    if y is not None:
        if y.size != len(rows):
            raise DataError(f"{path}: y has shape {y.shape}, expected one label per row of x")
        labels = as_text(path, y).reshape(-1)
        named = labels.dtype.kind in "fiu"
        truth = np.array([number_name(v) if named else str(v) for v in labels])
    return NewRows(rows, truth, None, "row", f"rows of {path}", [])
