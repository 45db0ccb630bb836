"""One versioned format for everything that is saved.

    file = safetensors(arrays) + JSON {format, version, kind, state, notes}

A class that can be saved has a stable *kind* (:func:`saved_as`), and says what it consists of:
``state()`` returns a dictionary of arrays, plain values and other parts, and ``from_state`` makes
the object again. Neither module paths nor attributes are written, so that code can be rearranged
without changing files. Nothing is unpickled: a file from a stranger cannot run code.
"""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from tensorswitch._files import replacing

__all__ = ["SavedPart", "load", "save", "saved_as"]

FORMAT, VERSION = "tensorswitch", 1
MODEL = "model.safetensors"  # in the folders of commands
# Imported in this order when a file holds a kind that is not known yet.
HOMES = (
    "switches preprocessing linear ridge features models training kernel_ridge estimators tables "
    "compare"
)
State: TypeAlias = dict[str, Any]  # arrays, plain values and parts, by their names
DAMAGES = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, MemoryError)


@runtime_checkable
class Saveable(Protocol):
    """An object that can be saved: its class is registered with :func:`saved_as`."""

    def state(self) -> State:
        """Return what the object consists of."""

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Make the object again."""


class SavedPart:
    """Base of dataclasses that are saved by their fields; see :func:`saved_as`."""

    def state(self) -> State:
        """Return the fields."""
        names = (field.name for field in fields(self))  # type: ignore[arg-type]  # a dataclass
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Make the object again."""
        return cls(**state)


class Snapshot(NamedTuple):
    """A state in place of the object it was taken of, where ``state`` had options."""

    of: type[Saveable]
    state: State


_kinds: dict[str, type[Saveable]] = {}
Class = TypeVar("Class", bound=type)


def saved_as(kind: str) -> Callable[[Class], Class]:
    """Register a class under the name that files know it by, which never changes.

    Parameters
    ----------
    kind : str
        The name. A file with an object of it is read only where its class has been imported.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from tensorswitch.persistence import SavedPart, saved_as
    >>> @saved_as("pair")
    ... @dataclass
    ... class Pair(SavedPart):
    ...     a: float
    ...     b: float
    >>> Pair(1.0, 2.0).state()
    {'a': 1.0, 'b': 2.0}
    """

    def register(cls: Class) -> Class:
        cls.saved_kind = kind  # type: ignore[attr-defined]
        _kinds[kind] = cls
        return cls

    return register


def save(value: Saveable | Snapshot, path: str | Path, **notes: object) -> None:
    """Write an object to a safetensors file, atomically.

    Parameters
    ----------
    value, path : Saveable, and str or Path
        What to save, and the file. An existing one is replaced only when the new one is complete.
    **notes : object
        What to store beside it: plain values, arrays and saveable objects.

    Raises
    ------
    TypeError
        If a part of it cannot be saved. The message names the part.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from tensorswitch.persistence import load, save
    >>> from tensorswitch.preprocessing import Scaling
    >>> x = np.array([[1.0], [3.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Scaling.fit(x), f"{folder}/scaling.safetensors")
    ...     scaling = load(f"{folder}/scaling.safetensors")
    >>> scaling(x)
    array([[-1.],
           [ 1.]])
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    content, tensors = encode({"value": value, "notes": notes})
    header = {"format": FORMAT, "version": VERSION, **dict(content["dict"])}
    with replacing(path) as partial:
        try:
            save_file(tensors, partial, {"tensorswitch": json.dumps(header)})
        except SafetensorError as error:  # a full disk, for example
            raise OSError(f"{path} could not be written: {error}") from error


def load(path: str | Path, expected: type | None = None) -> Any:
    """Read an object that :func:`save` wrote.

    Parameters
    ----------
    path : str or Path
        The file, or the folder of ``tensorswitch train``.
    expected : type, optional
        The class that the file must hold, or a base of it.

    Raises
    ------
    ValueError
        If the file is damaged, of another version or holds something else.
    """
    return _load(path, expected, False)[0]


def load_with_notes(path: str | Path, expected: type | None = None) -> tuple[Any, State]:
    """Read an object as :func:`load` does, and the notes that were stored beside it."""
    return _load(path, expected, True)


def _load(path: str | Path, expected: type | None, with_notes: bool) -> tuple[Any, State]:
    if Path(path).is_dir() and (Path(path) / MODEL).exists():
        path = Path(path) / MODEL
    tensors, header = _read(path)
    version = header.get("version")
    if version != VERSION:
        raise ValueError(
            f"{path} has format version {version!r}, but this installation reads {VERSION}"
        )
    try:
        value = decode(header["value"], tensors)
        if expected is not None and not isinstance(value, expected):
            what = f"it holds {_described(value)}, expected {expected.__name__}"
            raise ValueError(f"{what}; tensorswitch.load reads all files")
        return value, decode(header["notes"], tensors) if with_notes else {}
    except RecursionError as error:
        raise ValueError(f"the header of {path} is nested too deeply") from error
    except DAMAGES as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{path} cannot be read: {reason}") from error


def _read(path: str | Path) -> tuple[dict[str, Tensor], State]:
    """Return the tensors and the header of a file in this format."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        reason = "is not a file" if Path(path).exists() else "does not exist"
        raise FileNotFoundError(f"{path} {reason}")
    try:
        with safe_open(path, "pt") as file:
            header = json.loads((file.metadata() or {}).get("tensorswitch", "{}"))
            if not isinstance(header, dict) or header.get("format") != FORMAT:
                raise ValueError(f"{path} was not written by tensorswitch.persistence.save")
            return {name: file.get_tensor(name) for name in file.keys()}, header  # noqa: SIM118
    except RecursionError as error:
        raise ValueError(f"the header of {path} is nested too deeply") from error
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is damaged or not a safetensors file: {error}") from error


