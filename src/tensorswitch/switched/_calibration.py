"""Timing of the strategies on this machine, once for each class of sizes in a process.

The cost rule was fitted on some machines, and others rank the strategies differently. A class that
has been called ``CALLS`` times is timed on the data of that call: the choice of the rule, its
neighbours, the dense strategy and, where the expanded tensor is small, the plain formula. Another
strategy replaces the choice of the rule only if it is faster by ``MARGIN`` twice. The time spent is
limited, for a class and in total; what does not fit keeps the rule.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from tensorswitch.switched import _compute
from tensorswitch.switched._cost import MAX_GROUP
from tensorswitch.switched._plain import plain

PLAIN = -1  # the plain formula, outside the operators
CALLS = 16
ROUNDS = 12
SECONDS, TOTAL_SECONDS = 1.0, 20.0
MARGIN = 0.07
PLAIN_BYTES = 1 << 24  # largest expanded tensor of the plain formula

_calls: dict[tuple[Any, ...], int] = {}
_fastest: dict[tuple[Any, ...], int] = {}
_spent = 0.0
_lock = threading.Lock()


def shape_class(
    x: Tensor, units: int, n_out: int, routed: float, share: float, training: bool
) -> tuple[Any, ...]:
    """Return what determines the speed: rows and fractions of gates are rounded, sizes are not."""
    rows = round(2 * math.log2(max(1, len(x))))
    fractions = (round(8 * routed), round(4 * share))
    threads = torch.get_num_threads()
    return rows, x.shape[1], units, n_out, *fractions, training, x.dtype, threads


def recall(key: tuple[Any, ...], prior: int) -> int:
    """Return the fastest group if the class has been timed, otherwise the prior."""
    found = _fastest.get(key, prior)
    return prior if found == PLAIN else found


def fastest(
    key: tuple[Any, ...],
    prior: int,
    x: Tensor,
    gates: Tensor,
    weight: Tensor,
    training: bool,
    plain_allowed: bool,
) -> int:
    """Return the fastest strategy of the class, which is timed when it is due."""
    found = _fastest.get(key)
    if found is not None:
        return found if plain_allowed else recall(key, prior)
    _calls[key] = _calls.get(key, 0) + 1
    if _calls[key] >= CALLS and _lock.acquire(blocking=False):
        try:
            found = _time_candidates(prior, x, gates, weight, training)
            if found != prior and _time_candidates(prior, x, gates, weight, training) != found:
                found = prior  # the machine was busy with something else
            _fastest[key] = found
        finally:
            _lock.release()
        return fastest(key, prior, x, gates, weight, training, plain_allowed)
    return prior


def forget() -> None:
    """Forget all timings."""
    global _spent
    with _lock:
        _calls.clear()
        _fastest.clear()
        _spent = 0.0


def _time_candidates(prior: int, x: Tensor, gates: Tensor, weight: Tensor, training: bool) -> int:
    global _spent
    runs = {
        group: _run(group, x, gates, weight, training) for group in _candidates(prior, x, weight)
    }
    start = time.perf_counter()
    limit = min(SECONDS, TOTAL_SECONDS - _spent)
    best = dict.fromkeys(runs, math.inf)
    try:
        for _ in range(ROUNDS):
            for group, run in runs.items():  # in turns, so that noise affects all alike
                before = time.perf_counter()
                run()
                best[group] = min(best[group], time.perf_counter() - before)
                if (best[prior] * len(runs) > limit) or time.perf_counter() - start > limit:
                    break
            else:
                continue
            break
    finally:
        _spent += time.perf_counter() - start
    first = min(best, key=lambda group: best[group])
    if math.isinf(max(best.values())) or best[first] > (1 - MARGIN) * best[prior]:
        return prior
    return first


def _candidates(prior: int, x: Tensor, weight: Tensor) -> list[int]:
    """Return the strategies to time, the prior first."""
    near = (prior - 1, prior + 1) if prior else (1, 2)
    groups = [prior, 0, 1, *(g for g in near if 0 < g <= MAX_GROUP)]
    if x.numel() * len(weight) * x.element_size() <= PLAIN_BYTES:
        groups.append(PLAIN)
    return list(dict.fromkeys(groups))


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _run(
    group: int, x: Tensor, gates: Tensor, weight: Tensor, training: bool
) -> Callable[[], object]:
    """Return the work of one call: the map and, in training, both gradients."""
    x, weight = x.detach(), weight.detach()
    if group == PLAIN:
        x, weight = (t.clone().requires_grad_(training) for t in (x, weight))

        def run_plain() -> object:
            # Hooks of a caller, such as those of a checkpoint, must not see the tensors saved here.
            with torch.set_grad_enabled(training), saved_tensors_hooks(_same, _same):
                y = plain(x, gates, weight.to(x.dtype))
                return torch.autograd.grad(y, (x, weight), y.detach()) if training else y

        return run_plain

    def run() -> object:
        with torch.no_grad():
            known = _compute.census(gates)  # the plan is part of the work
            y = _compute.map_rows(x, gates, weight, group, known)
            return _compute.gradients(x, gates, weight, y, group, known) if training else y

    return run
