"""The public functions, which check their arguments and choose a strategy."""

from __future__ import annotations

import torch
from torch import Tensor

from tensorswitch._checks import autocast_dtype, check_dtype_device, check_floating, check_shape
from tensorswitch.switched import _cost
from tensorswitch.switched._autograd import OuterSum, SwitchedMap
from tensorswitch.switches import Routes

__all__ = ["switched_linear", "switched_outer"]


def switched_linear(
    x: Tensor,
    gates: Tensor | Routes,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    group: int | None = None,
) -> Tensor:
    """Compute ``y_b = Σ_j gates_bj · (x_b @ weight_j) + bias`` without the expanded tensor.

    The result is differentiable any number of times with respect to ``x``, ``weight`` and
    ``bias``. Gates have no gradient; :mod:`tensorswitch.inverted` gives them a pseudo-gradient.
    Under autocast, products are computed in the autocast dtype and accumulated in float32.

    Parameters
    ----------
    x : Tensor of shape (rows, in_features)
        Input rows. The result for a row that contains NaN or infinity is undefined, even if its
        gates are closed.
    gates : bool Tensor of shape (rows, gates) or Routes
        Which units are open for each row. :class:`~tensorswitch.Routes` also copy one row to
        another.
    weight : Tensor of shape (gates, in_features, out_features)
        Analysis weights.
    bias : Tensor of shape (out_features,), optional
        Bias, added to every output row.
    group : int, optional
        Number of units that are processed together: 0 is dense, 1 gathers the open rows of each
        unit, and 2 to 6 share work between rows with the same gate pattern. By default chosen
        from the sizes and the fraction of open gates.

    Returns
    -------
    Tensor of shape (rows, out_features)
        Output rows.

    Raises
    ------
    TypeError
        If ``gates`` is not boolean, or the data types do not agree.
    ValueError
        If the shapes or devices do not agree.

    References
    ----------
    Tsai, Saxe and Cox, Tensor Switching Networks, arXiv:1610.10087, Sec. 4.3.

    Examples
    --------
    >>> x, gates = torch.tensor([[1.0, 2.0]]), torch.tensor([[True, False, True]])
    >>> switched_linear(x, gates, torch.ones(3, 2, 1))
    tensor([[6.]])
    """
    routes = gates if isinstance(gates, Routes) else Routes(gates)
    _check(x, routes, weight, bias)
    _check_group(group)

    if (dtype := autocast_dtype(x.device)) is not None and x.dtype != torch.float64:
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    if routes.source is not None:
        x = x.index_select(0, routes.source)
    if 0 in weight.shape:  # an empty sum: zeros, with gradients of zero
        y = x @ weight.sum(0)
    else:
        if group is None:
            training = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
            group = _choose(x, routes.gates, weight.shape[2], training)
        y = SwitchedMap.apply(x, routes.gates, weight, group)
    if routes.target is not None and routes.rows is not None:
        y = y.new_zeros(routes.rows, y.shape[1]).index_add(0, routes.target, y)
    return y if bias is None else y + bias


def switched_outer(x: Tensor, gates: Tensor, errors: Tensor, *, group: int | None = None) -> Tensor:
    """Compute ``Σ_b gates_bj x_b errors_bᵀ``, the adjoint of :func:`switched_linear` in its weight.

    Parameters
    ----------
    x : Tensor of shape (rows, in_features)
        Input rows.
    gates : bool Tensor of shape (rows, gates)
        Which units are open for each row.
    errors : Tensor of shape (rows, out_features)
        Errors, such as the gradient of the output rows.
    group : int, optional
        As in :func:`switched_linear`.

    Returns
    -------
    Tensor of shape (gates, in_features, out_features)
        For each unit, the sum of the outer products over the rows that open it.

    Examples
    --------
    >>> x, gates = torch.tensor([[1.0, 2.0]]), torch.tensor([[True, False]])
    >>> switched_outer(x, gates, torch.tensor([[3.0]]))[:, :, 0]
    tensor([[3., 6.],
            [0., 0.]])
    """
    routes = Routes(gates)
    check_floating("x", x)
    check_shape("x", x, (None, None), "(rows, in_features)")
    routes.check_source(x)
    check_floating("errors", errors)
    check_shape("errors", errors, (len(x), None), "(rows, out_features)")
    check_dtype_device("errors", errors, "x", x)
    _check_group(group)
    if 0 in (*gates.shape, x.shape[1], errors.shape[1]):  # an empty sum has nothing to group
        group = 0
    if group is None:
        group = _choose(x, gates, errors.shape[1], True)
    result: Tensor = OuterSum.apply(x, gates, errors, group)
    return result


def _check(x: Tensor, routes: Routes, weight: Tensor, bias: Tensor | None) -> None:
    check_floating("x", x)
    check_shape("x", x, (None, None), "(rows, in_features)")
    expected = (routes.gates.shape[1], x.shape[1], None)
    check_shape("weight", weight, expected, "(gates, in_features, out_features)")
    check_dtype_device("weight", weight, "x", x)
    if bias is not None:
        check_shape("bias", bias, (weight.shape[2],), "(out_features,)")
        check_dtype_device("bias", bias, "x", x)
    routes.check_source(x)


def _check_group(group: int | None) -> None:
    valid = range(_cost.MAX_GROUP + 1)
    if group is not None and (type(group) is not int or group not in valid):
        raise ValueError(f"group must be None or an integer from 0 to {valid[-1]}, got {group!r}")


def _choose(x: Tensor, gates: Tensor, n_out: int, backward: bool) -> int:
    units, n_in = gates.shape[1], x.shape[1]
    if len(x) * units * n_in * n_out <= _cost.TINY:
        return 0
    open_fraction = int(gates.sum()) / gates.numel()
    return _cost.choose_group(len(x), n_in, units, n_out, open_fraction, backward)
