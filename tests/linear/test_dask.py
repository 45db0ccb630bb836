import os
import signal

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from tensorswitch.linear import Copies, Sums, sum_on_dask

da = pytest.importorskip("dask.array")
dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client():
    options = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": ":0",
        "memory_limit": 0,
    }
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


def problem(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shapes = ((210, 5), (210, 2), (6, 5), (4, 6))
    x, targets, *gate_weights = (
        torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes
    )
    return x, targets, gate_weights, torch.rand(210, generator=generator, dtype=dtype)


def test_a_cluster_gives_the_solution_of_one_process(client):
    x, targets, gate_weights, weight = problem()
    arrays = [da.from_array(t.numpy(), chunks=(30, *t.shape[1:])) for t in (x, targets)]
    sums = sum_on_dask(
        *arrays,
        Copies(gate_weights),
        sample_weight=da.from_array(weight.numpy(), chunks=30),
        split_every=2,
    )
    alone = Sums(Copies(gate_weights), 2, dtype=torch.float64).update(x, targets, weight)
    assert sums.rows == pytest.approx(alone.rows)
    assert_close(sums.solve().weight, alone.solve().weight)


def load(part, number, folder):
    """Return the rows of a partition; the first request of the fourth kills the worker."""
    if number == 3 and not (marker := folder / "died").exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return part


@pytest.mark.filterwarnings("ignore")  # the cluster warns about the lost worker
def test_rows_of_a_worker_that_dies_are_counted_once(client, tmp_path):
    x, targets, gate_weights, _ = problem()
    parts = [
        dask.delayed(load)(part.numpy(), number, tmp_path)
        for number, part in enumerate(x.split(30))
    ]
    rows = da.concatenate([da.from_delayed(part, (30, 5), dtype=np.float64) for part in parts])
    sums = sum_on_dask(rows, da.from_array(targets.numpy(), chunks=(30, 2)), Copies(gate_weights))
    assert (tmp_path / "died").exists()
    alone = Sums(Copies(gate_weights), 2, dtype=torch.float64).update(x, targets)
    assert sums.rows == 210
    assert_close(sums.gram, alone.gram)
    assert_close(sums.solve().weight, alone.solve().weight)


def test_chunks_need_not_match_and_no_cluster_is_needed():
    x, targets, gate_weights, _ = problem(torch.float32)
    sums = sum_on_dask(
        da.from_array(x.numpy(), chunks=(50, 3)),
        da.from_array(targets.numpy(), chunks=(70, 1)),
        Copies(gate_weights),
    )
    assert_close(
        sums.solve().weight,
        Sums(Copies(gate_weights), 2).update(x, targets).solve().weight,
        rtol=1e-3,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("targets", "options", "message"),
    [
        (np.zeros((200, 2)), {}, "x has 210 rows but targets has 200"),
        (np.zeros(210), {}, "targets must have 2 axes"),
        (np.zeros((210, 2)), {"split_every": 1}, "split_every must be at least 2"),
        (np.full((210, 2), np.nan), {}, "targets contains NaN"),
    ],
)
def test_wrong_arguments_are_named(targets, options, message):
    x, _, gate_weights, _ = problem()
    with pytest.raises(ValueError, match=message):
        sum_on_dask(
            da.from_array(x.numpy(), chunks=(70, 5)),
            da.from_array(targets),
            Copies(gate_weights),
            **options,
        )
