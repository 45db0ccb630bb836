import itertools
import math

import mpmath
import numpy as np
import pytest
import torch

from benchmarks._measure import peak_extra_bytes
from benchmarks.kernels import prepared
from tensorswitch import TensorSwitching
from tensorswitch.kernels import (
    TILE,
    KernelTiles,
    equivalent_kernels,
    finite_kernel,
    ntk_kernel,
    ss_kernel,
    ts_kernel,
)

SMALL = [0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.3, 0.39, 0.41]
ANGLES = [*SMALL, 0.7, 1, np.pi / 2, 2, 2.5, *(np.pi - a for a in reversed(SMALL))]
DEPTHS = range(11)


def oracle(x, y):
    """Both kernels at all depths, to 40 digits, and ‖x‖‖y‖."""
    with mpmath.workdps(40):
        x, y = ([mpmath.mpf(float(v)) for v in row] for row in (x, y))
        nx, ny = (mpmath.sqrt(mpmath.fdot(row, row)) for row in (x, y))
        if not nx * ny:
            return dict.fromkeys(itertools.product(("ss", "ts"), DEPTHS), 0), 1
        apart, together = (
            [a / nx + s * b / ny for a, b in zip(x, y, strict=True)] for s in (-1, 1)
        )
        theta = 2 * mpmath.atan2(
            mpmath.sqrt(mpmath.fdot(apart, apart)), mpmath.sqrt(mpmath.fdot(together, together))
        )
        ss = ts = mpmath.cos(theta)
        values = {}
        for depth in DEPTHS:
            values["ss", depth], values["ts", depth] = ss * nx * ny, ts * nx * ny
            ts *= 1 - theta / mpmath.pi
            ss = (mpmath.sin(theta) + (mpmath.pi - theta) * mpmath.cos(theta)) / mpmath.pi
            theta = mpmath.acos(min(ss, mpmath.mpf(1)))
        return values, nx * ny


PRECISIONS = [(np.float32, 2e-6), (np.float64, 1e-12)]
NORMS = [(1, 1), (1e-20, 1e20), (1e18, 1e18), (1e-15, 1e-15), (3e5, 2e-3)]
FAR_NORMS = [(1e20, 1e20), (1e-20, 1e-20)]  # beyond the range of float32


@pytest.mark.parametrize(
    ("dtype", "tolerance", "norms"),
    [*((*p, n) for p in PRECISIONS for n in NORMS), *((np.float64, 1e-12, n) for n in FAR_NORMS)],
)
def test_against_arbitrary_precision(dtype, tolerance, norms):
    rng = np.random.default_rng(0)
    for features in (2, 30):
        u, v = np.linalg.qr(rng.standard_normal((features, 2)))[0].T
        X = (norms[0] * u[None]).astype(dtype)
        Y = np.array(
            [norms[1] * (np.cos(a) * u + np.sin(a) * v) for a in ANGLES] + [np.zeros(features)]
        ).astype(dtype)
        results = equivalent_kernels(X, Y, depths=DEPTHS)
        for column, y in enumerate(Y):
            exact, scale = oracle(X[0], y)
            for key, K in results.items():
                assert K.dtype == dtype
                assert abs(mpmath.mpf(float(K[0, column])) - exact[key]) <= tolerance * scale, (
                    key,
                    column,
                )


def test_many_close_pairs_are_as_exact_as_few():
    noise = np.random.default_rng(0).standard_normal((60, 5))
    X = 1 + 1e-4 * noise  # all nearly parallel: the dense branch
    X[1::2] *= -1
    for dtype, tolerance in ((np.float32, 2e-6), (np.float64, 1e-12)):
        rows = X.astype(dtype)
        K = ts_kernel(rows, depth=2)
        for i, j in ((0, 2), (0, 1), (3, 8)):
            exact, scale = oracle(rows[i], rows[j])
            assert abs(K[i, j] - exact["ts", 2]) <= tolerance * scale


