"""Files that are damaged are refused by their names."""

import gzip

import pytest

from tensorswitch import data
from tensorswitch.datasets import DataError, load


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORSWITCH_DATA", str(tmp_path))
    for name in ("cifar10", "svhn"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw[: len(raw) // 2], "cannot be read; it may be truncated"),
        (
            lambda raw: gzip.compress(gzip.decompress(raw)[:-5]),
            "expected 23536 for an array of .30, 28, 28.: it is truncated",
        ),
        (lambda raw: gzip.compress(b"something else"), "is not an IDX file"),
        (lambda raw: b"", "images"),
    ],
)
def test_a_broken_idx_file_is_named(folder, idx_files, change, message):
    for name, content in idx_files.items():
        (folder / name).write_bytes(content)
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(change(idx_files[path.name]))
    with pytest.raises(DataError, match=message) as caught:
        data.load(folder)
    assert str(path) in str(caught.value)


def test_a_broken_cifar_archive_is_named(folder, cifar_archive, cifar_files):
    path = folder / "cifar10" / "cifar-10-binary.tar.gz"
    path.write_bytes(cifar_archive[: len(cifar_archive) // 2])
    with pytest.raises(DataError, match=r"cifar-10-binary.tar.gz cannot be read"):
        load("cifar10")
    unpacked = folder / "cifar10" / "cifar-10-batches-bin"
    unpacked.mkdir()
    for name, content in cifar_files.items():
        (unpacked / name).write_bytes(content)
    (unpacked / "data_batch_1.bin").write_bytes(cifar_files["data_batch_1.bin"][:-1])
    with pytest.raises(
        DataError,
        match=r"data_batch_1.bin has 12291 bytes, which is not a positive multiple of 3073",
    ):
        load("cifar10")


def test_another_archive_is_named(folder):
    import tarfile

    with tarfile.open(folder / "cifar10" / "cifar-10-binary.tar.gz", "w:gz"):
        pass
    with pytest.raises(DataError, match=r"has no file data_batch_1.bin: is it the binary dist"):
        load("cifar10")


@pytest.mark.parametrize("content", [b"", b"MATLAB 5.0 MAT-file", bytes(200)])
def test_a_broken_mat_file_is_named(folder, content):
    for part in ("train", "test"):
        (folder / "svhn" / f"{part}_32x32.mat").write_bytes(content)
    with pytest.raises(DataError, match=r"train_32x32.mat cannot be read"):
        load("svhn")
