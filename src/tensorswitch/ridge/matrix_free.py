"""Ridge regression without a Gram matrix: conjugate gradients on the switched linear map."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tensorswitch.ridge._cholesky import SingularError
from tensorswitch.ridge._penalty import Alpha, check_alphas, effective_rows, least_gcv, log, probes
from tensorswitch.ridge._solution import Fit, Solution, mean_diagonal
from tensorswitch.ridge._validation import Problem, check_some_rows, column_energies
from tensorswitch.ridge.readout import ReadoutMap, inner_first, outer_first
from tensorswitch.switches import Switch, combine_gates, deep_gates

Operator = Callable[[Tensor], Tensor]
Watch = Callable[[str], None]


@torch.no_grad()
def solve_matrix_free(
    x: Tensor,
    targets: Tensor,
    gate_weights: Sequence[Tensor],
    alpha: Alpha = "mean",
    *,
    sample_weight: Tensor | None = None,
    tol: float = 1e-3,
    max_iter: int = 500,
    start: Tensor | None = None,
    distributed: bool = False,
    watch: Watch | None = None,
    switch: Switch | str = "relu",
) -> Solution:
    """Solve ``(ZᵀZ + λI) W = Zᵀ T`` by preconditioned conjugate gradients, all outputs at once.

    Parameters
    ----------
    x : Tensor of shape (rows, n_0)
        The inputs.
    targets : Tensor of shape (rows, out)
        The targets.
    gate_weights : sequence of Tensor
        The fixed gate weights of each layer, of shape (n_l, units below).
    alpha : float, "mean" or a sequence of these, default="mean"
        The penalty λ; "mean" is the mean of the diagonal of ``ZᵀZ``. Of several values, the one
        with the lowest generalised cross-validation error is used. Each starts from the solution of
        the next larger one.
    sample_weight : Tensor of shape (rows,), optional
        Weights of the rows, 1 by default.
    tol : float, default=1e-3
        Stop when the norm of the residual relative to ``Zᵀ T`` is at most ``tol`` for every output.
    max_iter : int, default=500
        Maximum number of iterations. A warning is logged if they do not reach ``tol``.
    start : Tensor of shape (n_L, …, n_1, n_0, out), optional
        Weights to start from, such as the solution for a similar λ. By default zero.
    distributed : bool, default=False
        Whether each rank of ``torch.distributed`` holds its own rows. All ranks return the same
        solution.
    watch : callable, optional
        Called with a note on the residual after each iteration.
    switch : Switch or str, default="relu"
        The switch that opens the gates.

    Returns
    -------
    Solution
        The readout, with λ, the number of iterations and the residual.

    Raises
    ------
    ValueError
        If the arguments are inconsistent, or the iteration breaks down.

    Notes
    -----
    The preconditioner treats inputs and gates as independent, which makes the Gram matrix a
    Kronecker product of small matrices. Its inverse is cheap and handles the directions that all
    units share. If λ = 0 leaves the solution undetermined, conjugate gradients return one of the
    solutions, whereas the direct solvers raise an error.

    Degrees of freedom for generalised cross-validation are estimated with random signs as
    additional targets [1]_.

    References
    ----------
    .. [1] M. F. Hutchinson, "A Stochastic Estimator of the Trace of the Influence Matrix for
       Laplacian Smoothing Splines", Communications in Statistics 19(2), 1990.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.ridge import draw_gates, solve_dual, solve_matrix_free
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(200, 4, generator=generator)
    >>> gate_weights = draw_gates(4, [16], generator)
    >>> solution = solve_matrix_free(x, x.abs(), gate_weights, tol=1e-5)
    >>> direct = solve_dual(x, x.abs(), gate_weights)
    >>> torch.allclose(solution.weight, direct.weight, atol=1e-4)
    True
    """
    problem = Problem.checked(x, targets, gate_weights, sample_weight, switch)
    total = _all_reduce if distributed else _alone
    return matrix_free(problem, alpha, tol, max_iter, start, total, watch)


def matrix_free(
    problem: Problem,
    alpha: Alpha,
    tol: float,
    max_iter: int,
    start: Tensor | None = None,
    total: Operator | None = None,
    watch: Watch | None = None,
) -> Solution:
    """Solve a validated problem; ``total`` sums a tensor over all processes."""
    if not tol > 0:
        raise ValueError(f"tol must be above 0, got {tol}")
    with torch.autocast(problem.x.device.type, enabled=False):
        return _solve(problem, alpha, tol, max_iter, start, total or _alone, watch)


def _solve(
    problem: Problem,
    alpha: Alpha,
    tol: float,
    max_iter: int,
    start: Tensor | None,
    total: Operator,
    watch: Watch | None,
) -> Solution:
    x, targets, gate_weights, sample_weight, switch = problem
    gates = deep_gates(x, gate_weights, switch)
    weights = x.new_ones(len(x)) if sample_weight is None else sample_weight
    sums = [
        mean_diagonal(x, gates, sample_weight),
        float(column_energies(targets, weights).sum()),
        float(weights.double().sum()),
        float(weights.double().square().sum()),
        len(x),
    ]
    sums = total(torch.tensor(sums, dtype=torch.float64, device=x.device)).tolist()
    mean, energy, weight_sum, squares, rows = sums
    check_some_rows(weight_sum)
    # Scaling by powers of two is exact and keeps products from overflowing or underflowing. With
    # 2^p x, 2^q s and 2^r t the system has λ' = 2^(2p + q) λ and W' = 2^(r − p) W.
    q = 0 if sample_weight is None else -_exponent(weight_sum / rows)
    p = -(_exponent(max(mean, *check_alphas(alpha, mean))) + q) // 2
    r = -(_exponent(energy) + q) // 2
    x, weights, targets = _times_power(x, p), _times_power(weights, q), _times_power(targets, r)
    z = ReadoutMap(x, gates, None if sample_weight is None else weights)
    inverse = _kronecker_inverse(x, gates, weights, weight_sum * 2.0**q, total)
    goal = total(z.adjoint(targets))
    rest = -_exponent(float(goal.abs().max()))  # the goal may be far smaller if λ dominates
    goal, targets, r = _times_power(goal, rest), _times_power(targets, rest), r + rest
    found = None if start is None else _times_power(inner_first(start), r - p)
    # The degrees of freedom, tr Z (ZᵀZ + λI)⁻¹ Zᵀ, are estimated by fitting random signs v on the
    # rows: with the solution u, they are the mean of vᵀ Z u.
    signs = x.new_zeros(len(x), 0)
    signs_goal, explained = goal[..., :0], None

    def fit(value: float, judged: bool) -> Fit:
        nonlocal found, signs, signs_goal, explained
        shift = value * 2.0 ** (2 * p + q)
        precondition = inverse(shift)

        def operator(w: Tensor) -> Tensor:
            return total(z.normal(w)).add_(w, alpha=shift)

        def tell(iteration: int, residual: float) -> None:
            if watch is not None:
                watch(f"alpha {value:.3g}, iteration {iteration}, residual {residual:.1e}")

        found, iterations, residual = _conjugate_gradients(
            operator, precondition, goal, found, tol, max_iter, tell
        )
        weight = outer_first(_times_power(found, p - r), [len(w) for w in gate_weights])
        solution = Solution(weight, value, iterations, residual)
        if not judged:
            return Fit(solution)
        if not signs.shape[1]:
            # The adjoint multiplies by s, and the estimate needs √s.
            root = weights.sqrt().clamp_min(torch.finfo(x.dtype).tiny)
            signs = probes(len(x), x) / root[:, None]
            signs = torch.where(weights[:, None] > 0, signs, 0)
            signs_goal = total(z.adjoint(signs))
        explained, _, _ = _conjugate_gradients(
            operator, precondition, signs_goal, explained, tol, max_iter, tell
        )
        error = (weights[:, None] * (targets - z.forward(found)).double().square()).sum()[None]
        squared_error = float(total(error)) * 2.0 ** (-2 * r - q)
        freedom = float(_dot(signs_goal.double(), explained.double()).mean())
        return Fit(solution, squared_error, freedom)

    return least_gcv(alpha, mean, effective_rows(weight_sum, squares), fit)


def _conjugate_gradients(
    operator: Operator,
    precondition: Operator,
    goal: Tensor,
    start: Tensor | None,
    tol: float,
    max_iter: int,
    tell: Callable[[int, float], None],
) -> tuple[Tensor, int, float]:
    """Return the solution, the number of iterations, and the largest relative residual."""
    tiny = torch.finfo(goal.dtype).tiny
    scale = goal.flatten(0, -2).norm(dim=0).clamp_min(tiny)
    weight = torch.zeros_like(goal) if start is None else start.clone()
    residual = goal.clone() if start is None else goal - operator(weight)
    direction = precondition(residual)
    steepness = _dot(residual, direction)
    worst, iteration = float((residual.flatten(0, -2).norm(dim=0) / scale).max()), 0
    while worst > tol and iteration < max_iter:
        image = operator(direction)
        step = steepness / _dot(direction, image).clamp_min(tiny)
        weight += step * direction
        residual -= step * image
        ready = precondition(residual)
        new = _dot(residual, ready)
        direction = ready + (new / steepness.clamp_min(tiny)) * direction
        steepness = new
        iteration += 1
        worst = float((residual.flatten(0, -2).norm(dim=0) / scale).max())
        tell(iteration, worst)
    if not math.isfinite(worst):
        raise SingularError("the system is singular to working precision; use a larger alpha")
    if worst > tol:
        log.warning(
            "conjugate gradients stopped after %d iterations with residual %.1e, above tol=%.1e",
            iteration,
            worst,
            tol,
        )
    return weight, iteration, worst


def _exponent(value: float) -> int:
    return math.frexp(value)[1]


def _times_power(tensor: Tensor, exponent: int) -> Tensor:
    """Multiply by ``2^exponent`` in two steps, since the power alone may overflow."""
    half = exponent // 2
    return tensor * 2.0**half * 2.0 ** (exponent - half)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the scalar product of each output."""
    return (a * b).flatten(0, -2).sum(0)


