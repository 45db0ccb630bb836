"""A network with its optimiser, trained epoch by epoch on one process or several.

Of several processes, torch's DistributedDataParallel averages gradients and the pseudo-gradients of
inverted backpropagation alike. The loss curve is that of one process with the whole batch.
"""

import math
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn, Self

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LRScheduler

from tensorswitch._checks import (
    check_above_zero,
    check_device,
    check_number,
    check_positive,
    check_seed,
    from_numpy,
)
from tensorswitch._process import bfloat16_problem, deferring_interrupts, seeded
from tensorswitch.persistence import State, load, save
from tensorswitch.training._checkpoint import Checkpoint
from tensorswitch.training._divergence import raise_diverged
from tensorswitch.training._history import History
from tensorswitch.training._layout import channels_last, suited_images


@dataclass(frozen=True)
class Pace:
    """How much is done at a time; chosen by ``benchmarks.training``."""

    # The activations of 4,096 images would take gigabytes, and longer to map.
    evaluated_rows: int = 4096
    evaluated_images: int = 256
    look_every: int = 16  # steps between checks of the loss where they synchronise with a device


PACE = Pace()
LOSSES: dict[str, Callable[..., Tensor]] = {"cross-entropy": F.cross_entropy, "squared": F.mse_loss}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


@dataclass
class Rows:
    """Inputs and targets of a part of the data.

    Parameters
    ----------
    x, y : Tensor of shape (rows, ...), and (rows,) or (rows, outputs)
        Inputs, and integer labels or targets of a regression.
    weight : Tensor of shape (rows,), optional
        Factors on the losses of the rows, with a mean of 1.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.training import Rows
    >>> Rows(torch.zeros(8, 4), torch.zeros(8, dtype=torch.long)).to("cpu").x.shape
    torch.Size([8, 4])
    """

    x: Tensor
    y: Tensor
    weight: Tensor | None = None

    @classmethod
    def from_numpy(cls, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> Self:
        """Return rows that share the memory of writable arrays."""
        return cls(from_numpy(x), from_numpy(y), None if weight is None else from_numpy(weight))

    def to(self, device: torch.device | str) -> Self:
        """Return the rows on a device, without a copy if they are already there."""
        weight = None if self.weight is None else self.weight.to(device)
        return replace(self, x=self.x.to(device), y=self.y.to(device), weight=weight)


class Learner:
    """Train a network epoch by epoch, with its own optimiser and random numbers.

    Parameters
    ----------
    network : torch.nn.Module
        Network from rows to outputs. It is moved to ``device``.
    loss : {"cross-entropy", "squared"}, default="cross-entropy"
        Loss; cross-entropy requires integer labels.
    optimizer : {"sgd", "adam", "adamw"}, default="sgd"
        Optimiser of the parameters that require gradients.
    lr, momentum, weight_decay : float, default=1e-3, 0.9 and 1e-3
        Learning rate, momentum of SGD, and weight decay of the trained parameters; fixed gates
        never decay.
    batch_size : int, default=128
        Rows per step and process.
    schedule : callable, optional
        Function from the optimiser to a torch learning-rate scheduler, stepped after each epoch.
    seed : int, default=0
        Seed of the order of the rows, and of random numbers that the network draws, as for dropout.
    device, precision : torch.device or str, and {None, "bf16"}, default="cpu" and None
        Device of the network and the data; ``"bf16"`` computes products in bfloat16.

    Attributes
    ----------
    epochs_done : int
        Number of completed epochs.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.models import mlp
    >>> from tensorswitch.training import Learner, Rows
    >>> rows = Rows(torch.randn(64, 4), torch.randint(0, 3, (64,)))
    >>> learner = Learner(mlp(4, 3, depth=1, width=8), batch_size=16)
    >>> loss, error = learner.epoch(rows)
    >>> learner.outputs(rows.x).shape
    torch.Size([64, 3])
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        loss: str = "cross-entropy",
        optimizer: str = "sgd",
        lr: float = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 1e-3,
        batch_size: int = 128,
        schedule: Callable[[torch.optim.Optimizer], LRScheduler] | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
        precision: str | None = None,
    ) -> None:
        _check_name("loss", loss, LOSSES)
        _check_name("optimizer", optimizer, OPTIMIZERS)
        if precision not in (None, "bf16"):
            raise ValueError(f"precision must be None or 'bf16', got {precision!r}")
        if precision and torch.device(device).type == "cpu" and (problem := bfloat16_problem()):
            raise ValueError(f"precision 'bf16': {problem}")
        check_above_zero(lr=lr)
        check_number(momentum=momentum, weight_decay=weight_decay)
        check_positive(batch_size=batch_size)
        check_seed(seed)
        self.device, self.precision = check_device(device), precision
        self.batch_size = int(batch_size)
        self.network, self.loss_name = network.to(self.device), loss
        self.ranks = distributed.get_world_size() if distributed.is_initialized() else 1
        self.rank = distributed.get_rank() if self.ranks > 1 else 0
        parallel = nn.parallel.DistributedDataParallel
        self.forward = parallel(self.network) if self.ranks > 1 else self.network
        trained = [p for p in self.network.parameters() if p.requires_grad]
        rates: State = {"lr": float(lr), "weight_decay": float(weight_decay)}
        if optimizer == "sgd":
            rates["momentum"] = float(momentum)
        fused = self.device.type in ("cpu", "cuda")
        with deferring_interrupts():  # the first optimiser imports torch's compiler
            self.optimizer = OPTIMIZERS[optimizer](trained, fused=fused, **rates)
        self.schedule = None if schedule is None else schedule(self.optimizer)
        self.generator = torch.Generator().manual_seed(int(seed))
        self.epochs_done, together = 0, self.batch_size * self.ranks
        steps: State = {"loss": loss, "optimizer": optimizer, **rates, "batch_size": together}
        named = None if schedule is None else type(self.schedule).__name__
        self.settings = {**steps, "precision": precision, "schedule": named, "seed": int(seed)}

    def options(self) -> State:
        """Return the present settings of the optimiser, as arguments for another learner."""
        group, names = self.optimizer.param_groups[0], ("lr", "momentum", "weight_decay")
        rates: State = {name: float(group[name]) for name in names if name in group}
        return {"optimizer": self.settings["optimizer"], "batch_size": self.batch_size, **rates}

    def __getstate__(self) -> State:
        # Torch's own pickling of a generator drops a reference to None each time, so that Python
        # 3.11 crashes in the end.
        return {**self.__dict__, "generator": self.generator.get_state()}

    def __setstate__(self, state: State) -> None:
        self.__dict__.update(state)
        self.generator = torch.Generator()
        self.generator.set_state(state["generator"])

    def epoch(self, rows: Rows, watch: Callable[[], None] | None = None) -> tuple[float, float]:
        """Train for one pass over the rows, in a new random order, and return loss and error.

        They are means over the batches, as in :class:`Epoch`; the error is NaN in regression.

        Parameters
        ----------
        rows, watch : Rows, and callable, optional
            Training rows, on the device of the learner, and what is called after each step.
        """
        if not len(rows.x) or len(rows.x) != len(rows.y):
            what = f"got {len(rows.x)} rows and {len(rows.y)} targets"
            raise ValueError(f"training needs at least one row, and one target per row; {what}")
        self.network.train()
        order = torch.randperm(len(rows.x), generator=self.generator, device="cpu")
        order = order.to(rows.x.device)
        # Gather once, so that batches are slices.
        x, y = rows.x.index_select(0, order), rows.y.index_select(0, order)
        weight = None if rows.weight is None else rows.weight.index_select(0, order)
        losses, wrong = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        together = self.batch_size * self.ranks
        look = 1 if self.device.type == "cpu" else PACE.look_every
        layout = channels_last(self.network, self.optimizer) if self.ranks == 1 else nullcontext()
        with layout, self._random_numbers():
            for step, start in enumerate(range(0, len(x), together)):
                batch = min(together, len(x) - start)
                ends = [start + r * batch // self.ranks for r in (self.rank, self.rank + 1)]
                mine = slice(*ends)
                part_x, part_y = x[mine], y[mine]
                self.optimizer.zero_grad(set_to_none=True)
                with self._autocast():
                    outputs = self.forward(part_x)
                    full = outputs.float() if self.precision else outputs
                    total = self._loss(full, part_y, None if weight is None else weight[mine])
                    loss = total / (batch * part_y.shape[1:].numel())  # mean over outputs, too
                # DistributedDataParallel averages over the ranks; the gradient is to be their sum.
                (loss * self.ranks if self.ranks > 1 else loss).backward()
                value = loss.detach()
                if step % look == 0 and not math.isfinite(value):
                    self._raise_diverged(part_x, part_y)
                self.optimizer.step()
                losses += value * batch
                if self.loss_name == "cross-entropy":
                    wrong += (outputs.detach().argmax(1) != part_y).sum()
                if watch is not None:
                    watch()
        if self.ranks > 1:
            for count in (losses, wrong):
                distributed.all_reduce(count)
        if not math.isfinite(losses):
            self._raise_diverged(x, y)
        if self.schedule is not None:
            self.schedule.step()
        self.epochs_done += 1
        error = float(wrong) / len(x) if self.loss_name == "cross-entropy" else math.nan
        return float(losses) / len(x), error

    def _random_numbers(self) -> AbstractContextManager[None]:
        """Let layers draw random numbers that depend on seed, epoch and rank alone."""
        # So a resumed run repeats an uninterrupted one, and torch's own generator stays as it is.
        place = np.random.SeedSequence([self.settings["seed"], self.epochs_done, self.rank])
        return seeded(int(place.generate_state(1, np.uint64)[0]), self.device)

    @torch.no_grad()
    def outputs(self, x: Tensor) -> Tensor:
        """Return the outputs for inputs of shape (rows, ...) in evaluation mode, block by block."""
        self.network.eval()
        parts = []
        for block in x.split(PACE.evaluated_rows if x.ndim == 2 else PACE.evaluated_images):
            with self._autocast():
                part = self.network(suited_images(self.network, block.to(self.device)))
                parts.append(part.float() if self.precision else part)
        return torch.cat(parts)

    def evaluate(self, rows: Rows | None) -> tuple[float, float]:
        """Return the mean loss and error in evaluation mode; NaN without rows or labels."""
        if rows is None or not len(rows.x):
            return math.nan, math.nan
        outputs = self.outputs(rows.x)
        y = rows.y.to(outputs.device)
        weight = None if rows.weight is None else rows.weight.to(outputs.device)
        loss = float(self._loss(outputs, y, weight)) / y.numel()
        if self.loss_name != "cross-entropy":
            return loss, math.nan
        wrong = (outputs.argmax(1) != y).float()
        return loss, float((wrong if weight is None else wrong * weight).mean())

    def save(self, path: str | Path, history: History, notes: State) -> None:
        """Write a checkpoint, from which :meth:`restore` continues exactly.

        Parameters
        ----------
        path, history, notes : str or Path, History, and dict
            File to write, results so far, and settings of the run, as JSON values.
        """
        save(Checkpoint.of(self, history, notes), path)

    def restore(self, path: str | Path, notes: State) -> History:
        """Continue from a checkpoint of :meth:`save`, and return the results so far.

        Parameters
        ----------
        path, notes : str or Path, and dict
            File to read, and settings of the run, which must be those of the checkpoint.
        """
        try:
            checkpoint = load(path, Checkpoint)
            if not (different := checkpoint.differences(self, notes)):
                return checkpoint.restore(self)
            problem, cause = f"was made with other settings ({', '.join(different)} differ)", None
        except (LookupError, TypeError, RuntimeError, AttributeError, ValueError) as error:
            problem, cause = f"is not a checkpoint of this network ({error})", error
        raise ValueError(f"{path} {problem}; use another folder, or remove it") from cause

    def _raise_diverged(self, x: Tensor, y: Tensor) -> NoReturn:
        problem = f"the loss is not finite in epoch {self.epochs_done + 1}"
        raise_diverged(problem, self.network, x, y, self.batch_size)

    def _loss(self, outputs: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
        """Return the sum of the losses of rows and outputs."""
        function = LOSSES[self.loss_name]
        if self.loss_name == "squared" and y.shape != outputs.shape:  # without broadcasting
            if y.dim() != 1 or outputs.numel() != len(y):
                what = f"but the outputs of the network have shape {tuple(outputs.shape)}"
                raise ValueError(f"targets have shape {tuple(y.shape)}, {what}")
            y = y.reshape(outputs.shape)
        if weight is None:
            return function(outputs, y, reduction="sum")
        losses = function(outputs, y, reduction="none").reshape(len(y), -1)
        return (losses * weight[:, None]).sum()

    def _autocast(self) -> AbstractContextManager[None]:
        return torch.autocast(self.device.type, torch.bfloat16) if self.precision else nullcontext()


def _check_name(name: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}")
