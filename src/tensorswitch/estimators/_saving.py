"""Fitted estimators as tensors and JSON; nothing is pickled.

An estimator is saved as its attributes. Numbers, strings, lists and dictionaries become JSON,
arrays become tensors, and objects of this package become the names of their classes with their
attributes in turn. Reading creates objects of this package only, and runs none of their methods.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from tensorswitch._files import read_tensors, write_tensors
from tensorswitch.features import PatchBank2d
from tensorswitch.models import Network
from tensorswitch.models._networks import build
from tensorswitch.training import Learner

__all__ = ["load_estimator", "load_estimator_with_notes", "save_estimator"]

FORMAT = "tensorswitch.estimator"
# Sums over training rows, and rows, which predictions do not need.
DROPPED = ("_statistics", "_problem", "_held")
PACKAGE = "tensorswitch."


def save_estimator(model: Any, path: str | Path, **notes: Any) -> None:
    """Write a fitted estimator to a safetensors file, atomically.

    Parameters
    ----------
    model : estimator
        A fitted estimator of :mod:`tensorswitch.estimators`.
    path : str or Path
        File to write.
    **notes : Any
        Values to store with it: what JSON has, arrays, and objects of this package.

    Raises
    ------
    TypeError
        If it is not such an estimator, or a parameter cannot be stored.
    NotFittedError
        If it is not fitted.

    See Also
    --------
    load_estimator : Read the file.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from tensorswitch.estimators import TSRidgeClassifier, load_estimator, save_estimator
    >>> X, y = load_iris(return_X_y=True)
    >>> model = TSRidgeClassifier(random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_estimator(model, f"{folder}/model.safetensors")
    ...     loaded = load_estimator(f"{folder}/model.safetensors")
    >>> bool((loaded.predict(X) == model.predict(X)).all())
    True
    """
    name = type(model).__name__
    if not isinstance(model, _known(name) or ()):
        raise TypeError(f"only estimators of tensorswitch can be saved, got {type(model)}")
    if hasattr(model, "fit"):
        check_is_fitted(model)
    if hasattr(type(model), "solution_"):
        getattr(model, "solution_", None)  # solves the readout if that is pending
        if hasattr(model, "_calibrated"):
            model._calibrated()
    tensors: dict[str, Tensor] = {}
    state = {k: v for k, v in vars(model).items() if k not in DROPPED}
    content = {k: _encode(v, k, tensors) for k, v in state.items()}
    stored = {k: _encode(v, f"notes.{k}", tensors) for k, v in notes.items()}
    header = {"class": name, "attributes": content, "notes": stored}
    write_tensors(path, FORMAT, tensors, header)


def load_estimator(path: str | Path) -> Any:
    """Read an estimator from a file written by :func:`save_estimator`.

    Nothing is unpickled, so that files from untrusted sources cannot run code. The estimator
    predicts as before; it has no sums over training rows to which ``partial_fit`` could add.

    Parameters
    ----------
    path : str or Path
        File to read.

    Returns
    -------
    estimator
        The fitted estimator.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged or does not contain an estimator.
    """
    return _load(path)[0]


def load_estimator_with_notes(path: str | Path) -> tuple[Any, dict[str, Any]]:
    """Read an estimator and the notes stored with it.

    Parameters
    ----------
    path : str or Path
        File written by :func:`save_estimator`.

    Returns
    -------
    model : estimator
        The fitted estimator.
    notes : dict
        The notes.
    """
    return _load(path, with_notes=True)


def _load(path: str | Path, with_notes: bool = False) -> tuple[Any, dict[str, Any]]:
    """Read an estimator, with its notes on request.

    Notes may contain objects of modules that have not been imported.
    """
    tensors, header = read_tensors(path, FORMAT)
    try:
        notes = header["notes"] if with_notes else {}
        kind = _known(header["class"])
        if kind is None:
            raise ValueError(f"there is no estimator {header['class']!r}")
        model: Any = object.__new__(kind)
        attributes = {k: _decode(v, tensors) for k, v in header["attributes"].items()}
        vars(model).update({**dict.fromkeys(DROPPED), **attributes})
        return model, {k: _decode(v, tensors) for k, v in notes.items()}
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, MemoryError) as error:
        raise ValueError(f"{path} does not contain a complete estimator: {error}") from error


def _known(name: str) -> type | None:
    """Return the estimator of this package with a name."""
    from tensorswitch import estimators  # which imports this module

    kind = getattr(estimators, name, None) if name in estimators.__all__ else None
    return kind if isinstance(kind, type) else None


def _encode(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    """Return a value as JSON, adding its arrays to ``tensors``."""
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
        return _encode_array(value, place, tensors)
    if isinstance(value, dict):
        named = ((k.item() if isinstance(k, np.generic) else k, v) for k, v in value.items())
        return {"dict": [[k, _encode(v, f"{place}.{k}", tensors)] for k, v in named]}
    if isinstance(value, list) or type(value) is tuple:
        items = [_encode(v, f"{place}.{i}", tensors) for i, v in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    return _encode_object(value, place, tensors)


def _encode_array(value: np.ndarray, place: str, tensors: dict[str, Tensor]) -> Any:
    if value.dtype.kind in "OUS":
        words = [_encode(v, f"{place}.{i}", tensors) for i, v in enumerate(value.ravel())]
        return {"words": words, "type": value.dtype.str, "shape": list(value.shape)}
    tensors[place] = torch.from_numpy(np.ascontiguousarray(value).copy())
    return {"array": place}


def _encode_object(value: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Learner):
        network = _encode_object(value.network, f"{place}.network", tensors)
        return {"learner": network, "loss": value.loss_name, "options": value.options()}
    if isinstance(value, Network):
        for name, tensor in value.state_dict().items():
            tensors[f"{place}.{name}"] = tensor.detach().cpu().contiguous().clone()
        return {"network": value.description, "place": f"{place}."}
    if isinstance(value, PatchBank2d):
        for name, tensor in value.state_dict().items():
            tensors[f"{place}.{name}"] = tensor.detach().cpu().contiguous().clone()
        content = _encode(value.description(), place, tensors)
        return {"bank": content, "place": f"{place}."}
    kind = type(value)
    if not kind.__module__.startswith(PACKAGE) or isinstance(value, nn.Module):
        raise TypeError(f"{place} is {kind.__name__}, which cannot be saved")
    fields: dict[str, Any] = (
        value._asdict()  # type: ignore[attr-defined]
        if isinstance(value, tuple)
        else {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        if dataclasses.is_dataclass(value)
        else vars(value)
    )
    content = {k: _encode(v, f"{place}.{k}", tensors) for k, v in fields.items()}
    return {"object": f"{kind.__module__}:{kind.__qualname__}", "fields": content}


def _decode(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(v, tensors) for v in value]
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
        words[:] = [_decode(v, tensors) for v in value["words"]]
        # As long as the words are, whatever length the file claims.
        as_text = np.dtype(value["type"]).kind != "O"
        return (words.astype(str) if as_text else words).reshape(value["shape"])
    if "dict" in value:
        return {k: _decode(v, tensors) for k, v in value["dict"]}
    if "tuple" in value:
        return tuple(_decode(v, tensors) for v in value["tuple"])
    if "learner" in value:
        options = value.get("options", {})  # not in older files
        return Learner(_decode(value["learner"], tensors), loss=value["loss"], **options)
    if "network" in value:
        return _network(value, tensors)
    if "bank" in value:
        place = value["place"]
        held = {k.removeprefix(place): t for k, t in tensors.items() if k.startswith(place)}
        return PatchBank2d.from_description(_decode(value["bank"], tensors), held)
    return _object(value, tensors)


def _network(value: dict[str, Any], tensors: dict[str, Tensor]) -> Network:
    place = value["place"]
    weights = {k.removeprefix(place): t for k, t in tensors.items() if k.startswith(place)}
    with torch.device("meta"):  # allocate nothing before the sizes are known to agree
        network = build(value["network"])
    network.load_state_dict(weights, assign=True)
    return network


def _object(value: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    """Create an object of this package from its attributes, without running its code."""
    module, _, name = value["object"].partition(":")
    kind = getattr(sys.modules.get(module), name, None) if module.startswith(PACKAGE) else None
    if not isinstance(kind, type) or kind.__module__ != module:
        raise ValueError(f"there is no class {value['object']!r}")
    fields = {k: _decode(v, tensors) for k, v in value["fields"].items()}
    if issubclass(kind, tuple):
        fields = {**kind._field_defaults, **fields}  # type: ignore[attr-defined]
        return tuple.__new__(kind, [fields[name] for name in kind._fields])  # type: ignore[attr-defined]
    made = object.__new__(kind)
    for name, field in fields.items():
        object.__setattr__(made, name, field)
    return made
