"""The choice of a strategy: deterministic on request, otherwise timed."""

import pytest
import torch
from torch.testing import assert_close

from tensorswitch import switched_linear
from tensorswitch.switched import _calibration, _choice, strategy_by, strategy_method
from tensorswitch.switched._calibration import CALLS, PLAIN


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.delenv("TENSORSWITCH_STRATEGY", raising=False)
    _calibration.forget()
    yield
    _calibration.forget()


def example():
    x = torch.randn(300, 32, requires_grad=True)
    weight = torch.randn(32, 32, 32, requires_grad=True)
    return x, torch.rand(300, 32) < 0.5, weight


def test_the_method_is_set_by_context_variable_and_torch(monkeypatch):
    assert strategy_method() == "calibrate"
    with strategy_by("rule"):
        assert strategy_method() == "rule"
        with strategy_by("calibrate"):
            assert strategy_method() == "calibrate"
    monkeypatch.setenv("TENSORSWITCH_STRATEGY", "rule")
    assert strategy_method() == "rule"
    monkeypatch.setenv("TENSORSWITCH_STRATEGY", "fastest")
    with pytest.raises(ValueError, match="TENSORSWITCH_STRATEGY must be 'calibrate' or 'rule'"):
        strategy_method()
    with pytest.raises(ValueError, match="method must be 'calibrate' or 'rule', got 'best'"):
        strategy_by("best").__enter__()
    monkeypatch.delenv("TENSORSWITCH_STRATEGY")
    torch.use_deterministic_algorithms(True)
    try:
        assert strategy_method() == "rule"
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_class_is_timed_once_it_is_called_often(monkeypatch):
    timed = []
    monkeypatch.setattr(_calibration, "_time_candidates", lambda prior, *a: timed.append(a) or 2)
    x, gates, weight = example()
    expected = switched_linear(x, gates, weight, group=2)
    for call in range(1, CALLS + 3):
        y = switched_linear(x, gates, weight)
        assert len(timed) == 2 * (call >= CALLS)  # another choice is confirmed
        assert_close(y, expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(y, expected)
    with strategy_by("rule"):
        rule = switched_linear(x, gates, weight)
    group, _ = _choice.choose(x, gates, 32, None, True)
    assert group == 2
    assert_close(rule, expected, rtol=1e-4, atol=1e-4)


def test_a_choice_that_is_not_confirmed_is_dropped(monkeypatch):
    found = iter([2, 3])
    monkeypatch.setattr(_calibration, "_time_candidates", lambda *a: next(found))
    x, gates, weight = example()
    with strategy_by("rule"):
        rule, _ = _choice.choose(x, gates, 32, None, True)
    assert rule not in (2, 3)
    for _ in range(CALLS + 1):
        switched_linear(x, gates, weight)
    assert _choice.choose(x, gates, 32, None, True)[0] == rule


@pytest.mark.parametrize("training", [True, False])
def test_the_fastest_candidate_wins_by_a_margin(training, monkeypatch):
    x, gates, weight = example()
    seconds = {0: 0.02, 1: 0.010, 2: 0.0097, PLAIN: 0.02}
    clock = [0.0]

    def run(group, *_):
        def work():
            clock[0] += seconds[group]

        return work

    monkeypatch.setattr(_calibration, "_run", run)
    monkeypatch.setattr(_calibration.time, "perf_counter", lambda: clock[0])
    find = lambda: _calibration._time_candidates(1, x, gates, weight, training)  # noqa: E731
    assert find() == 1  # 2 is faster, but not by the margin
    seconds[2] = 0.005
    assert find() == 2
    seconds[PLAIN] = 0.004
    assert find() == PLAIN
    seconds[1] = 10.0  # timing it would exceed the limit
    assert find() == 1


@pytest.mark.parametrize("training", [True, False])
def test_candidates_are_timed_on_the_call(training):
    x, gates, weight = example()
    candidates = _calibration._candidates(1, x, weight)
    assert candidates[0] == 1
    assert PLAIN in candidates
    assert _calibration._time_candidates(1, x, gates, weight, training) in candidates
    assert x.grad is None
    assert weight.grad is None


def test_the_plain_formula_may_win(naive):
    x, gates, weight = example()
    key = _choice._calibration.shape_class(x, 32, 32, *_shares(gates), True)
    _calibration._fastest[key] = PLAIN
    y = switched_linear(x, gates, weight)
    assert torch.equal(y, naive(x, gates, weight))
    assert "Mm" in y.grad_fn.name()


def _shares(gates):
    from tensorswitch.switched._compute import census

    known = census(gates)
    return known.routed, known.share
