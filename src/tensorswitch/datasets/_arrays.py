"""The user's own arrays: ``.npz`` and ``.npy`` files, and folders in the format of MNIST."""

from pathlib import Path

import numpy as np

from tensorswitch.datasets._dataset import Dataset
from tensorswitch.datasets._files import DataError, read_idx_folder, read_npz, reading

LOST = 1e-4  # of the spread of a feature, beyond which rounding it to float32 matters
TEST_SHARE = 0.3
FEWEST = 10  # rows of which some are held out
BESIDE = {"x": "y.npy", "X": "y.npy", "images": "labels.npy"}  # files of labels
PARTS = (
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("x", "y"),
)


def load_arrays(path: str | Path) -> Dataset:
    """Return the data set of a file of arrays or a folder of IDX files, with a share for tests."""
    path = Path(path)
    if path.is_dir():
        images, labels, test_images, test_labels = read_idx_folder(path)
        classes = tuple(str(i) for i in range(int(max(labels.max(), test_labels.max())) + 1))
        return Dataset(path.name, images, labels, test_images, test_labels, classes)
    arrays = _arrays(path)
    for keys in PARTS:
        if set(keys) <= set(arrays):
            return _labelled(path, *(arrays[key] for key in keys))
    if path.suffix == ".npy":
        what = "save the rows as x.npy and the labels as y.npy in the same folder"
        raise DataError(f"{path} has no labels: {what} (or images.npy and labels.npy)")
    names = ", ".join(arrays) or "no arrays"
    raise DataError(f"{path} contains {names}; expected {', '.join(PARTS[0])}, or x and y")


def read_rows(path: str | Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Read rows to predict, and their labels if the file has them."""
    path = Path(path)
    arrays = _arrays(path)
    if "x" not in arrays:
        whole = load_arrays(path)
        return whole.test_images, np.array(whole.class_names)[whole.test_labels]
    rows, labels = _as_rows(path, arrays["x"], wide=True), arrays.get("y")
    if labels is None:
        return rows, None
    if labels.size != len(rows):
        raise DataError(f"{path}: y has shape {labels.shape}, expected one label per row of x")
    return rows, _as_text(path, labels).reshape(-1)


def held_out(target: np.ndarray, classes: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return 70 % of the rows for training and 30 % for testing, with all classes in the former."""
    from sklearn.model_selection import train_test_split

    every = np.arange(len(target))
    if not classes:
        train, test = train_test_split(every, test_size=TEST_SHARE, random_state=0)
        return np.sort(train), np.sort(test)
    counts = np.bincount(target)
    alone, others = every[counts[target] == 1], every[counts[target] > 1]
    if not len(others):
        raise DataError("each row has a class of its own; there is nothing to learn")
    room = np.ceil(TEST_SHARE * len(others)) >= (counts > 1).sum()
    labels = target[others] if room else None
    train, test = train_test_split(others, test_size=TEST_SHARE, random_state=0, stratify=labels)
    lost = np.setdiff1d(target[test], target[train])
    moved = [test[target[test] == label][0] for label in lost]
    train = np.concatenate([train, alone, np.array(moved, dtype=int)])
    return np.sort(train), np.setdiff1d(every, train)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file by name, with the labels in the file beside a ``.npy``."""
    if path.suffix == ".npz":
        return read_npz(path)
    arrays, beside = {}, path.with_name(BESIDE.get(path.stem, path.name))
    for name, file in {"x": path, "y": beside}.items():
        if name == "x" or (file != path and file.exists()):
            with reading(file):
                arrays[name] = np.asarray(np.load(file, allow_pickle=False))
    return arrays


def _labelled(path: Path, x: np.ndarray, y: np.ndarray, *test: np.ndarray) -> Dataset:
    """Convert labels of any type to indices, and hold out a test set if there is none."""
    for labels in (y, *test[1:]):
        if labels.ndim == 2 and labels.shape[1] > 1:
            what = "appear to be one-hot; use one label per row, as given by y.argmax(1)"
            raise DataError(f"{path}: labels of shape {labels.shape} {what}")
    x = _as_rows(path, x)
    every = np.concatenate([_as_text(path, labels).reshape(-1) for labels in (y, *test[1:])])
    if len(x) != y.size:
        raise DataError(f"{path}: {len(x)} rows but {y.size} labels")
    if every.dtype.kind == "f":
        if not (np.isfinite(every).all() and (every == every.round()).all()):
            what = "some labels are fractions, missing or infinite; labels must name classes"
            raise DataError(f"{path}: {what}")
        if (largest := np.abs(every).max(initial=0)) > 2**53:
            what = "not exact as floating-point numbers; use integers or strings"
            raise DataError(f"{path}: labels as large as {largest:.3g} are {what}")
        every = every.astype(np.int64)  # 1.0 and 1 are the same class
    names, codes = np.unique(every, return_inverse=True)
    if len(names) < 2:
        what = names[0] if len(names) else "missing"
        raise DataError(f"{path}: all labels are {what}; at least two classes are required")
    classes = tuple(map(str, names))
    if not test:
        if len(x) < FEWEST:
            what = f"at least {FEWEST} are required to hold out a test set"
            raise DataError(f"{path} has only {len(x)} rows; {what}")
        train, held = held_out(codes, classes=True)
        return Dataset(path.stem, x[train], codes[train], x[held], codes[held], classes)
    x_test = _as_rows(path, test[0], wide=x.dtype == np.float64)
    if x_test.dtype != x.dtype:
        what = f"training images are {x.dtype} but test images are {x_test.dtype}"
        raise DataError(f"{path}: {what}; use the same type, since uint8 is scaled as pixels")
    return Dataset(path.stem, x, codes[: len(x)], x_test, codes[len(x) :], classes)


def _as_text(path: Path, labels: np.ndarray) -> np.ndarray:
    """Return labels of bytes as text, and others as they are."""
    if labels.dtype.kind != "S":
        return labels
    try:
        return np.char.decode(labels, "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: labels of bytes must be text in UTF-8 ({error})") from error


def _as_rows(path: Path, x: np.ndarray, wide: bool | None = None) -> np.ndarray:
    """Convert rows to images with channels first or to features, float64 if ``wide``, or uint8."""
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
        if wide is None:  # whether float32 would lose them, as it would Unix times
            with np.errstate(over="ignore", invalid="ignore"):
                rounding = np.abs(exact - exact.astype(np.float32)).max(0, initial=0.0)
                spread = exact.std(0)
                wide = bool(((rounding > LOST * spread) & (spread > 0)).any())
        if wide:
            return exact
    return x.astype(np.float32)
