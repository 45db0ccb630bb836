"""Tensor Switching networks for PyTorch and scikit-learn.

A hidden unit of an ordinary ReLU network passes on a scalar. A hidden unit of a Tensor Switching
network passes on a copy of its entire input, if it is active:

    y = Σ_j H(w_j · x) V_jᵀ x

References
----------
Tsai, Saxe and Cox, Tensor Switching Networks, NIPS 2016, arXiv:1610.10087.
"""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorswitch import algebra, inverted, kernels, nn, ridge, switches
    from tensorswitch.nn import (
        CompressedSwitching,
        JointSwitching,
        SwitchedConv2d,
        SwitchedLinear,
        TensorSwitching,
        convert,
    )
    from tensorswitch.persistence import load
    from tensorswitch.switched import switched_linear
    from tensorswitch.switches import Routes

__all__ = [
    "CompressedSwitching",
    "JointSwitching",
    "Routes",
    "SwitchedConv2d",
    "SwitchedLinear",
    "TensorSwitching",
    "algebra",
    "convert",
    "inverted",
    "kernels",
    "load",
    "nn",
    "ridge",
    "switched_linear",
    "switches",
]
# Everything is imported when it is first used, so that the command line answers at once, and
# layers do not wait for SciPy and scikit-learn.
_HOMES = {
    "CompressedSwitching": "nn",
    "JointSwitching": "nn",
    "Routes": "switches",
    "SwitchedConv2d": "nn",
    "SwitchedLinear": "nn",
    "TensorSwitching": "nn",
    "convert": "nn",
    "load": "persistence",
    "switched_linear": "switched",
}


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and name not in _HOMES and find_spec(f"tensorswitch.{name}"):
        return import_module(f"tensorswitch.{name}")
    if name in _HOMES:
        found = getattr(import_module(f"tensorswitch.{_HOMES[name]}"), name)
        globals()[name] = found  # so that the next use does not come here
        return found
    if name == "__version__":
        return import_module("importlib.metadata").version("tensorswitch")
    raise AttributeError(f"module 'tensorswitch' has no attribute {name!r}")


def __dir__() -> list[str]:
    parts = (part.name for part in iter_modules(__path__) if not part.name.startswith("_"))
    return sorted({*globals(), *_HOMES, *parts, "__version__"})
