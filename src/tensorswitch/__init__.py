"""Tensor Switching networks for PyTorch and scikit-learn.

A hidden unit of an ordinary ReLU network passes on a scalar. A hidden unit of a Tensor Switching
network passes on a copy of its entire input, if it is active:

    y = Σ_j H(w_j · x) V_jᵀ x

References
----------
Tsai, Saxe and Cox, Tensor Switching Networks, NIPS 2016, arXiv:1610.10087.
"""

from importlib import import_module
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
    "nn",
    "ridge",
    "switched_linear",
    "switches",
]
# Everything is imported when it is first used, so that the command line need not wait for torch.
_PACKAGES = (
    "algebra",
    "compare",
    "data",
    "datasets",
    "estimators",
    "explain",
    "features",
    "inverted",
    "kernel_ridge",
    "kernels",
    "linear",
    "models",
    "nn",
    "persistence",
    "preprocessing",
    "ridge",
    "switched",
    "switches",
    "tables",
    "teach",
    "training",
)
_HOMES = {
    "Routes": "switches",
    "switched_linear": "switched",
    **dict.fromkeys(
        (
            "CompressedSwitching",
            "JointSwitching",
            "SwitchedConv2d",
            "SwitchedLinear",
            "TensorSwitching",
            "convert",
        ),
        "nn",
    ),
}


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"tensorswitch.{name}")
    if name in _HOMES:
        found = globals()[name] = getattr(import_module(f"tensorswitch.{_HOMES[name]}"), name)
        return found
    if name == "__version__":
        return import_module("importlib.metadata").version("tensorswitch")
    raise AttributeError(f"module 'tensorswitch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PACKAGES, *_HOMES, "__version__"})
