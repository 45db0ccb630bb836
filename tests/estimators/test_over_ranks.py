import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch
from sklearn.datasets import load_digits, make_regression
from torch import distributed

from tensorswitch.estimators import StreamingRidgeRegressor, TSConvRidgeClassifier

OPTIONS = {"features": 256, "grid": 2, "flips": True, "dtype": "float64"}


def on_rank(rank, folder, fit):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/ranks", rank=rank, world_size=2)
    try:
        return fit(rank)
    finally:
        distributed.destroy_process_group()


def on_two_ranks(fit, folder):
    """Return what a function of the rank returns on each of two ranks."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawn) as executor:
        return list(executor.map(on_rank, (0, 1), (folder, folder), (fit, fit)))


def every_other_image(rank):
    digits = load_digits()
    images, y = digits.images[:600], digits.target[:600]
    model = TSConvRidgeClassifier(**OPTIONS).fit(images[:200], y[:200]).without_rows()
    model.partial_fit(images[rank::2], y[rank::2])
    return model.all_reduce().decision_function(images)


def sorted_targets():
    X, y = make_regression(300, 6, noise=5.0, random_state=0)
    order = np.argsort(y)
    return X[order], y[order]


def half_of_the_targets(rank):
    X, y = sorted_targets()
    half = slice(150) if rank == 0 else slice(150, 300)
    model = StreamingRidgeRegressor(3.0, standardize=False).fit(X[half], y[half])
    return model.all_reduce().predict(X)


def test_two_ranks_give_the_model_of_one(tmp_path):
    digits = load_digits()
    images, y = digits.images[:600], digits.target[:600]
    sample = TSConvRidgeClassifier(**OPTIONS).fit(images[:200], y[:200])
    expected = sample.without_rows().partial_fit(images, y).decision_function(images)
    for outputs in on_two_ranks(every_other_image, tmp_path):
        np.testing.assert_allclose(outputs, expected, atol=1e-8)


def test_ranks_may_have_targets_of_different_scales(tmp_path):
    X, y = sorted_targets()
    expected = StreamingRidgeRegressor(3.0, standardize=False).fit(X, y).predict(X)
    for outputs in on_two_ranks(half_of_the_targets, tmp_path):
        np.testing.assert_allclose(outputs, expected, rtol=1e-8)
