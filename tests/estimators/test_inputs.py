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
