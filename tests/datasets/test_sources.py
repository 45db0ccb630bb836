import gzip
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pandas as pd
import pytest
import scipy.io

from tensorswitch import datasets
from tensorswitch.compare import load_problem
from tensorswitch.data import load
from tensorswitch.datasets import DataError, fetch

sources, read_rows = datasets._sources, datasets._arrays.read_rows


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Start with an empty cache and without TENSORSWITCH_DATA."""
    monkeypatch.delenv("TENSORSWITCH_DATA", raising=False)
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "cache" / name)
    return tmp_path / "cache" / "tensorswitch"


@pytest.fixture
def server():
    """Serve files over HTTP: its address, the files, and a log of requests.

    The first part of a path selects a failure: "missing", "wrong" or "cut".
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            place, name = self.path.strip("/").split("/")
            asked.append((place, name))
            if place == "missing" or name not in files:
                self.send_error(404)
                return
            content = files[name]
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if place == "wrong":
                content = bytes(len(content))
            self.wfile.write(content[: len(content) // 2] if place == "cut" else content)

        def log_message(self, *arguments):
            pass

    files, asked = {}, []
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{httpd.server_port}", files, asked
    httpd.shutdown()
    httpd.server_close()


@pytest.fixture
def mnist(server, idx_files, monkeypatch):
    """Redirect the mirrors of MNIST to the server."""
    url, files, asked = server
    files.update(idx_files)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}

    def mirrors(*places):
        source = sources.SOURCES["mnist"]._replace(
            mirrors=tuple(f"{url}/{place}/" for place in places), files=hashes
        )
        monkeypatch.setitem(sources.SOURCES, "mnist", source)
        return asked

    return mirrors


def test_downloaded_once_and_kept(mnist, cache):
    asked = mnist("good")
    data = load("mnist")
    assert data.train_images.shape == (30, 1, 28, 28)
    assert data.test_labels.tolist() == list(range(10))
    assert len(asked) == 4
    load("mnist")
    assert len(asked) == 4
    assert sorted(path.name for path in (cache / "mnist").iterdir()) == sorted(
        sources.SOURCES["mnist"].files
    )


@pytest.mark.parametrize("bad", ["missing", "wrong", "cut"])
def test_the_next_mirror_is_tried(mnist, bad):
    asked = mnist(bad, "good")
    assert len(load("mnist").train_images) == 30
    assert [place for place, _ in asked] == [bad, "good"] * 4


@pytest.mark.parametrize(
    ("bad", "reason"), [("missing", "404"), ("wrong", "wrong checksum"), ("cut", "train-images")]
)
def test_a_failed_download_says_what_to_do_and_leaves_nothing(mnist, cache, bad, reason):
    mnist(bad)
    with pytest.raises(DataError, match=reason) as caught:
        load("mnist")
    assert f"/{bad}/train-images-idx3-ubyte.gz" in str(caught.value)
    names = ", ".join(sources.SOURCES["mnist"].files)
    assert f"put {names} (from " in str(caught.value)
    assert str(cache / "mnist") in str(caught.value)
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_no_server_at_all(mnist, monkeypatch):
    mnist("good")
    monkeypatch.setitem(
        sources.SOURCES,
        "mnist",
        sources.SOURCES["mnist"]._replace(mirrors=("http://127.0.0.1:9/",)),
    )
    with pytest.raises(DataError, match=r"could not be downloaded from http://127.0.0.1:9/"):
        load("mnist")
    with pytest.raises(DataError, match="To use mnist without a download, put"):
        load("mnist", download=False)


def test_a_folder_of_the_user_comes_first(idx_files, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORSWITCH_DATA", str(tmp_path / "mine"))
    folder = tmp_path / "mine" / "mnist"
    folder.mkdir(parents=True)
    for name, content in idx_files.items():
        (folder / name).write_bytes(content)
    assert len(load("mnist", download=False).train_images) == 30
    assert fetch("mnist") == folder


def test_cifar10_from_files_and_from_the_archive_are_the_same(
    cifar_files, cifar_archive, tmp_path, monkeypatch
):
    monkeypatch.setenv("TENSORSWITCH_DATA", str(tmp_path))
    folder = tmp_path / "cifar10"
    folder.mkdir()
    (folder / "cifar-10-binary.tar.gz").write_bytes(cifar_archive)
    packed = load("cifar10", download=False)
    (folder / "cifar-10-batches-bin").mkdir()
    for name, content in cifar_files.items():
        (folder / "cifar-10-batches-bin" / name).write_bytes(content)
    unpacked = load("cifar10", download=False)
    assert packed.train_images.shape == (20, 3, 32, 32)
    for field in ("train_images", "train_labels", "test_images", "test_labels"):
        np.testing.assert_array_equal(getattr(packed, field), getattr(unpacked, field))


def test_svhn_with_and_without_extra(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORSWITCH_DATA", str(tmp_path))
    (tmp_path / "svhn").mkdir()
    rng = np.random.default_rng(0)
    for part, rows in (("train", 6), ("test", 4), ("extra", 5)):
        content = {
            "X": rng.integers(0, 256, (32, 32, 3, rows), dtype=np.uint8),
            "y": np.arange(1, rows + 1)[:, None] + 10 - rows,
        }
        scipy.io.savemat(tmp_path / "svhn" / f"{part}_32x32.mat", content)
    data = load("svhn")
    assert data.train_images.shape == (6, 3, 32, 32)
    assert data.train_labels.tolist() == [5, 6, 7, 8, 9, 0]
    assert len(load("svhn", extra=True).train_images) == 11


def own(tmp_path, kind):
    """Write twenty rows of three features with string labels to a file."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 3)).astype(np.float32), np.array(["no", "yes"])[np.arange(20) % 2]
    path = tmp_path / f"{'x' if kind == 'npy' else 'mine'}.{kind}"
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(label=y)
    if kind == "npz":
        np.savez(path, x=x, y=y)
    elif kind == "npy":
        np.save(path, x)
        np.save(tmp_path / "y.npy", y)
    elif kind == "csv":
        frame[["label", "a", "b", "c"]].to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    return path


@pytest.mark.parametrize("kind", ["npz", "npy", "csv", "parquet"])
def test_own_files(tmp_path, kind):
    data = load(own(tmp_path, kind))
    assert data.train_images.shape == (14, 3)
    assert data.test_images.shape == (6, 3)
    assert data.class_names == ("no", "yes")
    assert sorted(data.test_labels.tolist()) == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_own_images_with_a_test_set_and_channels_last(tmp_path, channels):
    images = np.zeros((12, 8, 8, channels), np.uint8)
    np.savez(
        tmp_path / "a.npz",
        x_train=images,
        y_train=np.arange(12) % 3,
        x_test=images[:4],
        y_test=np.arange(4) % 3,
    )
    data = load(tmp_path / "a.npz")
    assert data.train_images.shape == (12, channels, 8, 8)
    assert data.train_images.dtype == np.uint8
    assert data.test_labels.tolist() == [0, 1, 2, 0]


def test_a_folder_of_idx_files(idx_files, tmp_path):
    for name, content in idx_files.items():
        (tmp_path / name).write_bytes(content)
    assert load(tmp_path).protocol().train.shape == (24, 1024)


def one_hot(path):
    np.savez(path, x=np.zeros((12, 4)), y=np.eye(3)[np.arange(12) % 3])
    return path


def broken(path, content):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: "nist", "'nist' is neither a data set known by name .digits, mnist, "),
        (
            lambda t: broken(t / "a.xls", b""),
            r"a.xls has an unknown format; save it as .csv \(pandas.read_excel",
        ),
        (
            lambda t: broken(t / "a.npz", b"PK\x03\x04cut"),
            "a.npz cannot be read; it may be truncated",
        ),
        (
            lambda t: np.save(t / "x.npy", np.ones((3, 2))) or t / "x.npy",
            "x.npy has no labels: save the rows as x.npy and the labels as y.npy",
        ),
        (lambda t: broken(t / "a.csv", b""), "a.csv is empty; expected a line of column names"),
        (lambda t: broken(t / "a.csv", b"a\n1\n2\n"), "a.csv has no columns to learn from besides"),
        (
            lambda t: broken(t / "a.csv", b"a,y\n" + b"1,0\n" * 20),
            "the target 'y' is 0 in every row",
        ),
        (
            lambda t: broken(t / "a.csv", b"a,y\n" + b"1,0.5\n2,0.25\n" * 20),
            "the target 'y' is numeric, but classes are required",
        ),
        (
            lambda t: broken(t / "a.csv", b"a,y\n" + b"1,2020-01-01\n2,2021-01-01\n" * 20),
            "the target 'y' is a date",
        ),
        (
            lambda t: broken(t / "a.csv", b"a,y\n" + b"3,0\n3,1\n" * 20),
            "a has no column to learn from: a is constant|no column to learn from: a is constant",
        ),
        (lambda t: broken(t / "a.csv", b"a,y\n1,0\n2,1\n"), "only 2 rows; at least 10"),
        (lambda t: broken(t / "a.parquet", b"PAR1"), "a.parquet cannot be read"),
        (lambda t: t, "has no pictures .* expected a folder for each class"),
        (lambda t: "", "'' is neither a data set known by name"),
        (lambda t: one_hot(t / "a.npz"), r"labels of shape \(12, 3\) appear to be one-hot"),
    ],
)
def test_damaged_data_are_named(tmp_path, make, message):
    with pytest.raises(DataError, match=message):
        load(make(tmp_path))


def test_nothing_is_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{"a": 1}], dtype=object), y=np.zeros(1))
    with pytest.raises(DataError, match=r"a.npz cannot be read.*allow_pickle=False"):
        load(tmp_path / "a.npz")


@pytest.mark.parametrize("labels", [np.array([0, 1, np.inf] * 8), np.array([0, 1, 1e20] * 8)])
def test_labels_that_are_not_integers_raise(tmp_path, labels):
    np.savez(tmp_path / "d.npz", x=np.ones((24, 2)), y=labels)
    with pytest.raises(
        DataError, match=r"d.npz: (some labels are fractions, missing|labels as large as 1e\+20)"
    ):
        load(tmp_path / "d.npz")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("train-images-idx3-ubyte.gz", (0, 28, 28)),
        ("train-images-idx3-ubyte.gz", (784,)),
        ("t10k-labels-idx1-ubyte.gz", (2, 3, 4)),
        ("t10k-labels-idx1-ubyte.gz", (0,)),
    ],
)
def test_idx_files_of_the_wrong_shape_are_named(idx_files, tmp_path, name, shape):
    for file, content in idx_files.items():
        (tmp_path / file).write_bytes(content)
    header = b"\x00\x00\x08" + bytes([len(shape)]) + np.array(shape, ">u4").tobytes()
    (tmp_path / name).write_bytes(gzip.compress(header + bytes(int(np.prod(shape)))))
    kind = "images" if "images" in name else "labels"
    with pytest.raises(DataError, match=rf"the (training|test) {kind} have shape"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["a.json", "a.xlsx"])
def test_other_tables_are_named(tmp_path, name):
    (tmp_path / name).write_text("{}")
    for options in ({}, {"target": "y"}):
        with pytest.raises(DataError, match=r"has an unknown format; save it as \.csv"):
            load_problem(tmp_path / name, **options)


def test_labels_of_bytes_are_text(tmp_path):
    labels = np.array([b"cat", b"dog"] * 20)
    np.savez(tmp_path / "a.npz", x=np.arange(80.0).reshape(40, 2), y=labels)
    assert load(tmp_path / "a.npz").class_names == ("cat", "dog")
    labels[3] = b"\xff"
    np.savez(tmp_path / "a.npz", x=np.arange(80.0).reshape(40, 2), y=labels)
    with pytest.raises(DataError, match="labels of bytes must be text in UTF-8"):
        load(tmp_path / "a.npz")


def test_features_far_from_zero_keep_their_digits(tmp_path):
    rng = np.random.default_rng(0)
    times = 1.7e9 + rng.uniform(0, 100, 200)
    rows = np.column_stack([times, rng.normal(size=200)])
    np.savez(tmp_path / "far.npz", x=rows, y=times > 1.7e9 + 50)
    np.savez(tmp_path / "near.npz", x=rows - [1.7e9, 0], y=times > 1.7e9 + 50)
    far, near = load(tmp_path / "far.npz"), load(tmp_path / "near.npz")
    assert (far.train_images.dtype, near.train_images.dtype) == (np.float64, np.float32)
    for part, other in zip(far.protocol()[:6], near.protocol()[:6], strict=True):
        np.testing.assert_allclose(part, other, atol=1e-5)
    assert far.protocol().train.dtype == np.float32
    problem = load_problem(tmp_path / "far.npz")
    assert np.ptp(problem.parts(*problem.split()).train[:, 0]) > 3


def test_rows_to_predict(tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 3))
    np.save(tmp_path / "x.npy", x)
    rows, labels = read_rows(tmp_path / "x.npy")
    np.testing.assert_array_equal(rows, x)
    assert labels is None
    np.save(tmp_path / "y.npy", np.arange(40) % 2)
    assert read_rows(tmp_path / "x.npy")[1].tolist() == [0, 1] * 20
    np.savez(tmp_path / "b.npz", X=x, y=np.array([b"cat", b"dog"] * 20))
    assert read_rows(tmp_path / "b.npz")[1].tolist() == ["cat", "dog"] * 20
    np.savez(tmp_path / "b.npz", x=x, y=np.eye(2)[np.arange(40) % 2])
    with pytest.raises(DataError, match=r"b.npz: y has shape \(40, 2\), expected one label per"):
        read_rows(tmp_path / "b.npz")
