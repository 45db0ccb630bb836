import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import distributed

from tensorswitch.estimators import TSConvRidgeClassifier

OPTIONS = {"features": 256, "grid": 2, "flips": True, "dtype": "float64"}


def outputs_of_rank(rank, folder):
    """Fit every other image on each of two ranks; return the outputs of the common model."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/ranks", rank=rank, world_size=2)
    try:
        digits = load_digits()
        images, y = digits.images[:600], digits.target[:600]
        model = TSConvRidgeClassifier(**OPTIONS).fit(images[:200], y[:200]).without_rows()
        model.partial_fit(images[rank::2], y[rank::2])
        return model.all_reduce().decision_function(images)
    finally:
        distributed.destroy_process_group()


def test_two_ranks_give_the_model_of_one(tmp_path):
    digits = load_digits()
    images, y = digits.images[:600], digits.target[:600]
    sample = TSConvRidgeClassifier(**OPTIONS).fit(images[:200], y[:200])
    expected = sample.without_rows().partial_fit(images, y).decision_function(images)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawn) as executor:
        found = list(executor.map(outputs_of_rank, (0, 1), (tmp_path, tmp_path)))
    for outputs in found:
        np.testing.assert_allclose(outputs, expected, atol=1e-8)
