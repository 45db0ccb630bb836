"""The formula in plain torch operations, with the derivatives and transforms that torch gives it.

It builds the expanded tensor, on its narrower side: ``h ⊗ x`` if the output is as wide as the
input, otherwise ``h ∘ (x V_1, …, x V_n)``. For small sizes nothing is faster. It is also the form
for exporters, whose graphs run where this package is not installed.
"""

from torch import Tensor


def plain(x: Tensor, gates: Tensor, weight: Tensor) -> Tensor:
    """Return ``Σ_j h_bj V_jᵀ x_b`` by building the expanded tensor."""
    h = gates.to(x.dtype).unsqueeze(-1)
    if weight.shape[2] < weight.shape[1]:
        products: Tensor = x @ weight.transpose(0, 1).flatten(1)
        products = products.unflatten(-1, (weight.shape[0], weight.shape[2]))
        return (h * products).sum(-2)
    return (h * x.unsqueeze(-2)).flatten(-2) @ weight.flatten(0, 1)


def plain_outer(x: Tensor, gates: Tensor, errors: Tensor) -> Tensor:
    """Return ``Σ_b h_bj x_b δ_bᵀ`` by building the expanded tensor; leading axes are batches."""
    h, units = gates.to(x.dtype).unsqueeze(-1), gates.shape[-1]
    if errors.shape[-1] < x.shape[-1]:
        flat: Tensor = x.mT @ (h * errors.unsqueeze(-2)).flatten(-2)
        by_unit: Tensor = flat.unflatten(-1, (units, errors.shape[-1]))
        return by_unit.transpose(-3, -2)
    flat = (h * x.unsqueeze(-2)).flatten(-2).mT @ errors
    return flat.unflatten(-2, (units, x.shape[-1]))
