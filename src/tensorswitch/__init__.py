"""Tensor Switching networks for PyTorch and scikit-learn.

A hidden unit of an ordinary ReLU network passes on a scalar. A hidden unit of a Tensor Switching
network passes on a copy of its entire input, if it is active:

    y = Σ_j H(w_j · x) V_jᵀ x

References
----------
Tsai, Saxe and Cox, Tensor Switching Networks, NIPS 2016, arXiv:1610.10087.
"""

from importlib.metadata import version

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
