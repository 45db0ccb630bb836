"""Tensor Switching layers for ``torch.nn``.

The gate weights of a layer decide which units are open, and its analysis weights are applied to
the copies of the input. Gates are fixed by default. With ``learn_gates="ibp"``, ``.backward()``
also computes their pseudo-gradient by inverted backpropagation, so that any torch optimiser can
train them. Gradients reach the previous layer through the copies only, never through the gates.
"""

from tensorswitch.nn._base import evaluating as evaluating
from tensorswitch.nn._conv import SwitchedConv2d
from tensorswitch.nn._convert import convert
from tensorswitch.nn._deep import TensorSwitching
from tensorswitch.nn._joint import CompressedSwitching, JointSwitching
from tensorswitch.nn._linear import SwitchedLinear
from tensorswitch.nn._onnx import to_onnx

__all__ = [
    "CompressedSwitching",
    "JointSwitching",
    "SwitchedConv2d",
    "SwitchedLinear",
    "TensorSwitching",
    "convert",
    "to_onnx",
]
