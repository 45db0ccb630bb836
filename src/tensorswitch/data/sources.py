"""Where data sets come from: scikit-learn, a folder, the cache, a download, or a path of the user."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tensorswitch.data.dataset import Dataset
from tensorswitch.data.readers import (
    DataError,
    read_cifar10,
    read_idx,
    read_npy,
    read_npz,
    read_svhn,
    read_table,
)

DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TEST_SHARE = 0.3  # where the data come without a test set


class Source(NamedTuple):
    """Mirrors, files with their SHA-256, and the reader of a folder with them."""

    mirrors: tuple[str, ...]
    files: dict[str, str]
    read: Callable[[Path, bool], tuple[np.ndarray, ...]]
    class_names: tuple[str, ...]
    optional: tuple[str, ...] = ()


def _read_idx_folder(folder: Path, extra: bool = False) -> tuple[np.ndarray, ...]:
    parts = []
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            stem = folder / f"{part}-{kind}-ubyte"
            path = stem if stem.exists() else stem.with_name(stem.name + ".gz")
            parts.append(read_idx(path))
    images, labels, test_images, test_labels = parts
    names = ("training images", "training labels", "test images", "test labels")
    for name, array, axes in zip(names, parts, (3, 1, 3, 1), strict=True):
        if array.ndim != axes or not array.size:
            raise DataError(
                f"{folder}: the {name} have shape {array.shape}, expected {axes} axes of at least one entry"
            )
    return (
        images[:, None],
        labels.astype(np.int64),
        test_images[:, None],
        test_labels.astype(np.int64),
    )


def _read_cifar_folder(folder: Path, extra: bool = False) -> tuple[np.ndarray, ...]:
    unpacked = folder / "cifar-10-batches-bin"
    path = unpacked if unpacked.is_dir() else folder / "cifar-10-binary.tar.gz"
    return *read_cifar10(path, [f"data_batch_{i}.bin" for i in range(1, 6)]), *read_cifar10(
        path, ["test_batch.bin"]
    )


def _read_svhn_folder(folder: Path, extra: bool = False) -> tuple[np.ndarray, ...]:
    train, test = (read_svhn(folder / f"{part}_32x32.mat") for part in ("train", "test"))
    if extra:
        more = read_svhn(folder / "extra_32x32.mat")
        train = np.concatenate([train[0], more[0]]), np.concatenate([train[1], more[1]])
    return *train, *test


SOURCES = {
    "mnist": Source(
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        {
            "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
        _read_idx_folder,
        DIGITS,
    ),
    "fashion-mnist": Source(
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        {
            "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
        _read_idx_folder,
        CLOTHES,
    ),
    "cifar10": Source(
        ("https://www.cs.toronto.edu/~kriz/",),
        {
            "cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
        },
        _read_cifar_folder,
        CIFAR,
    ),
    "svhn": Source(
        ("http://ufldl.stanford.edu/housenumbers/",),
        {
            "train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            "test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            "extra_32x32.mat": "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3",
        },
        _read_svhn_folder,
        DIGITS,
        ("extra_32x32.mat",),
    ),
}
NAMES = ("digits", *SOURCES)


def load(name: str | Path, *, extra: bool = False, download: bool = True) -> Dataset:
    """A data set by name, or the user's own by path.

    Parameters
    ----------
    name : "digits" (comes with scikit-learn), "mnist", "fashion-mnist", "cifar10", "svhn"; or a path to
        an ``.npz`` with ``x_train, y_train, x_test, y_test`` or ``x, y``;
        a ``.npy`` of rows with the labels beside it (``x.npy`` and ``y.npy``, or ``images.npy`` and ``labels.npy``);
        a ``.csv`` or ``.parquet`` table with a column of labels; a folder with the four IDX files.
        What comes without a test set gives three tenths of its rows to one.
    extra : join SVHN's ``extra`` images to the training images
    download : fetch what is neither in ``$TENSORSWITCH_DATA/<name>`` nor in the cache
    """
    if name == "digits":
        return _digits()
    if name in SOURCES:
        folder = fetch(str(name), extra=extra) if download else found(str(name), extra)
        if folder is None:
            raise DataError(_how_to_get(str(name), _files(str(name), extra)))
        images, labels, test_images, test_labels = SOURCES[str(name)].read(folder, extra)
        return Dataset(
            str(name), images, labels, test_images, test_labels, SOURCES[str(name)].class_names
        )
    path = Path(name)
    if not str(name) or not path.exists():
        known = ", ".join(NAMES)
        raise DataError(
            f"{str(name)!r} is neither a data set known by name ({known}) nor a file or folder that exists"
        )
    return _own(path)


def folders(name: str) -> list[Path]:
    """Where a data set is looked for: ``$TENSORSWITCH_DATA/<name>``, then the user's cache."""
    import pooch

    places = (
        [Path(os.environ["TENSORSWITCH_DATA"]) / name]
        if os.environ.get("TENSORSWITCH_DATA")
        else []
    )
    return [*places, Path(pooch.os_cache("tensorswitch")) / name]


