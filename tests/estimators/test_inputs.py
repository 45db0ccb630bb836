"""Rows that are no numbers get an error that says what to do."""

import numpy as np
import pandas as pd
import pytest

from tensorswitch import estimators

NAMES = [
    "StreamingRidgeClassifier",
    "TSKernelRidgeClassifier",
    "TSKernelSVC",
    "TSMLPClassifier",
    "TSRidgeClassifier",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (np.array(["a", "b"] * 10, dtype=object), "X holds text"),
        (pd.date_range("2024-05-31", periods=20), "column 'x' of X holds dates"),
    ],
)
def test_text_and_dates_get_a_hint(name, column, problem):
    X = pd.DataFrame({"x": column, "n": np.arange(20.0)})
    with pytest.raises(ValueError, match=rf"{problem}.*skrub.tabular_pipeline\({name}\(\)\)"):
        getattr(estimators, name)().fit(X, np.arange(20) % 2)


@pytest.mark.parametrize("name", NAMES)
def test_arrays_of_dates_get_a_hint(name):
    X = np.arange(40).astype("M8[ns]").reshape(20, 2)
    with pytest.raises(ValueError, match="X holds dates"):
        getattr(estimators, name)().fit(X, np.arange(20) % 2)


@pytest.mark.parametrize("name", NAMES)
def test_numbers_whose_squares_overflow_are_refused(name):
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match="numbers beyond 1e150 cannot be squared"):
        getattr(estimators, name)().fit(1e200 * X, np.arange(20) % 2)


@pytest.mark.parametrize("name", ["TSKernelRidgeRegressor", "TSMLPRegressor"])
def test_targets_whose_squares_overflow_are_refused(name):
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match="numbers beyond 1e150 cannot be squared"):
        getattr(estimators, name)().fit(X, 1e200 * X[:, 0])


def test_text_as_targets_of_a_regressor_is_named():
    for y in (np.array(["a", "b"] * 5), ["a", "b"] * 5, np.array(["a", "b"] * 5, dtype=object)):
        with pytest.raises(ValueError, match=r"y holds text such as 'a'.*use TSRidgeClassifier"):
            estimators.TSRidgeRegressor().fit(np.eye(10), y)


def test_gaps_are_answered_with_what_fills_them():
    X = np.eye(10)
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match=r"Input X contains NaN\. TSRidgeRegressor .* skrub"):
        estimators.TSRidgeRegressor().fit(X, np.arange(10.0))