def test_formulas_of_the_paper():
    X = np.random.default_rng(0).standard_normal((20, 6))
    linear = X @ X.T
    norm = np.linalg.norm(X, axis=1)
    theta = np.arccos(np.clip(linear / np.outer(norm, norm), -1, 1))
    np.testing.assert_allclose(ts_kernel(X, depth=0), linear)
    np.testing.assert_allclose(ts_kernel(X), (1 - theta / np.pi) * linear, atol=1e-6)
    # The published Eq. (4) has a minus sign here, contrary to its source, its figure and k ≥ 0.
    expected = (1 + (np.tan(theta) - theta) / np.pi) * linear
    np.testing.assert_allclose(ss_kernel(X), expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_symmetric_to_the_bit_with_exact_diagonal_and_no_negative_eigenvalues(dtype):
    X = np.random.default_rng(0).standard_normal((TILE + 40, 5)).astype(dtype)
    X[7] = X[3]
    for K in equivalent_kernels(X, depths=(0, 1, 4)).values():
        assert (K == K.T).all()
        squares = np.array([math.fsum(float(v) ** 2 for v in row) for row in X])
        single = dtype == np.float32
        rounding = (0.51 if single else 2) * np.finfo(dtype).eps
        np.testing.assert_allclose(K.diagonal(), squares, rtol=rounding)
        assert K[3, 7] == pytest.approx(K[3, 3], rel=1e-6 if single else 1e-14)
        least = np.linalg.eigvalsh(K.astype(np.float64)).min()
        assert least > -(1e-5 if single else 1e-13) * K.max()


def test_one_sweep_equals_one_at_a_time_and_tiles_do_not_matter():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((TILE + 30, 8)), rng.standard_normal((50, 8))
    for (kind, depth), K in equivalent_kernels(X, Y, depths=(0, 1, 3)).items():
        kernel = {"ss": ss_kernel, "ts": ts_kernel}[kind]
        alone = kernel(X[TILE - 5 :], Y, depth)
        np.testing.assert_allclose(K[TILE - 5 :], alone, atol=1e-13)
        together = kernel(np.concatenate([X, Y]), depth=depth)
        np.testing.assert_allclose(K, together[: len(X), len(X) :], atol=1e-13)


def test_returns_the_kind_it_got():
    X = torch.randn(4, 3)
    assert isinstance(ts_kernel(X), torch.Tensor)
    assert ts_kernel(X).dtype == torch.float32
    assert isinstance(ts_kernel(X.numpy()), np.ndarray)
    assert ts_kernel(X.numpy().astype(np.int64)).dtype == np.float64
    double = equivalent_kernels(X, depths=[1], kinds=["ts"], dtype=torch.float64)["ts", 1]
    assert double.dtype == torch.float64
    assert ts_kernel(X[:0], X).shape == (0, 4)
    assert ts_kernel(X.double().t()[:, :2].t()).shape == (2, 2)


def test_limits_of_deep_kernels():
    X = np.array([[1.0, 0.0]])
    Y = np.array([[np.cos(a), np.sin(a)] for a in np.linspace(0.05, np.pi, 40)])
    assert (ss_kernel(X, Y, depth=1000) > 0.99).all()
    assert (abs(ts_kernel(X, Y, depth=1000)) < 0.01).all()
    assert ts_kernel(X, X, depth=1000)[0, 0] == 1
    assert (ss_kernel(X, Y) >= -1e-15).all()
    assert ts_kernel(X, Y).min() < -0.05  # the negative lobe
    near = np.array([[np.cos(1e-6), np.sin(1e-6)]])
    slope = (1 - ts_kernel(X, near)[0, 0]) / 1e-6  # the cusp: 1 − k is linear in the angle
    assert slope == pytest.approx(1 / np.pi, rel=1e-4)


@pytest.mark.parametrize("depth", [1, 2])
def test_finite_kernels_converge_as_one_over_the_root_of_the_width(depth):
    X = np.random.default_rng(0).standard_normal((12, 10))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    exact = ts_kernel(X, depth=depth)
    errors = []
    for width in (64, 1024):
        networks = [
            TensorSwitching(10, [width] * depth, 1, dtype=torch.float64, device="meta")
            for _ in range(10)
        ]
        for network in networks:
            network.gate_weights = torch.nn.ParameterList(
                torch.randn(w.shape, dtype=torch.float64) for w in network.gate_weights
            )
        errors.append(np.sqrt(np.mean([(finite_kernel(n, X) - exact) ** 2 for n in networks])))
    assert 2.5 < errors[0] / errors[1] < 6.5  # 4 is expected


def test_the_finite_kernel_is_the_scaled_product_of_the_representations():
    from tensorswitch import algebra

    network = TensorSwitching(4, (3, 5), 1, dtype=torch.float64)
    x, y = torch.randn(6, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    zx, zy = (
        algebra.tensor_switching(rows, list(network.gate_weights))[-1].flatten(1) for rows in (x, y)
    )
    torch.testing.assert_close(finite_kernel(network, x, y), (2 / 3) * (2 / 5) * zx @ zy.t())


def test_little_memory_beyond_the_result():
    for features in (64, 3072):
        assert peak_extra_bytes(prepared, features) - 4 * 6000**2 < 64e6


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: ts_kernel(np.ones(3)),
            ValueError,
            r"X must have 2 axes \(rows, features\), got shape \(3,\)",
        ),
        (
            lambda: ts_kernel(np.ones((2, 3)), np.ones((2, 4))),
            ValueError,
            "X has 3 features but Y has 4",
        ),
        (lambda: ts_kernel(np.array([[np.nan]])), ValueError, "X contains NaN or infinity"),
        (
            lambda: ts_kernel(np.ones((1, 1)), np.array([[np.inf]])),
            ValueError,
            "Y contains NaN or infinity",
        ),
        (
            lambda: ts_kernel(np.ones((2, 3)), depth=-1),
            ValueError,
            "depth must be 0 or more, got -1",
        ),
        (
            lambda: ts_kernel(np.ones((2, 3)), depth=1.5),
            TypeError,
            "depth must be an integer, got 1.5",
        ),
        (lambda: ts_kernel(np.ones((2, 3), dtype=complex)), TypeError, "X must hold real numbers"),
        (
            lambda: ts_kernel(torch.ones(2, 3), torch.ones(2, 3).double()),
            TypeError,
            "X is torch.float32 on cpu but Y is torch.float64",
        ),
        (
            lambda: equivalent_kernels(np.ones((2, 3)), kinds=["rbf"]),
            ValueError,
            "kernel must be 'ss', 'ts' or 'ntk', got 'rbf'",
        ),
        (
            lambda: equivalent_kernels(np.ones((2, 3)), depths=[]),
            ValueError,
            "must each name at least one",
        ),
        (
            lambda: finite_kernel(TensorSwitching(3, (2,), 1), np.ones((2, 4))),
            ValueError,
            "X has 4 features but the network takes 3",
        ),
        (
            lambda: finite_kernel(TensorSwitching(3, (2,), 1), np.ones((2, 3)), np.ones((2, 4))),
            ValueError,
            "X has 3 features but Y has 4",
        ),
    ],
)
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("kernel", [ss_kernel, ts_kernel])
@pytest.mark.parametrize(
    ("dtype", "large"), [(np.float32, 1e30), (np.float64, 1e200), (np.float64, 1e300)]
)
def test_lengths_may_be_as_far_apart_as_the_type_allows(kernel, dtype, large):
    x, y = np.array([[large, 0]], dtype), np.array([[1 / large, 0], [0, 1 / large]], dtype)
    expected = kernel(np.array([[1.0, 0]]), np.array([[1.0, 0], [0, 1.0]]))
    np.testing.assert_allclose(kernel(x, y), expected, rtol=1e-6, atol=1e-6)


