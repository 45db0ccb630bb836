"""Equivalent kernels of random networks, scalar (SS) and tensor switching (TS), of any depth.

With ``θ_l`` the angle between the two inputs after l layers of the infinitely wide SS network,
where ``θ_0`` is the angle between ``x`` and ``y``:

    k_SS,l = ‖x‖ ‖y‖ cos θ_l              cos θ_{l+1} = (sin θ_l + (π − θ_l) cos θ_l) / π
    k_TS,l = x·y Π_{m<l} (1 − θ_m / π)
    k_NTK,l+1 = k_SS,l+1 + k_NTK,l (1 − θ_l / π)         k_NTK,0 = x·y

Depth 0 is the linear kernel. At depth l, k(x, x) is ‖x‖² for SS and TS and (l + 1) ‖x‖² for the
NTK. The paper's Eq. (4) prints k_SS,1 as ``(1 − (tan θ − θ)/π) x·y``, which has a sign error: the
kernel is ``(1 + (tan θ − θ)/π) x·y``.

All kinds and depths are computed in one sweep, tile by tile so that intermediate results stay in
cache, and for k(X, X) on one triangle only. The recursion carries ``(1 − cos θ)/2`` instead of
``cos θ``, which is exact for small angles, where the TS kernel has its cusp. For nearly parallel or
opposite pairs, the scalar product is not precise enough to give the first angle, which is computed
from ``‖x̂ ∓ ŷ‖`` instead.

References
----------
Cho and Saul, Kernel Methods for Deep Learning, NIPS 2009 (the arc-cosine kernels).

Jacot, Gabriel and Hongler, Neural Tangent Kernel, NeurIPS 2018, arXiv:1806.07572.
"""

from tensorswitch.kernels._equivalent import (
    equivalent_kernels,
    finite_kernel,
    ntk_kernel,
    ss_kernel,
    ts_kernel,
)
from tensorswitch.kernels._inputs import check_depth as check_depth
from tensorswitch.kernels._inputs import check_kind as check_kind
from tensorswitch.kernels._inputs import diagonal_factor as diagonal_factor
from tensorswitch.kernels._tiles import TILE as TILE
from tensorswitch.kernels._tiles import KernelTiles as KernelTiles

__all__ = ["equivalent_kernels", "finite_kernel", "ntk_kernel", "ss_kernel", "ts_kernel"]
