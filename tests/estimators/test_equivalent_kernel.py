import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import WhiteKernel
from sklearn.kernel_ridge import KernelRidge

from tensorswitch.estimators import EquivalentKernel
from tensorswitch.kernels import ss_kernel, ts_kernel

X = np.random.default_rng(0).standard_normal((15, 4))


@pytest.mark.parametrize(("kind", "function"), [("ss", ss_kernel), ("ts", ts_kernel)])
def test_values_and_diagonal(kind, function):
    kernel = EquivalentKernel(kind, depth=2, scale=3.0)
    np.testing.assert_allclose(kernel(X, X[:4]), 3 * function(X, X[:4], 2))
    np.testing.assert_allclose(kernel.diag(X), kernel(X).diagonal())


def test_integers_do_not_overflow():
    pixels = np.array([[200, 200], [0, 30]], dtype=np.uint8)
    np.testing.assert_allclose(EquivalentKernel().diag(pixels), [80000, 900])


def test_gradient_by_the_logarithm_of_the_scale():
    kernel = EquivalentKernel(depth=2, scale=0.7)
    _, gradient = kernel(X, eval_gradient=True)
    step = 1e-6
    higher, lower = (kernel.clone_with_theta(kernel.theta + s)(X) for s in (step, -step))
    np.testing.assert_allclose(gradient[..., 0], (higher - lower) / (2 * step), rtol=1e-6)
    assert EquivalentKernel(scale_bounds="fixed")(X, eval_gradient=True)[1].shape == (15, 15, 0)


def test_in_a_gaussian_process_and_kernel_ridge():
    y = np.sin(X.sum(1))
    model = GaussianProcessRegressor(EquivalentKernel(depth=2) + WhiteKernel(1e-3)).fit(X, y)
    assert model.kernel_.theta.shape == (2,)
    exact = KernelRidge(alpha=1e-3, kernel="precomputed").fit(ts_kernel(X, depth=2), y)
    ridge = KernelRidge(alpha=1e-3, kernel=EquivalentKernel(depth=2)).fit(X, y)
    np.testing.assert_allclose(ridge.predict(X), exact.predict(ts_kernel(X, depth=2)))
    assert clone(EquivalentKernel("ss", 4)) == EquivalentKernel("ss", 4)
    assert repr(EquivalentKernel("ss", 4)) == "EquivalentKernel(kind='ss', depth=4, scale=1)"


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="'ss', 'ts' or 'ntk', got 'rbf'"):
        EquivalentKernel("rbf")(X)
    with pytest.raises(ValueError, match="omit Y"):
        EquivalentKernel()(X, X, eval_gradient=True)


def test_the_likelihood_of_a_gaussian_process_has_its_gradient():
    """Gaussian processes add their noise to the kernel matrix in place."""
    model = GaussianProcessRegressor(EquivalentKernel(), alpha=0.1, optimizer=None)
    model.fit(X, np.abs(X).sum(1))
    step, theta = 1e-5, np.array([-1.0])
    _, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
    higher, lower = (model.log_marginal_likelihood(theta + s) for s in (step, -step))
    np.testing.assert_allclose(gradient, (higher - lower) / (2 * step), rtol=1e-6)
