"""Random problems, their dense solution and the solvers, for the tests of linear readouts."""

import itertools

import torch

from tensorswitch import algebra
from tensorswitch.linear import Copies, Sums, solve_matrix_free

DEPTHS = [(5,), (4, 3), (3, 2, 2)]


def problem(gates, rows=60, n_in=4, out=2):
    x = torch.randn(rows, n_in, dtype=torch.float64)
    gate_weights = [
        torch.randn(n, below, dtype=torch.float64)
        for below, n in itertools.pairwise((n_in, *gates))
    ]
    return (
        x,
        torch.randn(rows, out, dtype=torch.float64),
        gate_weights,
        torch.rand(rows, dtype=torch.float64),
    )


def dense(x, targets, gate_weights, weight, alpha):
    """Solve with the full representation."""
    z = algebra.tensor_switching(x, gate_weights)[-1].flatten(1)
    s = torch.ones(len(x), dtype=x.dtype) if weight is None else weight
    gram = z.T @ (s[:, None] * z)
    value = gram.diagonal().mean() if alpha == "mean" else alpha
    solution = torch.linalg.solve(
        gram + value * torch.eye(len(gram), dtype=x.dtype), z.T @ (s[:, None] * targets)
    )
    return solution, float(value)


def streaming(x, targets, gate_weights, alpha="mean", *, sample_weight=None, switch="relu"):
    return (
        Sums(Copies(gate_weights, switch), targets.shape[1], dtype=torch.float64, folds=2)
        .update(x, targets, sample_weight)
        .solve(alpha)
    )


def matrix_free(*arguments, **options):
    return solve_matrix_free(*arguments, tol=1e-12, **options)