def fetch(name: str, *, extra: bool = False, progress: bool = True) -> Path:
    """The folder with the files of a data set, which are downloaded and checked if they are not at hand."""
    import pooch

    if name not in SOURCES:
        raise DataError(
            f"there is nothing to fetch for {name!r}; to be fetched are {', '.join(SOURCES)}"
        )
    if (folder := found(name, extra)) is not None:
        return folder
    source, cache, files = SOURCES[name], folders(name)[-1], _files(name, extra)
    downloader = pooch.HTTPDownloader(progressbar=progress, timeout=60)
    for file in files:
        errors = []
        for mirror in source.mirrors:
            try:  # into a temporary file, which takes its name when the checksum is right
                pooch.retrieve(
                    mirror + file,
                    f"sha256:{source.files[file]}",
                    file,
                    cache,
                    downloader=downloader,
                )
                break
            except (
                Exception
            ) as error:  # whatever the network or the mirror does, the next mirror may do better
                reason = (
                    "the file there is not the expected one"
                    if isinstance(error, ValueError)
                    else f"{type(error).__name__}: {error}"
                )
                errors.append(f"{mirror + file} ({reason})")
        else:
            raise DataError(
                f"{file} could not be fetched from {'; nor from '.join(errors)}. {_how_to_get(name, files)}"
            )
    return cache


def found(name: str, extra: bool = False) -> Path | None:
    """The folder that has all files of a data set, if there is one."""
    for folder in folders(name):
        if all(
            (folder / file).exists() or _stands_for(folder, file) for file in _files(name, extra)
        ):
            return folder
    return None


def _stands_for(folder: Path, file: str) -> bool:
    """Unpacked files are as good."""
    return (folder / file.removesuffix(".gz")).exists() or (
        file == "cifar-10-binary.tar.gz" and (folder / "cifar-10-batches-bin").is_dir()
    )


def _files(name: str, extra: bool) -> list[str]:
    source = SOURCES[name]
    return [file for file in source.files if extra or file not in source.optional]


def _how_to_get(name: str, files: list[str]) -> str:
    place = folders(name)[0]
    return f"To use {name} without a download, put {', '.join(files)} (from {SOURCES[name].mirrors[0]}) into {place}"


def _digits() -> Dataset:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    content = load_digits()
    images = (content.images * (255 / 16)).round().astype(np.uint8)[:, None]
    parts: list[Any] = train_test_split(
        images,
        content.target.astype(np.int64),
        test_size=TEST_SHARE,
        random_state=0,
        stratify=content.target,
    )
    return Dataset("digits", parts[0], parts[2], parts[1], parts[3], DIGITS)


