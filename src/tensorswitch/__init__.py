"""Tensor Switching networks for PyTorch and scikit-learn.

A hidden unit of an ordinary ReLU network passes on a scalar. A hidden unit of a Tensor Switching
network passes on a copy of its entire input, if it is active:

    y = Σ_j H(w_j · x) V_jᵀ x

References
----------
Tsai, Saxe and Cox, Tensor Switching Networks, NIPS 2016, arXiv:1610.10087.
"""

from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType

from tensorswitch import algebra, inverted, kernels, nn, ridge, switches
from tensorswitch.nn import (
    CompressedSwitching,
    JointSwitching,
    SwitchedConv2d,
    SwitchedLinear,
    TensorSwitching,
    convert,
)
from tensorswitch.switched import switched_linear
from tensorswitch.switches import Routes

__version__ = version("tensorswitch")

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
    "nn",
    "ridge",
    "switched_linear",
    "switches",
]


def __getattr__(name: str) -> ModuleType:
    # Packages that need scikit-learn, or are slow to import, are imported when they are first used.
    if not name.startswith("_") and find_spec(f"tensorswitch.{name}"):
        return import_module(f"tensorswitch.{name}")
    raise AttributeError(f"module 'tensorswitch' has no attribute {name!r}")


def __dir__() -> list[str]:
    parts = (part.name for part in iter_modules(__path__))
    return sorted({*globals(), *(name for name in parts if not name.startswith("_"))})
