"""Sizes and steps of the search."""

from dataclasses import dataclass

import numpy as np

KINDS, DEPTHS, BIASES = ("ss", "ts", "ntk"), (1, 4), (1.0, 3.0)
SCALINGS = ("standard", "common", "robust", "ramps")
PENALTIES = tuple(10.0**e for e in np.arange(-4.5, 1.01, 0.5))


@dataclass(frozen=True)
class Settings:
    """Constants of the search, chosen by ``benchmarks.tables`` on splits of their own.

    All kernels are judged on the ``first`` rows, the best ``kept`` on the ``second``, and rivals,
    whose errors differ by a factor of ``close`` at most, on the ``final`` ones. Column weights are
    ``powers`` of sensitivities of at least ``least_weight`` of the largest, so that every column
    can recover. They are learned for at most ``rounds`` and tried with ``weighted`` shapes of
    kernels; on more rows, with gradients of ``gradient_rows``, for ``more_rounds`` as long as each
    brings the error down to ``gain`` of it. Maps of columns are fitted to ``map_rows``.

    λ is judged near that of fewer rows (``near``, in parts), then in steps of ``step`` within
    ``limits``: a smaller one must bring the error down to ``worth`` of it to be followed further,
    and of errors within ``tie`` the largest λ wins. A λ of ``single`` and more is judged in
    float32. Beyond the rows that fit in memory λ is chosen on ``choice_rows``, and is at least
    ``single``, as tiles are float32. Up to ``one_thread`` rows all is done by one thread.
    """

    first: int = 300
    second: int = 640
    final: int = 1_280
    kept: int = 3
    close: float = 1.1
    powers: tuple[float, ...] = (0.5, 1.0)
    least_weight: float = 1e-3
    rounds: int = 2
    weighted: int = 2
    gradient_rows: int = 2_000
    more_rounds: int = 16
    gain: float = 0.99
    map_rows: int = 20_000
    near: tuple[float, ...] = (10**-0.5, 1.0, 10**0.5)
    step: float = 10**0.25
    limits: tuple[float, float] = (1e-6, 1e3)
    worth: float = 0.995
    tie: float = 1.0005
    single: float = 1e-3
    choice_rows: int = 4_000
    one_thread: int = 1_000


SETTINGS = Settings()
