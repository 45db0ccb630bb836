"""Tensor Switching networks: a hidden unit that is active passes on a copy of its whole input."""

from importlib.metadata import version

from tensorswitch import algebra, inverted, kernels, nn, ridge, switches
from tensorswitch.nn import SwitchedConv2d, SwitchedLinear, TensorSwitching
from tensorswitch.switched import switched_linear
from tensorswitch.switches import Routes

__version__ = version("tensorswitch")

__all__ = [
    "Routes",
    "SwitchedConv2d",
    "SwitchedLinear",
    "TensorSwitching",
    "algebra",
    "inverted",
    "kernels",
    "nn",
    "ridge",
    "switched_linear",
    "switches",
]
