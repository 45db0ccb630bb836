"""
Kernels and Gaussian processes
==============================

A random network of infinite width is a kernel machine. The kernels of ReLU (SS) and TS networks
and the tangent kernel (NTK) have closed forms at any depth.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor

from tensorswitch.estimators import EquivalentKernel, TSKernelRidgeRegressor
from tensorswitch.kernels import equivalent_kernels, ts_kernel

# %%
# Shapes
# ------
# As depth grows, the SS kernel calls everything similar, and the TS kernel calls nothing similar
# but equal directions.

angles = np.linspace(0, np.pi, 200)
circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
found = equivalent_kernels(circle[:1], circle, kinds=("ss", "ts"), depths=(1, 3, 10))
figure, axes = plt.subplots(figsize=(7, 3.2))
for (kind, depth), values in found.items():
    style = {1: "-", 3: "--", 10: ":"}[depth]
    colour = {"ss": "#0072b2", "ts": "#d55e00"}[kind]
    axes.plot(angles, values[0], style, color=colour, label=f"{kind.upper()}, depth {depth}")
axes.set(xlabel="angle between two unit vectors", ylabel="kernel", xticks=(0, np.pi / 2, np.pi))
axes.set_xticklabels(("0", "π/2", "π"))
axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %%
# Kernels of given rows, in any dtype, and accurate for nearly equal ones:

rows = np.random.default_rng(0).normal(size=(500, 8))
print(ts_kernel(rows, depth=3).shape)

# %%
# How sure is it?
# ---------------
# ``TSKernelRidgeRegressor`` chooses kernel, depth and penalty by leave-one-out error. With
# ``return_std`` it also gives the standard deviation of the Gaussian process with that kernel; it
# grows where there are no rows.

rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(-3, -0.6, 40), rng.uniform(0.8, 3, 40)])
y = np.sin(2 * x) + 0.3 * x + rng.normal(0, 0.15, len(x))
model = TSKernelRidgeRegressor().fit(x[:, None], y)
grid = np.linspace(-4, 4, 300)
mean, deviation = model.predict(grid[:, None], return_std=True)
print(f"{model.kernel_} kernel of depth {model.depth_}, leave-one-out R² {model.loo_score_:.3f}")

# %%
# scikit-learn's Gaussian processes take the kernels as objects. They maximise the likelihood
# instead, and the constant column, depth and noise are up to you.

process = GaussianProcessRegressor(EquivalentKernel("ntk", depth=3), alpha=0.02, normalize_y=True)
process.fit(np.stack([x, np.ones_like(x)], axis=1), y)
other = process.predict(np.stack([grid, np.ones_like(grid)], axis=1), return_std=True)

figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True)
for axes, title, (centre, spread) in zip(
    panels,
    ("TSKernelRidgeRegressor", "GaussianProcessRegressor, NTK"),
    ((mean, deviation), other),
    strict=True,
):
    axes.fill_between(grid, centre - 2 * spread, centre + 2 * spread, color="#0072b2", alpha=0.25)
    axes.plot(grid, centre, color="#0072b2")
    axes.plot(x, y, ".", color="#d55e00", markersize=4)
    axes.set_title(title)
plt.show()
