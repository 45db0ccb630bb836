"""The four products are those of a representation that is formed as a whole."""

import pytest
import torch
from torch.testing import assert_close

from tensorswitch import algebra
from tensorswitch.linear import Columns, Copies, Sums
from tests.linear.problems import DEPTHS, problem

CASES = [*DEPTHS, "columns", "given"]


def formed(case, rows=70):
    """Return a representation, its rows, and z."""
    x, _, gate_weights, _ = problem((5,) if isinstance(case, str) else case, rows)
    if case == "columns":
        columns = Columns(4)
        return columns, columns.rows(x), x
    z = algebra.tensor_switching(x, gate_weights)[-1].flatten(1)
    if case == "given":
        copies = Copies.given(5, 4)
        return copies, copies.rows(x, x @ gate_weights[0].T > 0), z
    copies = Copies(gate_weights)
    return copies, copies.rows(x), z


@pytest.mark.parametrize("case", CASES)
def test_products(case):
    representation, rows, z = formed(case)
    weight, errors = torch.randn(z.shape[1], 3).double(), torch.randn(70, 3).double()
    assert representation.features == z.shape[1]
    assert_close(representation.apply(rows, weight), z @ weight)
    assert_close(representation.adjoint(rows, errors), z.T @ errors)
    assert_close(representation.normal(rows, weight), z.T @ z @ weight)
    assert_close(representation.gram(rows), z @ z.T)
    assert_close(representation.gram(rows[:9], rows), z[:9] @ z.T)
    assert representation.mean_square(rows) == pytest.approx(float(z.square().sum()) / z.shape[1])


@pytest.mark.parametrize("case", CASES)
def test_packed_sums(case):
    representation, rows, z = formed(case)
    targets = torch.randn(70, 2).double()
    gram = torch.zeros(representation.gram_shape).double()
    cross = torch.zeros(z.shape[1], 2).double()
    representation.accumulate(gram, cross, rows, targets)
    representation.accumulate(gram, cross, rows[:20], targets[:20], -1)
    z, targets = z[20:], targets[20:]
    assert_close(representation.packing.product(gram, torch.eye(z.shape[1]).double()), z.T @ z)
    assert_close(representation.packing.diagonal(gram), z.square().sum(0))
    assert_close(cross, z.T @ targets)


@pytest.mark.parametrize("case", CASES)
def test_equal_rows_have_equal_hashes(case):
    representation, rows, _ = formed(case)
    hashes = representation.hashes(rows)
    assert len(hashes.unique()) == 70
    order = torch.randperm(70)
    assert torch.equal(representation.hashes(rows[order]), hashes[order])


@pytest.mark.parametrize("case", CASES)
def test_state(case):
    representation, rows, z = formed(case)
    again = type(representation).from_state(representation.state())
    assert not representation.differences(again)
    assert_close(again.gram(rows), z @ z.T)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Copies([torch.ones(5, 3)]), "the shapes differ"),
        (Copies([torch.zeros(5, 4)]), "the sums were made with different gate weights"),
        (Copies([torch.ones(5, 4)], "none"), "the switches differ"),
        (Copies.given(5, 4), "one has gate weights of its own"),
        (Columns(20), "one has gate weights of its own"),
    ],
)
def test_sums_of_other_representations_are_not_merged(other, message):
    with pytest.raises(ValueError, match=f"cannot be merged: {message}"):
        Sums(Copies([torch.ones(5, 4)]), 1).merge(Sums(other, 1))
