"""The public functions: checks of arguments, autocast, and the plain formula for small sizes."""

import torch
from torch import Tensor
from torch.jit import is_tracing  # type: ignore[attr-defined]

from tensorswitch._checks import autocast_dtype, check_dtype_device, check_floating, check_shape
from tensorswitch.switched._cost import COSTS, MAX_GROUP
from tensorswitch.switched._derivatives import check_map, check_outer, linear, outer
from tensorswitch.switched._plain import plain, plain_outer
from tensorswitch.switches import Routes

FULL = (torch.float32, torch.float64)  # narrower types accumulate in float32


def switched_linear(
    x: Tensor,
    gates: Tensor | Routes,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    group: int | None = None,
) -> Tensor:
    """Compute ``y_b = Σ_j gates_bj · (x_b @ weight_j) + bias`` without the expanded tensor.

    The result, of shape (rows, out_features), is differentiable any number of times with respect to
    ``x``, ``weight`` and ``bias``. Gates have no gradient; :mod:`tensorswitch.inverted` gives them
    a pseudo-gradient.
    Under autocast, the result has the autocast dtype, and products are computed in it and
    accumulated in float32. On CPUs, products of fewer than 256 rows with more than 8 million
    weights may be computed in float32, where the conversion of all weights would take longer.

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

    Examples
    --------
    >>> import torch
    >>> from tensorswitch import switched_linear
    >>> x, gates = torch.tensor([[1.0, 2.0]]), torch.tensor([[True, False, True]])
    >>> switched_linear(x, gates, torch.ones(3, 2, 1))
    tensor([[6.]])
    """
    if group is None and _is_small(x, gates, weight, bias):
        y = plain(x, gates, weight)  # type: ignore[arg-type]
        return y if bias is None else y + bias
    routes = check_map(x, gates, weight)
    check_dtype_device("weight", weight, "x", x)
    if bias is not None:
        check_floating("bias", bias)
        check_shape("bias", bias, (weight.shape[2],), "(out_features,)")
        check_dtype_device("bias", bias, "x", x)
    _check_group(group)

    dtype = autocast_dtype(x.device)
    if dtype is not None and x.dtype != torch.float64:
        x, bias = x.to(dtype), None if bias is None else bias.to(dtype)
    if routes.source is not None:
        x = x.index_select(0, routes.source)
    if x.dtype.itemsize >= weight.dtype.itemsize:
        weight = weight.to(x.dtype)  # wider weights are converted block by block, in cache
    if 0 in weight.shape:  # an empty sum: zeros, with gradients of zero
        y = x @ weight.sum(0).to(x.dtype)
    elif is_tracing() or torch.onnx.is_in_onnx_export():  # for runtimes without this package
        y = plain(x, routes.gates, weight.to(x.dtype))
    else:
        training = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
        y = linear(x, routes.gates, weight, group, training)
    if routes.target is not None and routes.rows is not None:
        y = y.new_zeros(routes.rows, y.shape[1]).index_add(0, routes.target, y)
    return y if bias is None else y + bias


def switched_outer(x: Tensor, gates: Tensor, errors: Tensor, *, group: int | None = None) -> Tensor:
    """Compute ``Σ_b gates_bj x_b errors_bᵀ``, the adjoint of :func:`switched_linear` in its weight.

    For each unit, the outer products are summed over the rows that open it. The result has the
    shape (gates, in_features, out_features).

    Parameters
    ----------
    x, gates, group : Tensor, bool Tensor and int
        As in :func:`switched_linear`, which describes them.
    errors : Tensor of shape (rows, out_features)
        Errors, such as the gradient of the output rows.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.switched import switched_outer
    >>> x, gates = torch.tensor([[1.0, 2.0]]), torch.tensor([[True, False]])
    >>> switched_outer(x, gates, torch.tensor([[3.0]]))[:, :, 0]
    tensor([[3., 6.],
            [0., 0.]])
    """
    check_outer(x, gates, errors)
    _check_group(group)
    dtype = autocast_dtype(x.device)
    if dtype is not None and x.dtype != torch.float64:
        x, errors = x.to(dtype), errors.to(dtype)
    if 0 in (x.shape[1], gates.shape[1], errors.shape[1]):  # an empty sum has nothing to group
        return plain_outer(x, gates, errors)
    return outer(x, gates, errors, group)


def _is_small(x: Tensor, gates: Tensor | Routes, weight: Tensor, bias: Tensor | None) -> bool:
    """Return whether the plain formula is fastest, for arguments without errors."""
    # All that precedes the formula for small sizes, so it takes few steps.
    if torch.compiler.is_compiling() or isinstance(gates, Routes):
        return False
    try:
        (rows, n_in), (pairs, units), (copies, features, n_out) = x.shape, gates.shape, weight.shape
        dtype, device = x.dtype, x.device
        return (
            0 < rows * units * n_in * n_out <= COSTS.tiny
            and rows == pairs
            and units == copies
            and n_in == features
            and gates.dtype == torch.bool
            and dtype == weight.dtype
            and dtype in FULL
            and device == weight.device == gates.device
            and (
                bias is None
                or (bias.shape == (n_out,) and bias.dtype == dtype and bias.device == device)
            )
            and autocast_dtype(device) is None
        )
    except (AttributeError, TypeError, ValueError):
        return False  # the checks say what is wrong


def _check_group(group: int | None) -> None:
    valid = range(MAX_GROUP + 1)
    if group is not None and (type(group) is not int or group not in valid):
        raise ValueError(f"group must be None or an integer from 0 to {valid[-1]}, got {group!r}")
