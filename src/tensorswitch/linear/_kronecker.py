"""The Kronecker preconditioner: inputs and gates taken as independent.

    C ≈ A_above ⊗ A_1 ⊗ Σ,        A = mean of h hᵀ,    Σ = Σ_b s x xᵀ

Its inverse is applied in the eigenbasis of its factors. It is cheap at any size, and handles the
directions that all units share.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tensorswitch.linear._cholesky import SingularError
from tensorswitch.linear._ranks import Ranks
from tensorswitch.linear._representation import RowsOf
from tensorswitch.switches import combine_gates

Operator = Callable[[Tensor], Tensor]


def kronecker_inverse(
    rows: RowsOf, sample_weight: Tensor, weight_sum: float, ranks: Ranks
) -> Callable[[float], Operator]:
    """Return a function from λ to ``(A_above ⊗ A_1 ⊗ Σ + λI)⁻¹`` on weights (features, out)."""
    x, first = rows.x, rows.gates[0].to(rows.x.dtype)
    several = len(rows.gates) > 1
    above = combine_gates(rows.gates[1:]).to(x.dtype) if several else x.new_ones(len(x), 1)
    values, bases = [], []
    for part, count in ((above, weight_sum), (first, weight_sum), (x, 1.0)):
        moment = ranks.total((part * sample_weight[:, None]).t() @ part).double()
        try:
            found, vectors = torch.linalg.eigh(moment / max(count, 1e-300))
        except RuntimeError as error:  # LinAlgError is a RuntimeError
            raise SingularError(
                "the eigendecomposition of the moments of x and the gates failed"
            ) from error
        values.append(found.clamp_min(0).to(x.dtype))
        bases.append(vectors.to(x.dtype))
    t, u, v = values
    r, p, q = bases

    def rotate(w: Tensor, c: Tensor, a: Tensor, b: Tensor) -> Tensor:
        w = torch.matmul(b, w.view(-1, len(b), w.shape[-1])).view(w.shape)
        w = torch.matmul(a, w.view(-1, len(a), len(b) * w.shape[-1])).view(w.shape)
        result: Tensor = (c @ w.view(len(c), -1)).view(w.shape) if len(c) > 1 else w * c
        return result

    def inverse(alpha: float) -> Operator:
        spectrum = (t[:, None, None] * u[:, None] * v + alpha).view(-1, 1)
        limits = torch.finfo(x.dtype)
        spectrum = spectrum.clamp_min(max(limits.tiny, limits.eps * float(spectrum.max())))
        bases = (r.t().contiguous(), p.t().contiguous(), q.t().contiguous())
        return lambda w: rotate(rotate(w, *bases) / spectrum, r, p, q)

    return inverse