def tangent(x, y, depth):
    """The recursion as written by Jacot, Gabriel and Hongler."""
    result = x @ y.T
    lengths = np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1))
    for layer in range(depth):
        theta = np.arccos(np.clip(ss_kernel(x, y, layer) / lengths, -1, 1))
        result = ss_kernel(x, y, layer + 1) + result * (1 - theta / np.pi)
    return result


@pytest.mark.parametrize("depth", [0, 1, 2, 5])
def test_the_tangent_kernel_is_its_recursion(depth):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 4)), rng.normal(size=(20, 4))
    expected = tangent(x, y, depth)
    np.testing.assert_allclose(ntk_kernel(x, y, depth), expected, rtol=1e-10, atol=1e-12)
    gram = ntk_kernel(x, depth=depth)
    np.testing.assert_array_equal(gram, gram.T)
    np.testing.assert_allclose(np.diag(gram), (depth + 1) * np.square(x).sum(1), rtol=1e-12)
    np.testing.assert_allclose(gram, tangent(x, x, depth), rtol=1e-6, atol=1e-6)
    single = ntk_kernel(x.astype(np.float32), y.astype(np.float32), depth)
    np.testing.assert_allclose(single, expected, rtol=1e-5, atol=1e-5)


def test_all_kinds_come_from_one_sweep():
    x = np.random.default_rng(0).normal(size=(30, 4))
    swept = equivalent_kernels(x, kinds=["ss", "ts", "ntk"], depths=[1, 3])
    alone = {"ss": ss_kernel, "ts": ts_kernel, "ntk": ntk_kernel}
    for (kind, depth), gram in swept.items():
        np.testing.assert_allclose(gram, alone[kind](x, depth=depth), rtol=1e-13, atol=1e-14)
    total = swept["ss", 1] + swept["ts", 1]
    np.testing.assert_allclose(swept["ntk", 1], total, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("kernel", [ss_kernel, ts_kernel, ntk_kernel])
def test_a_gradient_that_would_be_lost_is_refused(kernel):
    x = torch.randn(4, 3, requires_grad=True)
    with pytest.raises(ValueError, match="kernels have no gradient, but X requires one"):
        kernel(x)
    with torch.no_grad():
        assert torch.equal(kernel(x), kernel(x.detach()))


@pytest.mark.parametrize(
    ("v", "error", "message"),
    [
        (torch.ones(4), ValueError, "V"),
        (torch.ones(4, 1, dtype=torch.float64), TypeError, "V is torch.float64"),
        (torch.ones(5, 1), ValueError, "X has 4 rows but V has 5"),
    ],
)
def test_wrong_vectors_are_named(v, error, message):
    with pytest.raises(error, match=message):
        KernelTiles(torch.randn(4, 3)) @ v


@pytest.mark.parametrize("part", [-1, 3])
def test_parts_are_numbered_from_zero(part):
    with pytest.raises(ValueError, match=f"part must be between 0 and parts - 1 = 2, got {part}"):
        KernelTiles(torch.randn(4, 3), part=part, parts=3)
