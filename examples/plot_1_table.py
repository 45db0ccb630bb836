"""
A table, without settings
=========================

What does a strong answer on a table take? A file and two lines. Kernel ridge regression with the
kernels of infinitely wide networks chooses scaling, column weights, kernel, depth and penalty by
its exact leave-one-out error.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split
from skrub import tabular_pipeline

from tensorswitch.estimators import TSKernelRidgeClassifier, TSKernelRidgeRegressor

# %%
# Classify
# --------
# Columns need no scaling: this is part of what is chosen.

data = load_breast_cancer(as_frame=True)
X, X_test, y, y_test = train_test_split(data.data, data.target, random_state=0)
model = TSKernelRidgeClassifier().fit(X, y)
print(f"chosen: {model.kernel_} kernel of depth {model.depth_}, penalty {model.alpha_:.2g}")
print(f"accuracy on new rows {model.score(X_test, y_test):.3f}")
print(f"leave-one-out said   {model.loo_score_:.3f}")
boosting = HistGradientBoostingClassifier().fit(X, y)
print(f"boosting             {boosting.score(X_test, y_test):.3f}")

# %%
# Ask why
# -------
# Once the gates of a network are known, it is linear; its kernel inherits this. The contributions
# of the columns and a constant add up to the output, and nothing is sampled. ``candidates_`` has
# everything that was tried.

explanation = model.explain(X_test.iloc[:1])
shares = pd.Series(explanation.contributions[0, 0], index=X.columns)
largest = shares[shares.abs().sort_values().index[-8:]]
print(f"output {model.decision_function(X_test.iloc[:1])[0]:.4f}")
print(f"shares {shares.sum():.4f} + constant {explanation.constant[0, 0]:.4f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5))
left.barh(largest.index, largest, color=np.where(largest > 0, "#0072b2", "#d55e00"))
left.set_title("what decided, for one row")
tried = pd.DataFrame(model.candidates_).sort_values("error", ignore_index=True)
for kind, group in tried.groupby("kind"):
    right.plot(group.index, group["error"], ".", label=f"{str(kind).upper()} kernel")
right.set(xlabel="candidate", ylabel="leave-one-out error", title="what was tried")
right.legend()
plt.show()

# %%
# Words, dates and gaps
# ---------------------
# ``skrub.tabular_pipeline`` turns columns into numbers: words and categories, parts of dates, gaps
# filled and marked. The command line does this by itself.


def flats(rows: int = 400) -> tuple[pd.DataFrame, pd.Series]:
    """Make rents of flats: a number with gaps, words, a category and a date."""
    rng = np.random.default_rng(0)
    district = rng.choice(["centre", "harbour", "hill", "station"], rows)
    size = rng.uniform(20, 140, rows)
    offered = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 730, rows), "D")
    level = pd.Series(district).map({"centre": 16.0, "harbour": 14.0, "hill": 12.0, "station": 9.0})
    rent = size**0.9 * level * (1 + 0.1 * (offered.year == 2025)) * rng.lognormal(0, 0.05, rows)
    table = pd.DataFrame({"district": district, "size": size, "offered": offered})
    table.loc[rng.random(rows) < 0.1, "size"] = np.nan
    return table, pd.Series(rent, name="rent")


table, rent = flats()
print(table.head(3))
train, test, rent_train, rent_test = train_test_split(table, rent, random_state=0)
pipeline = tabular_pipeline(TSKernelRidgeRegressor()).fit(train, rent_train)
print(f"R² of new flats {pipeline.score(test, rent_test):.3f}")
