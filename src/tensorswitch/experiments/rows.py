"""Rows of a file for a model that was trained on others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tensorswitch.compare._problem import true_target
from tensorswitch.data import load
from tensorswitch.datasets import NAMES, DataError
from tensorswitch.datasets._arrays import read_rows as read_arrays
from tensorswitch.datasets._pictures import is_picture, pictures_to_test, read_pictures
from tensorswitch.experiments.predictions import Predictions
from tensorswitch.experiments.predictor import Predictor
from tensorswitch.tables import TableEncoder, read_table
from tensorswitch.tables._read import is_table

__all__ = ["NewRows", "predict_rows", "read_rows"]


class NewRows(NamedTuple):
    """Rows of a file, and what the file says of them.

    Parameters
    ----------
    rows : DataFrame or ndarray
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

    rows: Any
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
    table, _, notes = read_table(path)
    if id_column is not None and id_column not in table:
        raise DataError(f"{path} has no column {id_column!r}")
    missing, new = encoder.differences(table)
    new = [name for name in new if name not in (asked, target)]
    if len(missing) == len(encoder.columns):
        raise DataError(
            f"{path} has none of the columns that the model was trained on: "
            f"{', '.join(missing[:8])}{' …' if len(missing) > 8 else ''}"
        )
    if missing:
        notes.append(f"missing columns, which count as missing values: {', '.join(missing)}")
    if new:
        notes.append(f"new columns, which are not used: {', '.join(new)}")
    notes += encoder.describe_unseen(table)
    classes, written = predictor.class_names, predictor.target_written
    truth = true_target(table[target], classes, written) if target in table else None
    ids = table[asked].astype(str).tolist() if asked in table else None
    return NewRows(table, truth, ids, asked if ids else "row", f"rows of {path}", notes)


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
    if path.suffix in (".npy", ".npz"):
        rows, labels = read_arrays(path)
        truth = None if labels is None else labels.astype(str)
        return NewRows(rows, truth, None, "row", f"rows of {path}", [])
    content = load(name)
    truth = np.array(content.class_names)[content.test_labels]
    return NewRows(content.test_images, truth, None, "row", f"test rows of {name}", [])


def _idx(path: Path) -> bool:
    return any(path.glob("*-ubyte*"))
