"""Data of any kind for networks and the paper's protocol, by name or from a file."""

from collections.abc import Iterable
from pathlib import Path

from tensorswitch import datasets
from tensorswitch.datasets import Dataset
from tensorswitch.datasets._arrays import load_arrays

__all__ = ["load"]


def load(
    name: str | Path,
    *,
    extra: bool = False,
    download: bool = True,
    target: str | None = None,
    ignore: Iterable[str] = (),
) -> Dataset:
    """Load a data set by its name, or from a file or folder.

    Parameters
    ----------
    name : str or Path
        One of "digits" (included in scikit-learn), "mnist", "fashion-mnist", "cifar10" and "svhn",
        or a path as in :func:`tensorswitch.compare.load_problem`. The columns of a table are
        encoded as numbers, see :class:`tensorswitch.tables.TableEncoder`.

        If there is no test set, 30 % of the rows are held out as one.
    extra, download : bool
        As in :func:`tensorswitch.datasets.load`.
    target : str, optional
        Column of a table with the labels; by default the one called ``label``, ``class``,
        ``target`` or ``y``, or else the last.
    ignore : iterable of str, default=()
        Columns of a table that are not features.

    Returns
    -------
    Dataset
        The data set.

    Examples
    --------
    >>> from tensorswitch.data import load
    >>> load("digits")
    Dataset('digits', 1257 + 540 rows of (1, 8, 8), 10 classes)
    """
    path, ignored = Path(name), [*ignore]
    if not (target or ignored):
        if str(name) in datasets.NAMES:
            return datasets.load(str(name), extra=extra, download=download)
        if path.suffix in (".npz", ".npy") or (path.is_dir() and any(path.glob("*-ubyte*"))):
            return load_arrays(path)
    from tensorswitch.compare import load_problem

    return load_problem(name, target=target, ignore=ignored).dataset()
