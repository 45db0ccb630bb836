"""Check that every reader rejects damaged files with a ValueError that names the file."""

import gzip
import json

import numpy as np
import pytest
import scipy.io
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reproduction import Experiment, Record, experiments_from_toml, records_in, run_one
from reproduction.records import compact
from tensorswitch import datasets
from tensorswitch.data import load
from tensorswitch.datasets import DataError
from tensorswitch.models import load_model, mlp, save_model
from tensorswitch.ridge import RidgeStatistics
from tensorswitch.tables import read_table

_files = datasets._files
load_arrays, read_rows = datasets._arrays.load_arrays, datasets._arrays.read_rows


def idx(folder):
    raw = b"\x00\x00\x08\x03" + np.array([5, 4, 4], ">u4").tobytes() + bytes(80)
    (folder / "a-ubyte").write_bytes(raw)
    return folder / "a-ubyte", _files.read_idx


def idx_gz(folder):
    path, _ = idx(folder)
    (folder / "a.gz").write_bytes(gzip.compress(path.read_bytes()))
    return folder / "a.gz", _files.read_idx


def npy(folder):
    np.save(folder / "a.npy", np.arange(12.0).reshape(3, 4))
    return folder / "a.npy", read_rows


def npz(folder):
    np.savez(folder / "a.npz", x=np.ones((20, 3)), y=np.arange(20) % 2)
    return folder / "a.npz", _files.read_npz


def own_npz(folder):
    return npz(folder)[0], load_arrays


def csv(folder):
    rows = "".join(f"{i},{i % 7},{'ab'[i % 2]}\n" for i in range(20))
    (folder / "a.csv").write_text("x,z,label\n" + rows)
    return folder / "a.csv", read_table


def mat(folder):
    scipy.io.savemat(folder / "a.mat", {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1], [10]]})
    return folder / "a.mat", _files.read_svhn


def cifar(folder):
    (folder / "b").mkdir(exist_ok=True)
    (folder / "b" / "a.bin").write_bytes(bytes(2 * 3073))
    return folder / "b" / "a.bin", lambda path: _files.read_cifar10(path.parent, ["a.bin"])


def model(folder):
    torch.manual_seed(0)
    save_model(mlp(3, 2, kind="ts-lrc", depth=1, width=4), folder / "m")
    return folder / "m", load_model


def sums(folder):
    statistics = RidgeStatistics([torch.ones(3, 2)], 1).update(torch.ones(4, 2), torch.ones(4, 1))
    statistics.save(folder / "s")
    return folder / "s", RidgeStatistics.load


def record(folder):
    experiment = Experiment(data="digits", method="rr", components=4, width=4)
    run_one(experiment, folder)
    return folder / f"{experiment.name}.json", Record.read


def compact_record(folder):
    (folder / "r").mkdir(exist_ok=True)
    record(folder / "r")
    return compact(folder / "r"), lambda path: records_in(folder / "r")


def grid(folder):
    (folder / "g.toml").write_text(
        'data = "digits"\n[[grid]]\nmethod = ["ss", "rr"]\nseed = [0, 1]\n'
    )
    return folder / "g.toml", experiments_from_toml


READERS = [
    idx,
    idx_gz,
    npy,
    npz,
    own_npz,
    csv,
    mat,
    cifar,
    model,
    sums,
    record,
    compact_record,
    grid,
]


@pytest.mark.parametrize("make", READERS, ids=lambda f: f.__name__)
def test_a_damaged_file_is_read_or_refused_by_name(make, tmp_path):
    path, read = make(tmp_path)
    whole = path.read_bytes()
    read(path)

    @settings(suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def damage(data):
        content = bytearray(whole)
        kind = data.draw(st.sampled_from(["cut", "flip", "insert", "replace"]))
        at = data.draw(st.integers(0, len(content) - 1))
        if kind == "cut":
            del content[at:]
        elif kind == "flip":
            for place in data.draw(
                st.lists(st.integers(0, min(len(content), 400) - 1), min_size=1, max_size=4)
            ):
                content[place] ^= data.draw(st.integers(1, 255))
        elif kind == "insert":
            content[at:at] = data.draw(st.binary(min_size=1, max_size=20))
        else:
            content = bytearray(data.draw(st.binary(max_size=200)))
        path.write_bytes(bytes(content))
        message = ""
        try:
            read(path)
        except (ValueError, FileNotFoundError, MemoryError) as error:
            message = str(error)
        assert not message or path.name in message or path.parent.name in message

    damage()


@pytest.mark.parametrize("content", ["[" * 100_000, json.dumps({"experiment": None}), "5", "null"])
def test_records_that_are_none_are_refused_by_name(content, tmp_path):
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(ValueError, match=r"r.json is not a valid record of an experiment"):
        Record.read(tmp_path / "r.json")


def test_deep_nesting_is_named(tmp_path):
    (tmp_path / "g.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(ValueError, match=r"g.toml is not a valid TOML file: it is nested too"):
        experiments_from_toml(tmp_path / "g.toml")
    header = {"__metadata__": {"tensorswitch": "[" * 100_000}}
    raw = json.dumps(header).encode()
    (tmp_path / "m").write_bytes(len(raw).to_bytes(8, "little") + raw)
    with pytest.raises(ValueError, match=r"the header of .*m is nested too deeply"):
        load_model(tmp_path / "m")


def test_errors_of_readers_are_data_errors(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"PK")
    with pytest.raises(DataError):
        load(tmp_path / "a.npz")
