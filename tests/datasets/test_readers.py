import gzip

import pytest

from tensorswitch.data.readers import DataError, read_cifar10, read_idx, read_svhn


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
def test_a_broken_idx_file_is_named(tmp_path, idx_files, change, message):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(change(idx_files[path.name]))
    with pytest.raises(DataError, match=message) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


def test_a_broken_cifar_archive_is_named(tmp_path, cifar_archive, cifar_files):
    path = tmp_path / "cifar-10-binary.tar.gz"
    path.write_bytes(cifar_archive[: len(cifar_archive) // 2])
    with pytest.raises(DataError, match=r"cifar-10-binary.tar.gz cannot be read"):
        read_cifar10(path, list(cifar_files))
    path.write_bytes(cifar_archive)
    with pytest.raises(
        DataError, match=r"has no file data_batch_9.bin: is it the binary distribution"
    ):
        read_cifar10(path, ["data_batch_9.bin"])
    (tmp_path / "data_batch_1.bin").write_bytes(cifar_files["data_batch_1.bin"][:-1])
    with pytest.raises(
        DataError,
        match=r"data_batch_1.bin has 12291 bytes, which is not a positive multiple of 3073",
    ):
        read_cifar10(tmp_path, ["data_batch_1.bin"])


@pytest.mark.parametrize("content", [b"", b"MATLAB 5.0 MAT-file", bytes(200)])
def test_a_broken_mat_file_is_named(tmp_path, content):
    (tmp_path / "train_32x32.mat").write_bytes(content)
    with pytest.raises(DataError, match=r"train_32x32.mat cannot be read"):
        read_svhn(tmp_path / "train_32x32.mat")
