import gzip
import io
import tarfile

import numpy as np
import pytest


def idx(array):
    return (
        b"\x00\x00\x08"
        + bytes([array.ndim])
        + np.array(array.shape, ">u4").tobytes()
        + array.tobytes()
    )


@pytest.fixture
def idx_files():
    """A small data set in the format of MNIST: name to content."""
    rng = np.random.default_rng(0)
    files = {}
    for part, rows in (("train", 30), ("t10k", 10)):
        files[f"{part}-images-idx3-ubyte.gz"] = gzip.compress(
            idx(rng.integers(0, 256, (rows, 28, 28), dtype=np.uint8))
        )
        files[f"{part}-labels-idx1-ubyte.gz"] = gzip.compress(
            idx((np.arange(rows) % 10).astype(np.uint8))
        )
    return files


@pytest.fixture
def cifar_files():
    """The six batches of CIFAR-10, four images each."""
    rng = np.random.default_rng(0)
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    return {
        name: np.concatenate([rng.integers(0, 10, (4, 1)), rng.integers(0, 256, (4, 3072))], axis=1)
        .astype(np.uint8)
        .tobytes()
        for name in names
    }


@pytest.fixture
def cifar_archive(cifar_files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in cifar_files.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
