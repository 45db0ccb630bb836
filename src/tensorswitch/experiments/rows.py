"""Rows of a file for a model that was trained on others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tensorswitch.data import (
    NAMES,
    DataError,
    Table,
    TableEncoder,
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
from tensorswitch.experiments.predictions import Predictions
from tensorswitch.experiments.predictor import Predictor

__all__ = ["NewRows", "predict_rows", "read_rows"]


class NewRows(NamedTuple):
    """Rows of a file, and what the file says of them.

    Parameters
    ----------
    rows : Table or ndarray
        Raw rows in the order of the file.
    truth : ndarray or None
        Names of the right classes or right numbers, if the file has them.
    ids : list or None
        What identifies the rows.
    id_name : str
        Name of that column.
    what : str
        What the rows are, for messages.
    notes : list of str
        Columns that are missing or new, and how the file was read.
    """

    rows: Table | np.ndarray
    truth: np.ndarray | None
    ids: list[Any] | None
    id_name: str
    what: str
    notes: list[str]


def predict_rows(
    predictor: Predictor, data: str | Path, id_column: str | None = None
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
    """
    rows = read_rows(predictor, data, id_column)
    predictions = predictor.predict(rows.rows)
    return replace(predictions, truth=rows.truth), rows


def read_rows(predictor: Predictor, data: str | Path, id_column: str | None = None) -> NewRows:
    """Read rows for a model.

    Parameters
    ----------
    predictor : Predictor
        The model.
    data : str or Path
        As in :func:`predict_rows`.
    id_column : str, optional
        As in :func:`predict_rows`.

    Returns
    -------
    NewRows
        The rows.
    """
    if isinstance(predictor.encoder, TableEncoder):
        return _table_rows(predictor, predictor.encoder, data, id_column)
    if id_column is not None:
        raise DataError(f"the model was not trained on a table, so there is no column {id_column}")
    rows = _array_rows(predictor, Path(data), str(data))
    array = rows.rows
    assert isinstance(array, np.ndarray)
    if not len(array):
        raise DataError(f"{data} has no rows to predict")
    # Numbers of all types are alike; bytes are scaled as pixels.
    if predictor.row_type and (array.dtype == np.uint8) != (predictor.row_type == "uint8"):
        raise DataError(
            f"{data} contains {array.dtype}, but the model was trained on {predictor.row_type}; "
            "use the same type, since bytes are scaled as pixels"
        )
    if not np.isfinite(array).all():
        raise DataError(f"{data} contains NaN or infinity")
    return rows


def _table_rows(
    predictor: Predictor, encoder: TableEncoder, data: str | Path, id_column: str | None
) -> NewRows:
    path = Path(data)
    if not path.exists():
        raise DataError(f"{path} does not exist")
    if path.is_dir() or not is_table(path):
        raise DataError(f"{path} is not a table, but the model was trained on one")
    asked = id_column or predictor.id_name
    target = predictor.target_name
    kinds = dict(encoder.kinds)
    if asked:
        kinds[asked] = "words" if asked in kinds else "text"
    regression = predictor.class_names is None
    kinds[target] = (predictor.target_written or "number") if regression else "text"
    table = read_table(path, kinds)
    notes = list(table.notes)
    if id_column is not None:
        table.column(id_column)
    missing, new = encoder.differences(table.without([target]))
    new = [name for name in new if name != asked]
    if len(missing) == len(encoder.columns):
        raise DataError(
            f"{path} has none of the columns that the model was trained on: "
            f"{', '.join(missing[:8])}{' …' if len(missing) > 8 else ''}"
        )
    if missing:
        notes.append(f"missing columns, which count as missing values: {', '.join(missing)}")
    if new:
        notes.append(f"new columns, which are not used: {', '.join(new)}")
    notes += encoder.surprises(table)
    truth = _truth(table, target, predictor) if target in table.columns else None
    ids = list(table.columns[asked]) if asked in table.columns else None
    return NewRows(table, truth, ids, asked if ids else "row", f"rows of {path}", notes)


def _truth(table: Table, target: str, predictor: Predictor) -> np.ndarray | None:
    """Return the true targets, or None if they are missing in some rows."""
    values = table.columns[target]
    if predictor.class_names is None:
        if values.dtype.kind != "f":
            raise DataError(f"{table.name}: the target {target!r} is not a column of numbers")
        return None if np.isnan(values).any() else values
    known, written = set(predictor.class_names), predictor.target_written
    named = {cell: class_name(cell, known, written) for cell in set(values)}
    return None if None in named.values() else np.array([named[cell] for cell in values])


def _array_rows(predictor: Predictor, path: Path, name: str) -> NewRows:
    if name not in NAMES and (is_picture(path) or (path.is_dir() and not _idx(path))):
        if not path.exists():
            raise DataError(f"{path} does not exist")
        shape = predictor.row_shape
        if len(shape) != 3:
            raise DataError(f"{path} has pictures, but the model was trained on rows of numbers")
        path = pictures_to_test(path) or path
        pictures = read_pictures(path, (shape[0], shape[1], shape[2]))
        truth = None if pictures.labels is None else np.array(pictures.labels)
        what = f"pictures of {path}"
        return NewRows(pictures.images, truth, pictures.files, "file", what, [])
    if path.suffix == ".npy":
        beside = labels_beside(path)
        y = None if beside is None else read_npy(beside)
        return _labelled_rows(path, read_npy(path), y)
    if path.suffix == ".npz":
        arrays = {key.lower(): value for key, value in read_npz(path).items()}
        if "x" in arrays:
            return _labelled_rows(path, arrays["x"], arrays.get("y"))
    content = load(name)
    truth = np.array(content.class_names)[content.test_labels]
    return NewRows(content.test_images, truth, None, "row", f"test rows of {name}", [])


def _labelled_rows(path: Path, x: np.ndarray, y: np.ndarray | None) -> NewRows:
    rows, truth = as_rows(path, x, wide=True), None
    if y is not None:
        if y.size != len(rows):
            raise DataError(f"{path}: y has shape {y.shape}, expected one label per row of x")
        labels = as_text(path, y).reshape(-1)
        named = labels.dtype.kind in "fiu"
        truth = np.array([number_name(v) if named else str(v) for v in labels])
    return NewRows(rows, truth, None, "row", f"rows of {path}", [])


def _idx(path: Path) -> bool:
    return any(path.glob("*-ubyte*"))
