"""A table with words, categories, dates and gaps, as people have them: no preparation, no settings.

    pip install 'tensorswitch[tables]'
    python examples/table_with_gaps.py

`skrub.tabular_pipeline` looks at each column: words and categories become numbers, dates their
parts, gaps are filled and marked. `TSKernelRidgeRegressor` scales the columns, weighs them and
chooses everything else by leave-one-out error.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split
from skrub import tabular_pipeline

from tensorswitch.estimators import TSKernelRidgeRegressor


def flats(rows: int = 500) -> tuple[pd.DataFrame, pd.Series]:
    """Make rents of flats: a number with gaps, words, a category and a date."""
    rng = np.random.default_rng(0)
    district = rng.choice(["centre", "harbour", "hill", "station"], rows)
    size = rng.uniform(20, 140, rows)
    state = pd.Categorical(rng.choice(["new", "good", "worn"], rows))
    offered = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 730, rows), "D")
    level = pd.Series(district).map({"centre": 16.0, "harbour": 14.0, "hill": 12.0, "station": 9.0})
    rent = size**0.9 * level * np.where(state == "worn", 0.8, 1.0)
    rent = rent * (1 + 0.1 * (offered.year == 2025)) * rng.lognormal(0, 0.05, rows)
    table = pd.DataFrame({"district": district, "size": size, "state": state, "offered": offered})
    table.loc[rng.random(rows) < 0.1, "size"] = np.nan
    return table, pd.Series(rent, name="rent")


def main() -> None:
    """Fit and score."""
    table, rent = flats()
    train, test, rent_train, rent_test = train_test_split(table, rent, random_state=0)
    model = tabular_pipeline(TSKernelRidgeRegressor()).fit(train, rent_train)
    print(f"{len(train)} flats for training; R² of the others {model.score(test, rent_test):.3f}")
    last = model[-1]
    print(f"leave-one-out said {last.loo_score_:.3f} ({last.kernel_} kernel, depth {last.depth_})")


if __name__ == "__main__":
    main()
