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
# Imported when they are first used, as they need scikit-learn or are slow to import.
_LAZY = (
    "compare",
    "data",
    "datasets",
    "estimators",
    "experiments",
    "explain",
    "features",
    "kernel_ridge",
    "linear",
    "models",
    "paper",
    "persistence",
    "preprocessing",
    "tables",
    "teach",
    "training",
)


def __getattr__(name: str) -> ModuleType:
    if name in _LAZY:
        return import_module(f"tensorswitch.{name}")
    raise AttributeError(f"module 'tensorswitch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
