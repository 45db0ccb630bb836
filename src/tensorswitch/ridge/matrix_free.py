"""Ridge regression without a Gram matrix: conjugate gradients on the switched map."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tensorswitch._progress import progress_bar
from tensorswitch.ridge._cholesky import SingularError
from tensorswitch.ridge._penalty import Alpha, check_alphas, effective_rows, least_gcv, log, probes
from tensorswitch.ridge._solution import Fit, Solution, mean_diagonal
from tensorswitch.ridge._validation import Problem, check_some_rows, column_energies
from tensorswitch.ridge.readout import ReadoutMap, inner_first, outer_first
from tensorswitch.switches import Switch, combine_gates, deep_gates

Operator = Callable[[Tensor], Tensor]


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
    progress: bool = False,
    switch: Switch | str = "relu",
) -> Solution:
    """Preconditioned conjugate gradients on ``(ZᵀZ + λI) W = Zᵀ T``, all outputs at once.

    Parameters
    ----------
    x, targets : (rows, n_0) and (rows, out)
    gate_weights : for each layer (n_l, n_{l-1})
    alpha : λ, or "mean", or several to choose from; each then starts from the solution of the one before
    sample_weight : (rows,)
    tol : stop when the residual is this small relative to ``Zᵀ T``, for every output
    max_iter : or after so many iterations, with a warning in the log
    start : weights to start from, such as those of a neighbouring λ
    distributed : each rank of ``torch.distributed`` has its own rows; all get the same answer
    progress : show a bar with the residual

    The preconditioner takes gates and inputs for independent, which makes the Gram matrix a Kronecker product of one small matrix for each layer:
    its inverse costs next to nothing and takes care of the directions that all units share.
    Where λ = 0 leaves more than one answer this finds one of them; the solvers that factorise a matrix refuse.
    """
    problem = Problem.checked(x, targets, gate_weights, sample_weight, switch)
    total = _all_reduce if distributed else _alone
    return matrix_free(problem, alpha, tol, max_iter, start, total, progress)


def matrix_free(
    problem: Problem,
    alpha: Alpha,
    tol: float,
    max_iter: int,
    start: Tensor | None = None,
    total: Operator | None = None,
    progress: bool = False,
) -> Solution:
    """Solve a problem that has been checked. ``total`` sums a tensor over all processes."""
    if not tol > 0:
        raise ValueError(f"tol must be above 0, got {tol}")
    with torch.autocast(problem.x.device.type, enabled=False):
        return _solve(problem, alpha, tol, max_iter, start, total or _alone, progress)


def _solve(
    problem: Problem,
    alpha: Alpha,
    tol: float,
    max_iter: int,
    start: Tensor | None,
    total: Operator,
    progress: bool,
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
    # Scaled by powers of two, exactly, so that no product overflows or underflows: with
    # 2^p x, 2^q s and 2^r t the system has λ' = 2^(2p + q) λ and W' = 2^(r − p) W.
    q = 0 if sample_weight is None else -_exponent(weight_sum / rows)
    p = -(_exponent(max(mean, *check_alphas(alpha, mean))) + q) // 2
    r = -(_exponent(energy) + q) // 2
    x, weights, targets = _times_power(x, p), _times_power(weights, q), _times_power(targets, r)
    z = ReadoutMap(x, gates, None if sample_weight is None else weights)
    inverse = _kronecker_inverse(x, gates, weights, weight_sum * 2.0**q, total)
    goal = total(z.adjoint(targets))
    rest = -_exponent(float(goal.abs().max()))  # it may be far smaller, where λ dominates
    goal, targets, r = _times_power(goal, rest), _times_power(targets, rest), r + rest
    found = None if start is None else _times_power(inner_first(start), r - p)
    # For the degrees of freedom, tr Z (ZᵀZ + λI)⁻¹ Zᵀ: signs v on the rows as further targets, of which the fit explains vᵀ Z u.
    signs = x.new_zeros(len(x), 0)
    signs_goal, explained = goal[..., :0], None

    def fit(value: float, judged: bool) -> Fit:
        nonlocal found, signs, signs_goal, explained
        shift = value * 2.0 ** (2 * p + q)
        precondition = inverse(shift)

        def operator(w: Tensor) -> Tensor:
            return total(z.normal(w)).add_(w, alpha=shift)

        with progress_bar(f"conjugate gradients, alpha {value:.3g}", progress) as bar:
            found, iterations, residual = _conjugate_gradients(
                operator, precondition, goal, found, tol, max_iter, bar
            )
            weight = outer_first(_times_power(found, p - r), [len(w) for w in gate_weights])
            solution = Solution(weight, value, iterations, residual)
            if not judged:
                return Fit(solution)
            if not signs.shape[1]:
                signs = (
                    probes(len(x), x) / weights.sqrt().clamp_min(torch.finfo(x.dtype).tiny)[:, None]
                )  # the map multiplies by the weight
                signs = torch.where(weights[:, None] > 0, signs, 0)
                signs_goal = total(z.adjoint(signs))
            explained, _, _ = _conjugate_gradients(
                operator, precondition, signs_goal, explained, tol, max_iter, bar
            )
        error = (weights[:, None] * (targets - z.forward(found)).double().square()).sum()[None]
        squared_error = float(total(error)) * 2.0 ** (-2 * r - q)
        return Fit(
            solution, squared_error, float(_dot(signs_goal.double(), explained.double()).mean())
        )

    return least_gcv(alpha, mean, effective_rows(weight_sum, squares), fit)


def _conjugate_gradients(
    operator: Operator,
    precondition: Operator,
    goal: Tensor,
    start: Tensor | None,
    tol: float,
    max_iter: int,
    bar: Callable[..., None],
) -> tuple[Tensor, int, float]:
    """The solution for every output (the last axis), iterations taken, and the largest residual relative to the goal."""
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
        bar(note=f"residual {worst:.1e}")
    if not math.isfinite(worst):
        raise SingularError("the system is singular to working precision; use a larger alpha")
    if worst > tol:
        log.warning(
            "conjugate gradients stopped after %d iterations at a residual of %.1e, not the %.1e asked for",
            iteration,
            worst,
            tol,
        )
    return weight, iteration, worst


def _exponent(value: float) -> int:
    return math.frexp(value)[1]


def _times_power(tensor: Tensor, exponent: int) -> Tensor:
    """``2^exponent`` times the tensor; in two steps, since the power alone may overflow."""
    half = exponent // 2
    return tensor * 2.0**half * 2.0 ** (exponent - half)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """The scalar product of each output."""
    return (a * b).flatten(0, -2).sum(0)


class _Factor(NamedTuple):
    values: Tensor
    vectors: Tensor


def _kronecker_inverse(
    x: Tensor, gates: Sequence[Tensor], sample_weight: Tensor, rows: float, total: Operator
) -> Callable[[float], Operator]:
    """For each λ ``(A_1 ⊗ Σ ⊗ A_above + λI)⁻¹`` with ``Σ = Σ_b s x xᵀ`` and ``A`` the mean of ``h hᵀ``, through the eigenvectors of each."""
    above = combine_gates(gates[1:]).to(x.dtype) if len(gates) > 1 else x.new_ones(len(x), 1)
    factors = []
    for part, count in ((gates[0].to(x.dtype), rows), (x, 1.0), (above, rows)):
        moment = total((part * sample_weight[:, None]).t() @ part).double() / max(count, 1e-300)
        try:
            values, vectors = torch.linalg.eigh(moment)
        except RuntimeError as error:  # LinAlgError is one
            raise SingularError("the moments of x and the gates have no eigenvectors") from error
        factors.append(_Factor(values.clamp_min(0).to(x.dtype), vectors.to(x.dtype)))
    (u, p), (v, q), (t, r) = factors

    def rotate(w: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        w = (a @ w.flatten(1)).view(w.shape)
        w = torch.matmul(b, w.flatten(2)).view(w.shape)
        result: Tensor = torch.matmul(c, w) if len(c) > 1 else w * c
        return result

    def inverse(alpha: float) -> Operator:
        spectrum = (u[:, None, None] * v[:, None] * t + alpha).unsqueeze(-1)
        spectrum = spectrum.clamp_min(
            max(torch.finfo(x.dtype).tiny, torch.finfo(x.dtype).eps * float(spectrum.max()))
        )
        return lambda w: rotate(rotate(w, p.t(), q.t(), r.t()) / spectrum, p, q, r)

    return inverse


def _alone(tensor: Tensor) -> Tensor:
    return tensor


def _all_reduce(tensor: Tensor) -> Tensor:
    from torch import distributed

    distributed.all_reduce(tensor)
    return tensor
