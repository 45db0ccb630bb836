"""The loop: epochs over tensors at hand, measured, kept in checkpoints, on one process or several.

Several processes (``torchrun``) each take their share of every batch, and torch's DistributedDataParallel averages gradients and the
pseudo-gradients of inverted backpropagation alike: the loss curve is that of one process with the whole batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F

from tensorswitch._bfloat16 import bfloat16_problem
from tensorswitch._checks import (
    check_above_zero,
    check_device,
    check_number,
    check_positive,
    check_seed,
    from_numpy,
)
from tensorswitch._files import make_folder, read_header, read_tensors, write_tensors, write_text
from tensorswitch._progress import progress_bar
from tensorswitch.history import Epoch, History

__all__ = ["DivergedError", "Epoch", "History", "Learner", "Rows", "train"]

FORMAT = "tensorswitch.checkpoint"
CHECKPOINT, BEST = "checkpoint.safetensors", "best.safetensors"
NEXT_BEST = "next-best.safetensors"  # becomes BEST when the checkpoint knows of it
ADVICE = "use a smaller learning rate"
EVALUATION_ROWS = 4096
LOOK_EVERY = 16  # steps between looks at the loss where looking waits for a device
LOSSES: dict[str, Callable[..., Tensor]] = {"cross-entropy": F.cross_entropy, "squared": F.mse_loss}
OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


class DivergedError(ArithmeticError):
    """The loss is no longer a number."""


class _OtherRunError(ValueError):
    """A checkpoint is of a run with other settings."""


@dataclass
class Rows:
    """Inputs and targets of one part of the data, as tensors."""

    x: Tensor
    y: Tensor

    @classmethod
    def from_numpy(cls, x: np.ndarray, y: np.ndarray) -> Rows:
        return cls(from_numpy(x), from_numpy(y))

    def to(self, device: torch.device | str) -> Rows:
        return Rows(self.x.to(device), self.y.to(device))


class Learner:
    """A network with its optimiser and its own random numbers: an epoch at a time, measured, to be kept and taken up again.

    Parameters
    ----------
    network : any module from rows to outputs
    loss : "cross-entropy" (integer labels) or "squared"
    optimizer : "sgd", "adam" or "adamw"
    lr, momentum, weight_decay : its settings; decay is added to the gradient of what is trained, never to fixed gates
    batch_size : rows of a step (of each process, where there are several)
    schedule : what makes a torch learning-rate scheduler from the optimiser, stepped once an epoch
    seed : of the order of the rows
    device : where the network and the data go
    precision : None, or "bf16" for products in bfloat16
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
        schedule: Callable[[torch.optim.Optimizer], Any] | None = None,
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
        self.device, self.precision, self.batch_size = (
            check_device(device),
            precision,
            int(batch_size),
        )
        self.network, self.loss_name = network.to(self.device), loss
        self.ranks = distributed.get_world_size() if distributed.is_initialized() else 1
        self.rank = distributed.get_rank() if self.ranks > 1 else 0
        self.forward: nn.Module = self.network
        if self.ranks > 1:
            self.forward = nn.parallel.DistributedDataParallel(self.network)
        trained = [p for p in self.network.parameters() if p.requires_grad]
        options: dict[str, Any] = {
            "lr": lr,
            "weight_decay": weight_decay,
            "fused": _can_fuse(self.device),
        }
        if optimizer == "sgd":
            options["momentum"] = momentum
        self.optimizer = OPTIMIZERS[optimizer](trained, **options)
        self.schedule = None if schedule is None else schedule(self.optimizer)
        self.generator = torch.Generator().manual_seed(seed)
        self.epochs_done = 0

    def __getstate__(self) -> dict[str, Any]:
        """A generator cannot be pickled, its state can."""
        return {**self.__dict__, "generator": self.generator.get_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.generator = torch.Generator()
        self.generator.set_state(state["generator"])

    def epoch(self, rows: Rows, watch: Callable[[], None] | None = None) -> tuple[float, float]:
        """One pass in a new order: the mean loss and error of the batches as they were met. ``watch`` is called after each step."""
        if not len(rows.x) or len(rows.x) != len(rows.y):
            raise ValueError(
                f"training needs rows, each with its target; got {len(rows.x)} rows and {len(rows.y)} targets"
            )
        self.network.train()
        order = torch.randperm(len(rows.x), generator=self.generator, device="cpu").to(
            rows.x.device
        )
        x, y = (
            rows.x.index_select(0, order),
            rows.y.index_select(0, order),
        )  # one gather, then batches are slices
        loss_function, losses, wrong = (
            LOSSES[self.loss_name],
            torch.zeros((), device=self.device),
            torch.zeros((), device=self.device),
        )
        together = self.batch_size * self.ranks
        look = 1 if self.device.type == "cpu" else LOOK_EVERY
        for step, start in enumerate(range(0, len(x), together)):
            batch = min(together, len(x) - start)
            mine = slice(
                start + self.rank * batch // self.ranks,
                start + (self.rank + 1) * batch // self.ranks,
            )
            part_x, part_y = x[mine], y[mine]
            self.optimizer.zero_grad(set_to_none=True)
            with self._autocast():
                outputs = self.forward(part_x)
                loss = loss_function(
                    outputs.float() if self.precision else outputs, part_y, reduction="sum"
                ) / (batch * self._columns(part_y))
            (
                loss * self.ranks if self.ranks > 1 else loss
            ).backward()  # the average over ranks is then the mean over the batch
            value = loss.detach()
            if step % look == 0 and not math.isfinite(value):
                self.explain(part_x)
            self.optimizer.step()
            losses += value * batch
            if self.loss_name == "cross-entropy":
                wrong += (outputs.detach().argmax(1) != part_y).sum()
            if watch is not None:
                watch()
        if self.schedule is not None:
            self.schedule.step()
        self.epochs_done += 1
        if self.ranks > 1:
            for total in (losses, wrong):
                distributed.all_reduce(total)
        if not math.isfinite(losses):
            self.explain(x[: self.batch_size])
        return float(losses) / len(x), float(wrong) / len(
            x
        ) if self.loss_name == "cross-entropy" else math.nan

    @torch.no_grad()
    def outputs(self, x: Tensor) -> Tensor:
        """The network's outputs for rows, some at a time."""
        self.network.eval()
        parts = []
        for start in range(0, len(x), EVALUATION_ROWS):
            with self._autocast():
                parts.append(
                    self.network(x[start : start + EVALUATION_ROWS].to(self.device)).float()
                    if self.precision
                    else self.network(x[start : start + EVALUATION_ROWS].to(self.device))
                )
        return torch.cat(parts)

    def evaluate(self, rows: Rows | None) -> tuple[float, float]:
        """Mean loss and error, nan where there are no rows."""
        if rows is None or not len(rows.x):
            return math.nan, math.nan
        outputs = self.outputs(rows.x)
        y = rows.y.to(outputs.device)
        loss = float(LOSSES[self.loss_name](outputs, y))
        return loss, float(
            (outputs.argmax(1) != y).float().mean()
        ) if self.loss_name == "cross-entropy" else math.nan

    def save(self, path: str | Path, history: History, notes: dict[str, Any]) -> None:
        """All that is needed to go on as if nothing had happened."""
        tensors = {
            f"model.{k}": v.detach().cpu().contiguous()
            for k, v in self.network.state_dict().items()
        }
        state = self.optimizer.state_dict()
        scalars: dict[str, dict[str, Any]] = {}
        for index, entries in state["state"].items():
            for name, value in entries.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{index}.{name}"] = value.detach().cpu().contiguous()
                else:
                    scalars.setdefault(str(index), {})[name] = value
        tensors["generator"] = self.generator.get_state()
        header = {
            "epochs_done": self.epochs_done,
            "history": history.to_json(),
            "notes": notes,
            "groups": state["param_groups"],
            "scalars": scalars,
            "schedule": None
            if self.schedule is None
            else {k: v for k, v in self.schedule.state_dict().items() if not callable(v)},
        }
        write_tensors(path, FORMAT, tensors, header)

    def restore(self, path: str | Path, notes: dict[str, Any]) -> History:
        """Take up what :meth:`save` wrote; refused if it was another run."""
        tensors, header = read_tensors(path, FORMAT)
        try:
            return self._restore(path, tensors, header, notes)
        except (KeyError, TypeError, RuntimeError, AttributeError, ValueError) as error:
            if isinstance(error, _OtherRunError):
                raise
            raise ValueError(
                f"{path} is not a checkpoint of this network; use another folder, or remove it ({error})"
            ) from error

    def _restore(
        self,
        path: str | Path,
        tensors: dict[str, Tensor],
        header: dict[str, Any],
        notes: dict[str, Any],
    ) -> History:
        if header["notes"] != notes:
            different = sorted(
                k for k in {*header["notes"], *notes} if header["notes"].get(k) != notes.get(k)
            )
            raise _OtherRunError(
                f"{path} was made with other settings ({', '.join(different)} differ); use another folder, or remove it"
            )
        self.network.load_state_dict(
            {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
        )
        state: dict[int, dict[str, Any]] = {int(k): dict(v) for k, v in header["scalars"].items()}
        for key, value in tensors.items():
            if key.startswith("optimizer."):
                _, index, name = key.split(".", 2)
                state.setdefault(int(index), {})[name] = value
        self.optimizer.load_state_dict({"state": state, "param_groups": header["groups"]})
        self.generator.set_state(tensors["generator"])
        if self.schedule is not None and header["schedule"] is not None:
            self.schedule.load_state_dict(header["schedule"])
        self.epochs_done = header["epochs_done"]
        return History.from_json(header["history"])

    def _columns(self, y: Tensor) -> int:
        return y.shape[1] if y.dim() == 2 else 1

    def _autocast(self) -> Any:
        return torch.autocast(self.device.type, torch.bfloat16) if self.precision else nullcontext()

    @torch.no_grad()
    def explain(self, x: Tensor) -> None:
        """Raise with the first layer that has no finite weights, or else no finite output."""
        for name, parameter in self.network.named_parameters():
            if not parameter.isfinite().all():
                raise DivergedError(
                    f"the loss is not finite in epoch {self.epochs_done + 1}: {name} was the first to hold NaN or infinity; {ADVICE}"
                )
        where = "the inputs" if not x.isfinite().all() else "the loss"
        for name, layer in self.network.named_children():
            x = layer(x)
            if not x.isfinite().all() and where == "the loss":
                where = f"the output of layer {name} ({type(layer).__name__})"
        raise DivergedError(
            f"the loss is not finite in epoch {self.epochs_done + 1}: {where} held NaN or infinity first; {ADVICE}"
        )


def train(
    learner: Learner,
    rows: Rows,
    *,
    epochs: int,
    validation: Rows | None = None,
    test: Rows | None = None,
    patience: int | None = None,
    folder: str | Path | None = None,
    notes: dict[str, Any] | None = None,
    tensorboard: bool = False,
    progress: bool = False,
    after: Callable[[Epoch], None] | None = None,
) -> History:
    """Train for some epochs, and return what each came to.

    Parameters
    ----------
    learner : network and optimiser
    rows, validation, test : the data
    epochs : how many in all, those of an earlier run in the same folder included
    patience : stop after so many epochs without a better validation error
    folder : where ``checkpoint.safetensors``, ``best.safetensors``, ``history.csv`` and ``history.json`` are kept, after every epoch; a run that
        was stopped goes on from there
    notes : settings of the run; a folder of other settings is refused
    tensorboard : write events too, if tensorboard is installed
    progress : show a bar with losses and errors
    after : called with each epoch; first, where a run goes on, with the last that was done

    If the loss is no longer finite :class:`DivergedError` is raised, and the checkpoint of the last good epoch stays.
    """
    check_positive(epochs=epochs)
    if patience is not None:
        check_positive(patience=patience)
    history, notes = History(), notes or {}
    place = None if folder is None else Path(folder)
    if place is not None:
        make_folder(place)
        if (place / CHECKPOINT).exists():
            history = learner.restore(place / CHECKPOINT, notes)
            if learner.rank == 0:
                _settle_best(place, history)
            if not (place / BEST).exists():
                raise ValueError(
                    f"{place} has {CHECKPOINT} but no {BEST}; use another folder, or remove {place / CHECKPOINT} to train anew"
                )
        if learner.ranks > 1:
            distributed.barrier()  # so that all have read it before the first one writes
    if history.epochs and after is not None:
        after(history.epochs[-1])
    rows = rows.to(learner.device)
    main = learner.rank == 0
    writer = _events(place) if tensorboard and main else None
    batches = -(-len(rows.x) // (learner.batch_size * learner.ranks))
    with progress_bar(
        "training", progress and main, batches * epochs, batches * len(history.epochs)
    ) as bar:
        while len(history.epochs) < epochs and not _stalled(history, patience):
            start = time.perf_counter()
            number = len(history.epochs) + 1
            train_loss, train_error = learner.epoch(rows, bar)
            seconds = time.perf_counter() - start
            epoch = Epoch(
                number,
                seconds,
                train_loss,
                train_error,
                *learner.evaluate(validation),
                *learner.evaluate(test),
            )
            for held, loss in ((validation, epoch.validation_loss), (test, epoch.test_loss)):
                if held is not None and len(held.x) and not math.isfinite(loss):
                    learner.explain(held.x[: learner.batch_size].to(learner.device))
            history.epochs.append(epoch)
            bar(0, _note(epoch))
            if writer is not None:
                for key, value in asdict(epoch).items():
                    if key != "epoch" and not math.isnan(value):
                        writer.add_scalar(key, value, number)
            if place is not None and main:
                # A process may be killed between any two writes. The checkpoint decides what is
                # done, so the best epoch takes its place after it, and not before.
                if history.best is epoch:
                    learner.save(place / NEXT_BEST, history, notes)
                learner.save(place / CHECKPOINT, history, notes)
                _settle_best(place, history)
            if after is not None:
                after(epoch)
    if writer is not None:
        writer.close()
    return history


def _settle_best(place: Path, history: History) -> None:
    """Make the files agree with the checkpoint that has this history."""
    following = place / NEXT_BEST
    if following.exists():
        header = read_header(following, FORMAT)
        if header.get("epochs_done") == history.best.epoch:
            following.replace(place / BEST)
        else:  # of an epoch that never was
            following.unlink()
    write_text(place / "history.csv", history.to_csv())
    write_text(place / "history.json", history.to_json())


def _stalled(history: History, patience: int | None) -> bool:
    return (
        patience is not None
        and bool(history.epochs)
        and len(history.epochs) - history.best.epoch >= patience
    )


def _note(epoch: Epoch) -> str:
    parts = [f"epoch {epoch.epoch}", f"loss {epoch.train_loss:.4f}"]
    for name, value in (
        ("train", epoch.train_error),
        ("validation", epoch.validation_error),
        ("test", epoch.test_error),
    ):
        if not math.isnan(value):
            parts.append(f"{name} {100 * value:.2f} %")
    return ", ".join(parts)


def _events(place: Path | None) -> Any:
    if place is None:
        raise ValueError("tensorboard needs a folder to write to")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError(
            "tensorboard is not installed; install it with: pip install tensorboard"
        ) from None
    return SummaryWriter(str(place / "events"))


def _can_fuse(device: torch.device) -> bool:
    return device.type in ("cpu", "cuda")


def _check_name(name: str, value: str, known: dict[str, Any]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}")
