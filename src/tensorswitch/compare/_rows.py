"""Rows of a file for a model that was trained on others."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tensorswitch.compare._metrics import Predictions
from tensorswitch.compare._predictor import Predictor, check_array
from tensorswitch.compare._problem import true_target
from tensorswitch.datasets import NAMES, DataError, load
from tensorswitch.datasets._arrays import read_rows
from tensorswitch.datasets._pictures import is_picture, pictures_to_test, read_pictures
from tensorswitch.tables import read_table
from tensorswitch.tables._read import is_table


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
        check_array(predictor, data, rows.rows)
    x = predictor.encoder(rows.rows)
    return replace(predictor.predict(x, encoded=True), truth=rows.truth), rows


def _table_rows(predictor: Predictor, path: Path, asked: str | None, sep: str | None) -> NewRows:
    """Read a table, of which the encoder knows how its columns are written."""
    if not path.exists():
        raise DataError(f"{path} does not exist")
    if path.is_dir() or not is_table(path):
        raise DataError(f"{path} is not a table, but the model was trained on one")
    encoder, target = predictor.encoder, predictor.target_name
    table, _, notes = read_table(path, sep)
    if asked is not None and asked not in table:
        raise DataError(f"{path} has no column {asked!r}")
    asked = asked or predictor.id_name  # which a new file need not have
    try:
        notes += encoder.describe_differences(table, besides=(asked, target))
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    classes, written = predictor.class_names, predictor.target_written
    truth = true_target(table[target], classes, written) if target in table else None
    ids = list(map(str, table[asked])) if asked in table else None
    return NewRows(table, truth, ids, asked if ids else "row", f"rows of {path}", notes)


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
        return NewRows(pictures.images, truth, pictures.files, "file", f"pictures of {path}", [])
    if path.suffix in (".npy", ".npz"):
        rows, labels = read_rows(path)
        truth = None if labels is None else labels.astype(str)
        return NewRows(rows, truth, None, "row", f"rows of {path}", [])
    content = load(name)
    truth = np.array(content.class_names)[content.test_labels]
    return NewRows(content.test_images, truth, None, "row", f"test rows of {name}", [])
