"""SS and every TS method on one data set, side by side: the main job of the command line.

Each method leaves its result in a file of its own, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tensorswitch._checks import check_positive
from tensorswitch._files import write_text
from tensorswitch.data import Dataset, Split
from tensorswitch.estimators import TSKernelSVC, kernel_svc_grid
from tensorswitch.history import Epoch
from tensorswitch.models import Network, mlp
from tensorswitch.ridge import apply_readout, deep_gates, draw_gates, mean_diagonal
from tensorswitch.ridge import solve as solve_ridge
from tensorswitch.training import DivergedError, Learner, Rows, train

__all__ = ["METHODS", "Comparison", "Result", "Settings", "compare"]

SMALL = 10_000  # training rows below which networks are narrower and steps larger
GRID_ROWS = 5_000  # up to so many rows the depth of a kernel is chosen by validation, else it is KERNEL_DEPTH
KERNEL_DEPTHS, KERNEL_DEPTH, KERNEL_C = (1, 2, 3, 5), 3, (1.0, 10.0, 100.0)
ALPHAS = (0.01, 0.1, 1.0)  # of the mean of the diagonal
RESULT = "result.json"
METHODS = {
    "svm-ss": "SVM SS",
    "svm-ts": "SVM TS",
    "ss": "MLP SS",
    "rr": "MLP TS RR",
    "ts-lrc": "MLP TS LRC",
    "ts-ibp-lrc": "MLP TS IBP-LRC",
    "ts-ibp": "MLP TS IBP",
}
Watch = Callable[[str, int, int, str], None]


@dataclass(frozen=True)
class Settings:
    """Of the networks; what is None is chosen by the size of the data."""

    depth: int
    width: int
    epochs: int
    lr: float
    batch_size: int
    components: int | None
    seed: int

    def __post_init__(self) -> None:
        check_positive(depth=self.depth, width=self.width, epochs=self.epochs, batch_size=self.batch_size)
        if not self.lr > 0:
            raise ValueError(f"lr must be above 0, got {self.lr}")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be at least 0 and below 2^63, got {self.seed}")

    @classmethod
    def for_data(cls, data: Dataset, **given: Any) -> Settings:
        small = len(data.train_images) < SMALL
        features = math.prod(data.train_images.shape[1:])
        fitting = {
            "depth": 2,
            "width": 64 if small else 256,
            "epochs": 20 if small else 10,
            "lr": 1e-2 if small else 1e-3,
            "batch_size": 32 if small else 128,
            "components": None if features <= 128 else 64,
            "seed": 0,
        }
        return cls(**{**fitting, **{key: value for key, value in given.items() if value is not None}})


@dataclass
class Result:
    """One row of the table; errors are fractions."""

    method: str
    depth: int
    seconds: float  # of an epoch, or of the whole fit where there are no epochs
    one_pass: float = math.nan
    best: float = math.nan
    best_epoch: int | None = None
    epochs: list[dict[str, Any]] = field(default_factory=list)
    filters: list[list[float]] | None = None  # of hidden units, in pixels
    note: str = ""


@dataclass
class Comparison:
    data: str
    shape: tuple[int, ...]
    settings: Settings
    results: list[Result]

    def relative_time(self, result: Result) -> float:
        """Seconds against an epoch of the SS network."""
        ss = next((r for r in self.results if r.method == "ss"), None)
        return result.seconds / ss.seconds if ss else math.nan


def compare(data: Dataset, settings: Settings, folder: Path, methods: Iterable[str] = METHODS, watch: Watch | None = None) -> Comparison:
    """Run the methods; ``watch(method, done, total, note)`` is told of every epoch."""
    methods = check_methods(methods)
    split = data.protocol(settings.components)
    tell = watch or (lambda *_: None)
    results = []
    about = {"data": data.fingerprint, "classes": len(data.class_names), **asdict(settings)}
    name = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=6).hexdigest()  # so that other settings go elsewhere
    for method in methods:
        place = folder / f"{method}-{name}"
        place.mkdir(parents=True, exist_ok=True)
        result = _finished(place / RESULT)
        if result is None:
            run = {"svm-ss": _svm, "svm-ts": _svm, "rr": _ridge}.get(method, _network)
            tell(method, 0, 1, "")
            try:
                result = run(method, split, settings, place, tell, about)
            except DivergedError as error:
                result = Result(method, settings.depth, math.nan, note=f"diverged ({error})")
            write_text(place / RESULT, json.dumps({"settings": about, "result": asdict(result)}))
        tell(method, 1, 1, "" if math.isnan(result.best) else f"test error {100 * result.best:.2f} %")
        results.append(result)
    return Comparison(data.name, data.train_images.shape[1:], settings, results)


def check_methods(methods: Iterable[str]) -> list[str]:
    chosen = list(methods)
    if unknown := [m for m in chosen if m not in METHODS]:
        raise ValueError(f"unknown methods {', '.join(unknown)}; known are {', '.join(METHODS)}")
    return chosen


def _finished(path: Path) -> Result | None:
    """The result of an earlier run, if it came to an end."""
    try:
        return Result(**json.loads(path.read_text())["result"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _network(method: str, split: Split, settings: Settings, folder: Path, tell: Watch, about: dict[str, Any]) -> Result:
    depth = 1 if method == "ts-ibp" and settings.width**settings.depth > 64**2 else settings.depth  # its readout has width^depth · inputs weights
    torch.manual_seed(settings.seed)
    network = mlp(split.train.shape[1], about["classes"], kind=method, depth=depth, width=settings.width)
    learner = Learner(network, lr=settings.lr, batch_size=settings.batch_size, seed=settings.seed)

    def after(epoch: Epoch) -> None:
        tell(method, epoch.epoch, settings.epochs, f"test error {100 * epoch.test_error:.2f} %")

    parts: dict[str, Any] = {
        "validation": Rows.from_numpy(split.validation, split.validation_labels),
        "test": Rows.from_numpy(split.test, split.test_labels),
    }
    rows = Rows.from_numpy(split.train, split.train_labels)
    history = train(learner, rows, epochs=settings.epochs, folder=folder, notes={**about, "method": method}, after=after, **parts)
    best = history.best
    return Result(
        method,
        depth,
        min(e.seconds for e in history.epochs),
        history.epochs[0].test_error,
        best.test_error,
        best.epoch,
        [asdict(e) for e in history.epochs],
        _filters(network, split),
        "uncompressed at depth 1 only" if depth != settings.depth else "",
    )


def _ridge(method: str, split: Split, settings: Settings, folder: Path, tell: Watch, about: dict[str, Any]) -> Result:
    """The readout solved in one pass, λ chosen by generalised cross-validation around the mean of the diagonal."""
    gate_weights = draw_gates(split.train.shape[1], [settings.width], torch.Generator().manual_seed(settings.seed))
    x, y = torch.from_numpy(split.train), torch.from_numpy(split.train_labels)
    targets = 2 * torch.nn.functional.one_hot(y, about["classes"]).to(x.dtype) - 1
    start = time.perf_counter()
    mean = mean_diagonal(x, deep_gates(x, gate_weights))
    solution = solve_ridge(x, targets, gate_weights, [a * mean for a in ALPHAS], tol=1e-3)
    seconds = time.perf_counter() - start
    error = _error(apply_readout(torch.from_numpy(split.test), gate_weights, solution.weight).argmax(1).numpy(), split.test_labels)
    return Result(method, 1, seconds, error, error, 1, note=f"λ = {solution.alpha / mean:.2g} × mean")


def _svm(method: str, split: Split, settings: Settings, folder: Path, tell: Watch, about: dict[str, Any]) -> Result:
    kind, depth, C = method.removeprefix("svm-"), KERNEL_DEPTH, KERNEL_C[1]
    start = time.perf_counter()
    if len(split.train) <= GRID_ROWS and len(split.validation):
        rows = (split.train, split.train_labels, split.validation, split.validation_labels)
        errors = kernel_svc_grid(*rows, kinds=[kind], depths=KERNEL_DEPTHS, Cs=KERNEL_C)
        _, depth, C = min(errors, key=lambda k: (errors[k], k))
    model = TSKernelSVC(kind, depth, C, normalize=True, max_memory_gb=8).fit(split.train, split.train_labels)
    seconds = time.perf_counter() - start
    error = _error(model.predict(split.test), split.test_labels)
    return Result(method, depth, seconds, math.nan, error, note=f"C = {C:g}")


def _filters(network: Network, split: Split, count: int = 16) -> list[list[float]] | None:
    """The weights of the first units of the first layer, seen in pixels."""
    first = next(iter(network))
    for name in ("gate_weight", "weight"):
        weight = getattr(first, name, None)
        if weight is not None and weight.dim() == 2:
            break
    else:
        weight = next(iter(getattr(first, "gate_weights", [])), None)
    if weight is None:
        return None
    units = weight.detach().cpu().numpy()[:count]
    basis = split.preparation.basis
    seen: list[list[float]] = (units if basis is None else units @ basis.T).round(5).tolist()
    return seen


def _error(predicted: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean(predicted != labels))
