import io

import numpy as np
import pytest

from tensorswitch.data import Table
from tensorswitch.experiments.report_figures import (
    confusion,
    heat_maps,
    importance_bars,
    row_bars,
    row_values,
)

NAMES = ["% of $ (in 10^$)", "cost_$ per unit_$"]


@pytest.mark.parametrize(
    "figure",
    [
        confusion(np.eye(2, dtype=int), tuple(NAMES)),
        importance_bars(np.array([1.0, 2.0]), NAMES),
        heat_maps(np.zeros((1, 4, 4)), [(NAMES[0], np.ones((1, 4, 4)))]),
    ],
)
def test_dollars_in_names_are_no_formulas(figure):
    figure.savefig(io.BytesIO())  # raises where a formula is not valid


def test_dollars_are_shown_as_they_are():
    words = np.empty(1, dtype=object)
    words[:] = ["Borealis $"]
    values = row_values(Table("t", {"carrier": words}), 0, ["carrier"], 1)
    assert values == ["carrier = Borealis $"]
    (label,) = row_bars(values, np.ones(1)).axes[0].get_yticklabels()
    assert label.get_text() == r"carrier = Borealis \$"  # which matplotlib draws as a dollar
