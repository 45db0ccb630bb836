"""Switches that decide for each row on its own: ReLU, maxout and none.

h_j = s_j > 0        h_j = (s_j is the highest of its pieces)        h_j = 1
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tensorswitch._checks import check_floating, check_positive, check_shape
from tensorswitch.persistence import SavedPart, is_saveable
from tensorswitch.switches._routes import Routes


class Switch(SavedPart):
    """Base class of the rules that decide from their scores which gates open.

    A unit of the scalar network has ``pieces`` gates. A rule of your own defines ``open``, and is a
    dataclass with :func:`tensorswitch.persistence.saved_as` if models with it are to be saved.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import torch
    >>> from tensorswitch.persistence import saved_as
    >>> from tensorswitch.switches import Switch
    >>> @saved_as("strongest")
    ... @dataclass(frozen=True)
    ... class Strongest(Switch):
    ...     count: int = 2
    ...
    ...     def open(self, scores):
    ...         least = scores.topk(self.count).values[:, -1:]
    ...         return (scores >= least) & (scores > 0)
    >>> Strongest(1)(torch.tensor([[1.0, 3.0, 2.0]])).gates
    tensor([[False,  True, False]])
    """

    pieces: int = 1

    def open(self, scores: Tensor) -> Tensor:
        """Return which gates are open, for scores ``W x`` of shape (rows, gates)."""
        what = "open(scores), which returns which gates are open, as a boolean tensor"
        raise NotImplementedError(f"{type(self).__name__} does not define {what}")

    def units(self, scores: Tensor) -> Tensor:
        """Return the activities of the scalar network, (rows, gates / pieces), for scores."""
        return (scores * self.open(scores)).unflatten(1, (-1, self.pieces)).sum(2)

    def check_gates(self, gates: int) -> None:
        """Raise unless this number of gates forms whole units of ``pieces``."""
        if gates % self.pieces:
            raise ValueError(
                f"gates must be a multiple of the {self.pieces} pieces of {self}, got {gates}"
            )

    def __call__(self, scores: Tensor) -> Routes:
        """Return the routes of scores of shape (rows, gates)."""
        check_floating("scores", scores)
        check_shape("scores", scores, (None, None), "(rows, gates)")
        self.check_gates(scores.shape[1])
        return Routes(self.open(scores))


@dataclass(frozen=True)
class ReLU(Switch):
    """Open a gate where its score is strictly positive, ``H(W x)``.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.switches import ReLU
    >>> ReLU()(torch.tensor([[1.0, -1.0]])).gates
    tensor([[ True, False]])
    """

    def open(self, scores: Tensor) -> Tensor:
        return scores > 0

    def units(self, scores: Tensor) -> Tensor:
        return scores.relu()


@dataclass(frozen=True)
class AllOpen(Switch):
    """Open every gate whose score is not NaN, which makes the units linear."""

    def open(self, scores: Tensor) -> Tensor:
        return ~scores.isnan()

    def units(self, scores: Tensor) -> Tensor:
        return scores


@dataclass(frozen=True)
class Maxout(Switch):
    """Open the gate with the highest score in each unit of ``pieces`` consecutive gates.

    Among equal scores the first one wins.

    Parameters
    ----------
    pieces : int, default=2
        Number of gates per unit.

    References
    ----------
    Goodfellow, Warde-Farley, Mirza, Courville and Bengio, Maxout Networks, ICML 2013,
    arXiv:1302.4389.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.switches import Maxout
    >>> Maxout(2)(torch.tensor([[1.0, 2.0, -1.0, -2.0]])).gates
    tensor([[False,  True,  True, False]])
    """

    pieces: int = 2

    def __post_init__(self) -> None:
        check_positive(pieces=self.pieces)
        object.__setattr__(self, "pieces", int(self.pieces))

    def open(self, scores: Tensor) -> Tensor:
        rows, gates = scores.shape
        units = scores.reshape(rows, gates // self.pieces, self.pieces)
        nan = units.isnan()
        winner = torch.where(nan, -torch.inf, units).argmax(2, keepdim=True)  # NaN never wins
        pieces = torch.arange(self.pieces, device=scores.device)
        return ((pieces == winner) & ~nan).view(rows, gates)

    def units(self, scores: Tensor) -> Tensor:
        return scores.unflatten(1, (-1, self.pieces)).amax(2)


def as_switch(switch: Switch | str) -> Switch:
    """Return the switch of a name: "relu", "none" (all gates open), "maxout" or "maxout:PIECES"."""
    if isinstance(switch, Switch):
        return switch
    name, _, count = str(switch).partition(":")
    if name == "maxout" and (not count or (count.isdecimal() and int(count) > 0)):
        return Maxout(int(count or 2))
    if name in ("relu", "none") and not count:
        return ReLU() if name == "relu" else AllOpen()
    raise ValueError(
        f"switch must be a Switch, 'relu', 'maxout', 'maxout:PIECES' or 'none', got {switch!r}"
    )


def switch_name(switch: Switch) -> str | Switch:
    """Return what files keep of a switch: its name, or one that is saved as a part."""
    if type(switch) is Maxout:
        return f"maxout:{switch.pieces}"
    if type(switch) in (ReLU, AllOpen):
        return "relu" if type(switch) is ReLU else "none"
    if not is_saveable(switch):
        raise TypeError(
            f"{type(switch).__name__} has no name, so what uses it cannot be saved; "
            "give it one with tensorswitch.persistence.saved_as"
        )
    return switch