def _own(path: Path) -> Dataset:
    if path.is_dir():
        if not any(path.glob("*-ubyte*")):
            raise DataError(
                f"the folder {path.resolve()} has no IDX files, such as train-images-idx3-ubyte.gz; name a file in it, or another folder"
            )
        images, labels, test_images, test_labels = _read_idx_folder(path)
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
            f"{path} has the arrays {', '.join(arrays) or 'none'}; expected x_train, y_train, x_test, y_test, or x and y"
        )
    if path.suffix == ".npy":
        labels_path = labels_beside(path)
        if labels_path is None:
            raise DataError(
                f"{path} has no labels: name the rows x.npy and put the labels beside them in y.npy (or images.npy and labels.npy)"
            )
        return _labelled(path, read_npy(path), read_npy(labels_path))
    if path.suffix in (".csv", ".parquet"):
        return _labelled(path, *read_table(path))
    raise DataError(
        f"{path} is of an unknown kind; known are .npz, .npy, .csv, .parquet and folders with IDX files"
    )


def labels_beside(path: Path) -> Path | None:
    """The labels that go with rows in a ``.npy`` file, if there are any."""
    name = {"x": "y.npy", "X": "y.npy", "images": "labels.npy"}.get(path.stem)
    return path.with_name(name) if name and path.with_name(name).exists() else None


def _labelled(
    path: Path,
    x: np.ndarray,
    y: np.ndarray,
    x_test: np.ndarray | None = None,
    y_test: np.ndarray | None = None,
) -> Dataset:
    """Labels of any kind become numbers; without test rows some are set aside."""
    from sklearn.model_selection import train_test_split

    for labels in (y, y_test):
        if labels is not None and labels.ndim == 2 and labels.shape[1] > 1:
            raise DataError(
                f"{path}: labels of shape {labels.shape} have a column for each class; give one label a row, as y.argmax(1) does"
            )
    x, y = as_rows(path, x), y.reshape(-1)
    if len(x) != len(y):
        raise DataError(f"{path}: {len(x)} rows but {len(y)} labels")
    every = y if y_test is None else np.concatenate([y, y_test.reshape(-1)])
    if every.dtype.kind == "f" and not (
        np.isfinite(every).all() and (every == every.round()).all()
    ):
        raise DataError(
            f"{path}: the labels are fractions, missing or infinite; labels must name classes"
        )
    if every.dtype.kind == "f" and np.abs(every).max(initial=0) > 2**53:
        raise DataError(
            f"{path}: the labels reach {np.abs(every).max():.3g}, where floating-point numbers skip integers; use integers or words"
        )
    if every.dtype.kind == "f":
        every = every.astype(np.int64)  # 1.0 and 1 are the same class
    names, codes = np.unique(every, return_inverse=True)
    if len(names) < 2:
        raise DataError(
            f"{path}: all labels are {names[0] if len(names) else 'missing'}; there must be two classes at least"
        )
    if x_test is None:
        if len(x) < 10:
            raise DataError(
                f"{path} has {len(x)} rows only; at least 10 are needed to set some aside as a test set"
            )
        seldom = np.bincount(codes).min() < 2
        parts: list[Any] = train_test_split(
            x, codes, test_size=TEST_SHARE, random_state=0, stratify=None if seldom else codes
        )
        return Dataset(path.stem, parts[0], parts[2], parts[1], parts[3], tuple(map(str, names)))
    test = as_rows(path, x_test)
    if test.dtype != x.dtype:
        raise DataError(
            f"{path}: training images are {x.dtype} but test images {test.dtype}; bytes count as pixels, so use one type for both"
        )
    return Dataset(path.stem, x, codes[: len(y)], test, codes[len(y) :], tuple(map(str, names)))


def as_rows(path: Path, x: np.ndarray) -> np.ndarray:
    """Bytes stay, with channels first; everything else becomes float32."""
    if x.dtype.kind not in "fiub":
        raise DataError(f"{path}: rows must be numbers, got {x.dtype}")
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[3] in (1, 3, 4) and x.shape[1] not in (1, 3, 4):
        x = x.transpose(0, 3, 1, 2)
    elif x.ndim not in (2, 4):
        raise DataError(f"{path}: rows of shape {x.shape[1:]} are neither features nor images")
    return x if x.dtype == np.uint8 else x.astype(np.float32)