class _Factor(NamedTuple):
    values: Tensor
    vectors: Tensor


def _kronecker_inverse(
    x: Tensor, gates: Sequence[Tensor], sample_weight: Tensor, rows: float, total: Operator
) -> Callable[[float], Operator]:
    """Return a function from λ to ``(A_1 ⊗ Σ ⊗ A_above + λI)⁻¹``, applied in the eigenbasis.

    ``Σ = Σ_b s x xᵀ``; the ``A`` are the means of ``h hᵀ`` of the first and of all other layers.
    """
    above = combine_gates(gates[1:]).to(x.dtype) if len(gates) > 1 else x.new_ones(len(x), 1)
    factors = []
    for part, count in ((gates[0].to(x.dtype), rows), (x, 1.0), (above, rows)):
        moment = total((part * sample_weight[:, None]).t() @ part).double() / max(count, 1e-300)
        try:
            values, vectors = torch.linalg.eigh(moment)
        except RuntimeError as error:  # LinAlgError is a RuntimeError
            raise SingularError(
                "the eigendecomposition of the moments of x and the gates failed"
            ) from error
        factors.append(_Factor(values.clamp_min(0).to(x.dtype), vectors.to(x.dtype)))
    (u, p), (v, q), (t, r) = factors

    def rotate(w: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        w = (a @ w.flatten(1)).view(w.shape)
        w = torch.matmul(b, w.flatten(2)).view(w.shape)
        result: Tensor = torch.matmul(c, w) if len(c) > 1 else w * c
        return result

    def inverse(alpha: float) -> Operator:
        spectrum = (u[:, None, None] * v[:, None] * t + alpha).unsqueeze(-1)
        limits = torch.finfo(x.dtype)
        spectrum = spectrum.clamp_min(max(limits.tiny, limits.eps * float(spectrum.max())))
        return lambda w: rotate(rotate(w, p.t(), q.t(), r.t()) / spectrum, p, q, r)

    return inverse


def _alone(tensor: Tensor) -> Tensor:
    return tensor


def _all_reduce(tensor: Tensor) -> Tensor:
    from torch import distributed

    distributed.all_reduce(tensor)
    return tensor
