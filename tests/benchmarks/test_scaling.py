"""The planning model: workers that die change no sums, and cost what they must."""

import numpy as np
import pytest
import torch

from benchmarks._failures import Job, expected_seconds, run_tree
from benchmarks._planning import Model, plan, sum_bytes
from tensorswitch.linear import Columns, Sums

MODEL = Model(fixed=1e-4, per_feature=1e-6, product=4e-11, cube=7e-11, iteration=1e-9, merge=2e-10)


@pytest.mark.parametrize("death", [0.0, 0.2])
def test_a_tree_whose_workers_die_has_the_sums_of_all_rows(death):
    z = torch.randint(-9, 10, (300, 12)).double()  # integers, so that no order rounds
    targets = z[:, :2]
    done = run_tree(z, targets, chunks=20, branches=3, death=death, seed=0)
    whole = Sums(Columns(12), 2, dtype=torch.float64).update(z, targets)
    assert (done.deaths > 0) == (death > 0)
    assert done.sums.rows == whole.rows == 300
    assert torch.equal(done.sums.solve("mean").weight, whole.solve("mean").weight)


def test_time_without_deaths_is_work_and_merging():
    job = Job(workers=8, work=100.0, save=1.0, merge=2.0, restart=60.0)
    assert expected_seconds(job, 0.0, 100.0, seed=0, trials=3) == pytest.approx(100 + 3 * 2)
    assert expected_seconds(job, 0.0, 50.0, seed=0, trials=3) == pytest.approx(102 + 3 * 2)


def test_time_of_one_worker_is_that_of_renewal_theory():
    job = Job(workers=1, work=3600.0, save=0.0, merge=0.0, restart=60.0)
    death = 0.5
    rate = np.log(2) / 3600
    expected = (1 / rate + 60) * (np.exp(rate * 3600) - 1)
    found = expected_seconds(job, death, 3600.0, seed=0, trials=20_000)
    assert found == pytest.approx(expected, rel=0.03)


def test_saving_pays_when_workers_die():
    job = Job(workers=200, work=7200.0, save=1.0, merge=1.0, restart=60.0)
    never, often = (expected_seconds(job, 0.1, interval, 0, 50) for interval in (7200.0, 300.0))
    assert often < never


def test_more_machines_take_less_time_until_the_solution_is_longest():
    rows = [plan(MODEL, 10**6, 32768, machines, 10.0) for machines in (1, 10, 1000)]
    assert [row[-1] for row in rows] == ["rows", "rows", "solution"]
    assert sum_bytes(8192) == pytest.approx(4 * 8192**2, rel=0.2)
