"""Sources of data sets: scikit-learn, a folder of the user, the cache, or a download."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tensorswitch._progress import DownloadBar
from tensorswitch.datasets._arrays import TEST_SHARE
from tensorswitch.datasets._dataset import Dataset
from tensorswitch.datasets._files import Arrays, DataError, read_cifar10, read_idx_folder, read_svhn

DIGITS = tuple("0123456789")
CLOTHES = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR_ARCHIVE = "cifar-10-binary.tar.gz"


class Source(NamedTuple):
    """A data set that can be downloaded: its files by name with their SHA-256."""

    mirrors: tuple[str, ...]
    files: dict[str, str]
    read: Callable[[Path, bool], Arrays]
    class_names: tuple[str, ...]
    optional: tuple[str, ...] = ()


def _read_cifar_folder(folder: Path, extra: bool = False) -> Arrays:
    unpacked = folder / "cifar-10-batches-bin"
    path = unpacked if unpacked.is_dir() else folder / CIFAR_ARCHIVE
    train = read_cifar10(path, [f"data_batch_{i}.bin" for i in range(1, 6)])
    return *train, *read_cifar10(path, ["test_batch.bin"])


def _read_svhn_folder(folder: Path, extra: bool = False) -> Arrays:
    train, test = (read_svhn(folder / f"{part}_32x32.mat") for part in ("train", "test"))
    if extra:
        # First, so that the last images, which are held out for validation, are of ``train``.
        more = read_svhn(folder / "extra_32x32.mat")
        train = np.concatenate([more[0], train[0]]), np.concatenate([more[1], train[1]])
    return *train, *test


def _idx_files(*checksums: str) -> dict[str, str]:
    stems = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return {f"{stem}-ubyte.gz": checksum for stem, checksum in zip(stems, checksums, strict=True)}


SOURCES = {
    "mnist": Source(
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        _idx_files(
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
        lambda folder, extra: read_idx_folder(folder),
        DIGITS,
    ),
    "fashion-mnist": Source(
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        _idx_files(
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
        lambda folder, extra: read_idx_folder(folder),
        CLOTHES,
    ),
    "cifar10": Source(
        ("https://www.cs.toronto.edu/~kriz/",),
        {CIFAR_ARCHIVE: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
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


def load(name: str, *, extra: bool = False, download: bool = True) -> Dataset:
    """Load a data set by its name.

    Parameters
    ----------
    name : str
        One of "digits" (included in scikit-learn), "mnist", "fashion-mnist", "cifar10" and "svhn".
    extra : bool, default=False
        Whether to add the ``extra`` images of SVHN to the training images.
    download : bool, default=True
        Whether to download files that are neither in ``$TENSORSWITCH_DATA/<name>`` nor in the
        cache.

    Examples
    --------
    >>> from tensorswitch.datasets import load
    >>> load("digits")
    Dataset('digits', 1257 + 540 rows of (1, 8, 8), 10 classes)
    """
    if name == "digits":
        return _digits()
    if name not in SOURCES:
        raise DataError(f"{name!r} is not a data set known by name: {', '.join(NAMES)}")
    folder = fetch(name, extra=extra) if download else found(name, extra)
    if folder is None:
        raise DataError(_how_to_get(name, extra))
    return Dataset(name, *SOURCES[name].read(folder, extra), SOURCES[name].class_names)


def folders(name: str) -> list[Path]:
    """Return ``$TENSORSWITCH_DATA/<name>``, if the variable is set, and the user's cache.

    Parameters
    ----------
    name : str
        Name of the data set.
    """
    import pooch

    folder = os.environ.get("TENSORSWITCH_DATA")
    places = [Path(folder) / name] if folder else []
    return [*places, Path(pooch.os_cache("tensorswitch")) / name]


def fetch(name: str, *, extra: bool = False, progress: bool = True) -> Path:
    """Download a data set unless its files are already present, and return their folder.

    Parameters
    ----------
    name, extra : str, and bool, default=False
        Name of the data set, and whether to include the ``extra`` images of SVHN.
    progress : bool, default=True
        Show a progress bar.
    """
    import pooch

    if name not in SOURCES:
        raise DataError(f"nothing to download for {name!r}; choose from {', '.join(SOURCES)}")
    if (folder := found(name, extra)) is not None:
        return folder
    source, cache = SOURCES[name], folders(name)[-1]
    for file in _files(name, extra):
        bar = DownloadBar(file) if progress else False
        downloader = pooch.HTTPDownloader(progressbar=bar, timeout=60)
        errors, checksum = [], f"sha256:{source.files[file]}"
        for mirror in source.mirrors:
            try:  # pooch renames its temporary file only if the checksum is right
                pooch.retrieve(mirror + file, checksum, file, cache, downloader=downloader)
                break
            except ValueError:
                errors.append(f"{mirror + file} (wrong checksum)")
            except Exception as error:  # whatever it is, the next mirror may work
                errors.append(f"{mirror + file} ({type(error).__name__}: {error})")
        else:
            what = f"could not be downloaded from {' or '.join(errors)}"
            raise DataError(f"{file} {what}. {_how_to_get(name, extra)}")
    return cache


def found(name: str, extra: bool = False) -> Path | None:
    """Return the first folder that has all files of a data set, or None.

    Parameters
    ----------
    name, extra : str, and bool, default=False
        Name of the data set, and whether to require the ``extra`` images of SVHN.
    """
    files = _files(name, extra)
    return next((f for f in folders(name) if all(_has(f, file) for file in files)), None)


def _has(folder: Path, file: str) -> bool:
    """Return whether the folder has a file, or what it contains if it is compressed."""
    places = [file, file.removesuffix(".gz"), *(["cifar-10-batches-bin"] * (file == CIFAR_ARCHIVE))]
    return any((folder / place).exists() for place in places)


def _files(name: str, extra: bool) -> list[str]:
    source = SOURCES[name]
    return [file for file in source.files if extra or file not in source.optional]


def _how_to_get(name: str, extra: bool) -> str:
    return (
        f"To use {name} without a download, put {', '.join(_files(name, extra))} "
        f"(from {SOURCES[name].mirrors[0]}) into {folders(name)[0]}"
    )


def _digits() -> Dataset:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    content = load_digits()
    images = (content.images * (255 / 16)).round().astype(np.uint8)[:, None]
    labels = content.target.astype(np.int64)
    options: dict[str, Any] = {"test_size": TEST_SHARE, "random_state": 0, "stratify": labels}
    train, test, train_labels, test_labels = train_test_split(images, labels, **options)
    return Dataset("digits", train, train_labels, test, test_labels, DIGITS)
