"""Checks of the arguments of the operators, for tensors with and without data."""

from __future__ import annotations

from torch import Tensor

from tensorswitch._checks import check_dtype_device, check_floating, check_shape
from tensorswitch.switches import Routes


def check_map(x: Tensor, gates: Tensor | Routes, weight: Tensor) -> Routes:
    """Return the gates as routes; raise unless ``x``, gates and weight are compatible."""
    routes = gates if isinstance(gates, Routes) else Routes(gates)
    check_floating("x", x)
    check_shape("x", x, (None, None), "(rows, in_features)")
    expected = (routes.gates.shape[1], x.shape[1], None)
    check_floating("weight", weight)
    check_shape("weight", weight, expected, "(gates, in_features, out_features)")
    check_dtype_device("weight", weight, "x", x)
    routes.check_source(x)
    return routes


def check_outer(x: Tensor, gates: Tensor, errors: Tensor) -> None:
    """Raise unless ``x``, gates and errors are compatible."""
    routes = Routes(gates)
    check_floating("x", x)
    check_shape("x", x, (None, None), "(rows, in_features)")
    routes.check_source(x)
    check_floating("errors", errors)
    check_shape("errors", errors, (x.shape[0], None), "(rows, out_features)")
    check_dtype_device("errors", errors, "x", x)
