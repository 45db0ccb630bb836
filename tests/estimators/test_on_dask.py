import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from tensorswitch.estimators import (
    StreamingRidgeClassifier,
    StreamingRidgeRegressor,
    TSConvRidgeClassifier,
    fit_on_dask,
)


def test_chunks_on_dask_give_the_model_of_all_images():
    digits = load_digits()
    images, y = digits.images[:600], digits.target[:600]
    sample = TSConvRidgeClassifier(256, grid=2, flips=True, dtype="float64")
    sample.fit(images[:200], y[:200])
    whole = sample.without_rows().partial_fit(images, y)
    arrays = da.from_array(images, chunks=(130, 8, 5)), da.from_array(y, chunks=100)
    model = fit_on_dask(sample, *arrays, split_every=2)
    assert model.n_samples_seen_ == 600
    np.testing.assert_allclose(
        model.decision_function(images), whole.decision_function(images), atol=1e-8
    )


def test_arrays_that_are_not_chunked_are_refused():
    digits = load_digits()
    model = TSConvRidgeClassifier(128, grid=2, flips=False)
    model.fit(digits.images[:100], digits.target[:100])
    with pytest.raises(TypeError, match="Dask array"):
        fit_on_dask(model, digits.images, digits.target)
    with pytest.raises(ValueError, match="1797 rows but y has 1000"):
        fit_on_dask(model, da.from_array(digits.images), da.from_array(digits.target[:1000]))


def test_data_frames_are_fitted_from_a_model_that_has_seen_nothing():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(900, 3)), columns=list("abc"))
    frame["label"] = np.where(np.arange(900) < 450, "low", np.where(frame["a"] > 0, "up", "down"))
    frames = dd.from_pandas(frame, npartitions=4)  # the first has one class only
    model = fit_on_dask(StreamingRidgeClassifier(), frames[["a", "b", "c"]], frames["label"])
    assert model.n_samples_seen_ == 900
    assert model.classes_.tolist() == ["down", "low", "up"]
    numbers = fit_on_dask(StreamingRidgeRegressor(), frames[["a", "b"]], frames["c"] + frames["a"])
    assert numbers.coef_[0] == pytest.approx(frame["a"].std(), abs=0.1)


def test_empty_partitions_do_not_count():
    x = np.random.default_rng(0).normal(size=(300, 3))
    arrays = da.from_array(x, chunks=((0, 100, 0, 200), 3)), da.from_array(x[:, 0], chunks=300)
    assert fit_on_dask(StreamingRidgeRegressor(), *arrays).n_samples_seen_ == 300
