"""Files: what was written is read, and anything else is one clear line."""

import numpy as np
import pytest
import torch

from tensorswitch.persistence import Saveable, load, load_with_notes, save, saved_as
from tests.headers import rewritten


@saved_as("test-part")
class Part:
    def __init__(self, **content):
        self.content = content

    def state(self):
        return self.content

    @classmethod
    def from_state(cls, state):
        return cls(**state)


@saved_as("test-other")
class Other(Part):
    pass


VALUES = {
    "none": None,
    "float": 0.5,
    "nan": float("nan"),
    "infinite": -float("inf"),
    "number": np.float32(0.25),
    "tuple": (1, "two", [3.0]),
    "keys": {1: "a", "b": {True: None}},
    "words": np.array(["ä", "b"]),
    "objects": np.array(["x", 1, None], dtype=object),
    "array": np.arange(6, dtype=np.int16).reshape(2, 3),
    "flags": np.array([True, False]),
    "tensor": torch.arange(3.0).to(torch.bfloat16),
    "dtype": torch.float16,
    "part": Part(inner=np.ones(2)),
}


def test_all_values_come_back(tmp_path):
    save(Part(**VALUES), tmp_path / "part", note=np.arange(2))
    found, notes = load_with_notes(tmp_path / "part")
    assert list(found.content) == list(VALUES)
    for name, value in VALUES.items():
        again = found.content[name]
        if name == "part":
            np.testing.assert_array_equal(again.content["inner"], 1)
        elif isinstance(value, np.ndarray):
            assert again.dtype == value.dtype
            np.testing.assert_array_equal(again, value)
        elif isinstance(value, torch.Tensor):
            assert again.dtype == value.dtype
            assert torch.equal(again, value)
        else:
            np.testing.assert_equal(again, value)
    np.testing.assert_array_equal(notes["note"], [0, 1])


def test_parts_are_saveable():
    assert isinstance(Part(), Saveable)


@pytest.mark.parametrize("value", [object(), {1, 2}, torch.nn.Linear(1, 1), type("P", (Part,), {})])
def test_what_cannot_be_saved_is_named(tmp_path, value):
    value = value() if isinstance(value, type) else value
    with pytest.raises(TypeError, match=r"value\.deep\.0 is an? \w+, which cannot be saved"):
        save(Part(deep=[value]), tmp_path / "part")
    assert not list(tmp_path.iterdir())


def test_other_versions_are_refused(tmp_path):
    save(Part(), tmp_path / "part")
    rewritten(tmp_path / "part", lambda header: header.update(version=2))
    with pytest.raises(ValueError, match="has format version 2, but this installation reads 1"):
        load(tmp_path / "part")


def test_other_formats_are_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"x": torch.ones(1)}, tmp_path / "file")
    with pytest.raises(ValueError, match="was not written by tensorswitch"):
        load(tmp_path / "file")


def test_unknown_kinds_are_refused(tmp_path):
    save(Part(), tmp_path / "part")
    rewritten(tmp_path / "part", lambda header: header["value"].update(kind="future"))
    with pytest.raises(ValueError, match=r"cannot be read: it holds .* unknown kind 'future'"):
        load(tmp_path / "part")


def test_another_class_is_refused(tmp_path):
    save(Part(), tmp_path / "part")
    assert load(tmp_path / "part", Part)
    with pytest.raises(ValueError, match="it holds a Part, expected Other"):
        load(tmp_path / "part", Other)


@pytest.mark.parametrize("change", ["value", "notes"])
def test_missing_parts_are_named(tmp_path, change):
    save(Part(), tmp_path / "part")
    rewritten(tmp_path / "part", lambda header: header.pop(change))
    with pytest.raises(ValueError, match=f"cannot be read: no '{change}'"):
        load_with_notes(tmp_path / "part")


@pytest.mark.parametrize("length", [0, 5, 60, -1])
def test_truncated_files_are_damaged(tmp_path, length):
    save(Part(x=np.ones(100)), tmp_path / "part")
    content = (tmp_path / "part").read_bytes()
    (tmp_path / "part").write_bytes(content[:length])
    with pytest.raises(ValueError, match="damaged"):
        load(tmp_path / "part")


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="is not a file"):
        load(tmp_path)


def test_a_failed_save_leaves_the_old_file(tmp_path):
    save(Part(x=1), tmp_path / "part")
    with pytest.raises(TypeError):
        save(Part(x=object()), tmp_path / "part")
    assert load(tmp_path / "part").content == {"x": 1}


def test_random_generators_are_not_seeds(tmp_path):
    save(Part(seed=np.random.RandomState(0)), tmp_path / "part")
    assert load(tmp_path / "part").content == {"seed": None}
