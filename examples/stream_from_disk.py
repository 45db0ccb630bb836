"""
Learn from files larger than memory
===================================

Run it with::

    python examples/stream_from_disk.py [ROWS]

NumPy files and a Parquet table are read in chunks, so peak memory does not depend on the number of
rows: try 100000 and 1000000.
"""

import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tensorswitch.estimators import TSRidgeClassifier

FEATURES, CHUNK, SEED = 6, 20_000, 0
Chunk = tuple[np.ndarray, np.ndarray]


def labels(x: np.ndarray) -> np.ndarray:
    """Return whether points are far from the origin, which no linear model can learn."""
    far: np.ndarray = np.abs(x[:, :3]).sum(1) > 2.3
    return far.astype(np.int64)


def write_files(folder: Path, rows: int) -> None:
    """Write the same rows to two .npy files and to a Parquet table, in chunks."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(SEED)
    xs = np.lib.format.open_memmap(
        folder / "x.npy", mode="w+", dtype=np.float32, shape=(rows, FEATURES)
    )
    ys = np.lib.format.open_memmap(folder / "y.npy", mode="w+", dtype=np.int64, shape=(rows,))
    names = [f"x{i}" for i in range(FEATURES)]
    with pq.ParquetWriter(
        folder / "table.parquet",
        pa.schema([*((name, pa.float32()) for name in names), ("y", pa.int64())]),
    ) as table:
        for start in range(0, rows, CHUNK):
            x = rng.normal(size=(min(CHUNK, rows - start), FEATURES)).astype(np.float32)
            y = labels(x)
            xs[start : start + len(x)], ys[start : start + len(x)] = x, y
            table.write_table(pa.table([*x.T, y], names=[*names, "y"]))


def from_npy(folder: Path) -> Iterator[Chunk]:
    """Read chunks of memory-mapped arrays."""
    xs, ys = np.load(folder / "x.npy", mmap_mode="r"), np.load(folder / "y.npy", mmap_mode="r")
    for start in range(0, len(xs), CHUNK):
        yield np.array(xs[start : start + CHUNK]), np.array(ys[start : start + CHUNK])


def from_parquet(folder: Path) -> Iterator[Chunk]:
    """Read chunks of a table."""
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(folder / "table.parquet").iter_batches(batch_size=CHUNK):
        *columns, y = batch.columns
        yield np.stack([c.to_numpy() for c in columns], axis=1), y.to_numpy()


def learn(chunks: Iterator[Chunk]) -> TSRidgeClassifier:
    """Fit a classifier chunk by chunk."""
    model = TSRidgeClassifier(gates=128, alpha=[0.1, 1.0, 10.0, 100.0], random_state=SEED)
    for x, y in chunks:
        model.partial_fit(x, y, classes=[0, 1])
    return model


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    test = np.random.default_rng(SEED + 1).normal(size=(10_000, FEATURES)).astype(np.float32)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, rows)
        for reader in (from_npy, from_parquet):
            model = learn(reader(folder))
            error = 100 * (1 - model.score(test, labels(test)))
            print(
                f"{reader.__name__}: {rows} rows in chunks of {CHUNK}, "
                f"chosen alpha {model.alpha_:g}, test error {error:.1f} %"
            )
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