def encode(value: object) -> tuple[Any, dict[str, Tensor]]:
    """Return a value as JSON, and the tensors that the JSON refers to by name."""
    tensors: dict[str, Tensor] = {}
    return _encode(value, "", tensors), tensors


def _encode(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, range):
        value = list(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return None  # its state has advanced, so it is no longer the seed
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, Tensor):
        tensors[place] = value.detach().cpu().contiguous().clone()
        return {"tensor": place}
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "OUS":
            words = [_encode(v, f"{place}.{i}", tensors) for i, v in enumerate(value.ravel())]
            return {"words": words, "type": value.dtype.str, "shape": list(value.shape)}
        tensors[place] = torch.from_numpy(np.ascontiguousarray(value).copy())
        return {"array": place}
    dot = f"{place}." if place else ""
    if isinstance(value, dict):
        named = ((k.item() if isinstance(k, np.generic) else k, v) for k, v in value.items())
        return {"dict": [[k, _encode(v, f"{dot}{k}", tensors)] for k, v in named]}
    if isinstance(value, list) or type(value) is tuple:
        items = [_encode(v, f"{dot}{i}", tensors) for i, v in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if not isinstance(value, Snapshot):
        if not is_saveable(value):
            name = place or "the object"
            raise TypeError(f"{name} is {_described(value)}, which cannot be saved")
        value = Snapshot(type(value), value.state())
    state = {k: _encode(v, f"{dot}{k}", tensors) for k, v in value.state.items()}
    return {"kind": value.of.saved_kind, "state": state}


def is_saveable(value: object) -> bool:
    """Return whether the class of an object is registered, and not only a base of it."""
    return _kinds.get(getattr(type(value), "saved_kind", "")) is type(value)


def decode(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return what :func:`encode` was given."""
    if isinstance(value, list):
        return [decode(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    if "float" in value:
        return float(value["float"])
    if "dtype" in value:
        found = getattr(torch, value["dtype"])
        if not isinstance(found, torch.dtype):
            raise ValueError(f"{value['dtype']} is not a torch dtype")
        return found
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "array" in value:
        return tensors[value["array"]].numpy()
    if "words" in value:
        words = np.empty(len(value["words"]), dtype=object)
        words[:] = [decode(v, tensors) for v in value["words"]]
        # As long as the words are, whatever length the file claims.
        as_text = np.dtype(value["type"]).kind != "O"
        return (words.astype(str) if as_text else words).reshape(value["shape"])
    if "dict" in value:
        return {k: decode(v, tensors) for k, v in value["dict"]}
    if "tuple" in value:
        return tuple(decode(v, tensors) for v in value["tuple"])
    return _class_of(value["kind"]).from_state(
        {k: decode(v, tensors) for k, v in value["state"].items()}
    )


def _class_of(kind: str) -> type[Saveable]:
    """Return the class of a kind, importing the packages that may register it."""
    for home in HOMES.split():
        if kind in _kinds:
            break
        with suppress(ImportError):  # of a part whose optional requirements are missing
            import_module(f"tensorswitch.{home}")
    if kind not in _kinds:
        what = f"it holds an object of the unknown kind {kind!r}"
        raise ValueError(f"{what}; import the module that defines it first")
    return _kinds[kind]


def _described(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
