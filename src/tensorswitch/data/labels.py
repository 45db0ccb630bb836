"""Names of classes, which may be written in a table as numbers."""

from __future__ import annotations

from collections.abc import Collection

from tensorswitch.data._text import FORMATS, converted, is_missing

__all__ = ["class_name", "number_name"]


def number_name(value: float) -> str:
    """Return a number as it would be written, without a decimal point if it is whole.

    Parameters
    ----------
    value : float
        The number.

    Returns
    -------
    str
        The text.
    """
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def class_name(cell: str, known: Collection[str], written: str = "") -> str | None:
    """Return the class that a cell of a table names.

    Parameters
    ----------
    cell : str
        The cell.
    known : collection of str
        Names of the classes.
    written : str, optional
        How numbers are written, if not in the usual way.

    Returns
    -------
    str or None
        One of the known names if the cell is one, or a number such as 1.0 where "1" is; otherwise
        the cell. None if the value is missing.
    """
    cell = cell.strip()
    if cell in known:
        return cell
    if is_missing(cell):
        return None
    number = converted([cell], written if FORMATS.get(written) == "number" else "number")
    return cell if number is None else number_name(number[0])
