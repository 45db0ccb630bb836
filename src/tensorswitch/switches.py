"""Switches, the rules that turn gate scores into routes, and the gates of deep networks.

A route states that a copy of input row ``source`` goes to unit ``j`` of output row ``target``.
With :class:`ReLU` and :class:`Maxout`, source and target are the same row; :class:`MaxPool2d`
copies the patch at the winning position of each window. A closed unit has no route, and a score of
NaN never opens a unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from tensorswitch._checks import check_floating, check_shape

__all__ = [
    "AllOpen",
    "MaxPool2d",
    "Maxout",
    "ReLU",
    "Routes",
    "Switch",
    "as_switch",
    "combine_gates",
    "deep_gates",
    "draw_gates",
    "switch_name",
]


@dataclass(frozen=True)
class Routes:
    """Describe where copies of the input rows go.

    Every pair of a source row and a target row has its own gates.

    Parameters
    ----------
    gates : bool Tensor of shape (pairs, units)
        Which units are open for each pair.
    source : int64 Tensor of shape (pairs,), optional
        Input row of each pair. By default pair ``p`` copies row ``p``.
    target : int64 Tensor of shape (pairs,), optional
        Output row of each pair. By default pair ``p`` adds to row ``p``.
    rows : int, optional
        Number of output rows. Required with ``target``.

    Raises
    ------
    TypeError
        If ``gates`` is not boolean, or ``source`` or ``target`` is not int64.
    ValueError
        If shapes or row indices do not agree, or only one of ``target`` and ``rows`` is given.

    Examples
    --------
    Rows 0 and 1 both add to output row 0, each with its own open unit:

    >>> from tensorswitch import switched_linear
    >>> gates = torch.tensor([[True, False], [False, True]])
    >>> routes = Routes(gates, target=torch.tensor([0, 0]), rows=1)
    >>> switched_linear(torch.tensor([[1.0], [10.0]]), routes, torch.tensor([[[2.0]], [[3.0]]]))
    tensor([[32.]])
    """

    gates: Tensor
    source: Tensor | None = None
    target: Tensor | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.gates, Tensor) or self.gates.dtype != torch.bool:
            kind = self.gates.dtype if isinstance(self.gates, Tensor) else type(self.gates).__name__
            raise TypeError(
                f"gates must be a boolean tensor, got {kind}; "
                "turn scores into gates with a switch, or with scores > 0"
            )
        check_shape("gates", self.gates, (None, None), "(rows, gates)")
        if self.source is None and self.target is None and self.rows is None:
            return
        for name in ("source", "target"):
            index = getattr(self, name)
            if index is not None:
                if not isinstance(index, Tensor) or index.dtype != torch.int64:
                    found = index.dtype if isinstance(index, Tensor) else type(index).__name__
                    raise TypeError(f"{name} must be an int64 tensor, got {found}")
                check_shape(name, index, (self.gates.shape[0],), "(pairs,)")
                _check_range(name, index, self.rows if name == "target" else None)
        if (self.target is None) != (self.rows is None):
            raise ValueError("target and rows go together: give both or neither")

    def check_source(self, x: Tensor) -> None:
        """Raise unless ``x`` can be the input of these routes.

        Parameters
        ----------
        x : Tensor of shape (rows, in_features)
            Input rows.

        Raises
        ------
        ValueError
            If ``x`` is on another device, or has too few rows.
        """
        if self.gates.device != x.device:
            raise ValueError(
                f"gates are on {self.gates.device} but x is on {x.device}; move one with .to()"
            )
        if self.source is None:
            check_shape("x", x, (self.gates.shape[0], None), "(rows, in_features)")
        else:
            check_shape("x", x, (None, None), "(rows, in_features)")
            _check_range("source", self.source, x.shape[0])

    def expand(self, x: Tensor) -> Tensor:
        """Return the expanded tensor, ``Z_t = Σ_p h_p ⊗ x_source(p)`` over the pairs of target t.

        Parameters
        ----------
        x : Tensor of shape (rows, in_features)
            Input rows.

        Returns
        -------
        Tensor of shape (output rows, units, in_features)
            What :func:`tensorswitch.switched_linear` applies its weights to without forming it.

        Examples
        --------
        >>> routes = Routes(torch.tensor([[True], [True]]), target=torch.tensor([0, 0]), rows=1)
        >>> routes.expand(torch.tensor([[1.0, 2.0], [10.0, 20.0]]))
        tensor([[[11., 22.]]])
        """
        self.check_source(x)
        copies = x if self.source is None else x.index_select(0, self.source)
        z = self.gates[:, :, None] * copies[:, None, :]
        if self.target is None or self.rows is None:
            return z
        return z.new_zeros(self.rows, *z.shape[1:]).index_add(0, self.target, z)

    def aligned(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return one input row and one row of gates for each output row.

        This view of the routes is all that boolean gates can express: ``Z_t = h_t ⊗ x_t``. It
        exists if no output row adds up several input rows. An output row without open gates has
        an input row of zeros.

        Parameters
        ----------
        x : Tensor of shape (rows, in_features)
            Input rows.

        Returns
        -------
        x : Tensor of shape (output rows, in_features)
            The input row that each output row copies.
        gates : bool Tensor of shape (output rows, units)
            Its open units.

        Raises
        ------
        ValueError
            If several pairs with open gates have the same target.

        Examples
        --------
        >>> gates = torch.tensor([[True, False], [False, True]])
        >>> routes = Routes(gates, target=torch.tensor([1, 0]), rows=2)
        >>> routes.aligned(torch.tensor([[1.0], [10.0]]))
        (tensor([[10.],
                [ 1.]]), tensor([[False,  True],
                [ True, False]]))
        """
        self.check_source(x)
        copies = x if self.source is None else x.index_select(0, self.source)
        if self.target is None or self.rows is None:
            return copies, self.gates
        used = self.gates.any(1).nonzero().flatten()
        target = self.target[used]
        shared = (torch.bincount(target, minlength=self.rows) > 1).nonzero().flatten()
        if len(shared):
            raise ValueError(
                f"several input rows add to output row {int(shared[0])}, but boolean gates copy "
                "one row; form the expanded tensor with Routes.expand() and use it as features"
            )
        rows = copies.new_zeros(self.rows, copies.shape[1])
        gates = self.gates.new_zeros(self.rows, self.gates.shape[1])
        return (
            rows.index_copy(0, target, copies[used]),
            gates.index_copy(0, target, self.gates[used]),
        )


def _check_range(name: str, index: Tensor, rows: int | None) -> None:
    if torch.compiler.is_compiling() or index.device.type != "cpu" or not index.numel():
        return  # the numbers are not there yet, or reading them would wait for the device
    least, most = int(index.min()), int(index.max())
    if least < 0 or (rows is not None and most >= rows):
        valid = "at least 0" if rows is None else f"between 0 and {rows - 1}"
        raise ValueError(f"{name} must have entries {valid}, got {least} to {most}")


class Switch:
    """Base class of the rules that decide from their scores which gates open.

    Calling a switch with scores returns :class:`Routes`.

    Attributes
    ----------
    pieces : int
        Number of gates per unit of the scalar network.
    """

    pieces: int = 1

    def open(self, scores: Tensor) -> Tensor:
        """Return which gates are open.

        Parameters
        ----------
        scores : Tensor of shape (rows, gates)
            ``W x`` for each row.

        Returns
        -------
        bool Tensor of shape (rows, gates)
            True where a gate is open.
        """
        raise NotImplementedError

    def units(self, scores: Tensor) -> Tensor:
        """Return the activities of the scalar network.

        Parameters
        ----------
        scores : Tensor of shape (rows, gates)
            ``W x`` for each row.

        Returns
        -------
        Tensor of shape (rows, gates / pieces)
            The input of the next layer of gates.
        """
        raise NotImplementedError

    def check_gates(self, gates: int) -> None:
        """Raise unless this number of gates forms whole units.

        Parameters
        ----------
        gates : int
            Number of gates of a layer.

        Raises
        ------
        ValueError
            If ``gates`` is not a multiple of ``pieces``.
        """
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
    >>> ReLU()(torch.tensor([[1.0, -1.0]])).gates
    tensor([[ True, False]])
    """

    def open(self, scores: Tensor) -> Tensor:
        """Return ``scores > 0``.

        Parameters
        ----------
        scores : Tensor of shape (rows, gates)
            ``W x`` for each row.

        Returns
        -------
        bool Tensor of shape (rows, gates)
            True where a gate is open.
        """
        return scores > 0

    def units(self, scores: Tensor) -> Tensor:
        """Return ``max(0, scores)``.

        Parameters
        ----------
        scores : Tensor of shape (rows, gates)
            ``W x`` for each row.

        Returns
        -------
        Tensor of shape (rows, gates)
            Activities of the ReLU network.
        """
        return scores.relu()


@dataclass(frozen=True)
class AllOpen(Switch):
    """Open every gate whose score is not NaN, which makes the units linear."""

    def open(self, scores: Tensor) -> Tensor:
        """Return True for every score that is not NaN.

        Parameters
        ----------
        scores : Tensor of shape (rows, gates)
            ``W x`` for each row.

        Returns
        -------
        bool Tensor of shape (rows, gates)
            True where a gate is open.
        """
        return ~scores.isnan()

    def units(self, scores: Tensor) -> Tensor:
        """Return the scores unchanged.

        Parameters
        ----------
        scores : Tensor of shape (rows, gates)
            ``W x`` for each row.

        Returns
        -------
        Tensor of shape (rows, gates)
            Activities of the linear network.
        """
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
    >>> Maxout(2)(torch.tensor([[1.0, 2.0, -1.0, -2.0]])).gates
    tensor([[False,  True,  True, False]])
    """

    pieces: int = 2

    def __post_init__(self) -> None:
        if isinstance(self.pieces, bool) or not isinstance(self.pieces, int) or self.pieces < 1:
            raise ValueError(f"pieces must be a positive integer, got {self.pieces!r}")

    def open(self, scores: Tensor) -> Tensor:
        """Return True for the winner of each unit.

        Parameters
        ----------
        scores : Tensor of shape (rows, gates)
            ``W x`` for each row.

        Returns
        -------
        bool Tensor of shape (rows, gates)
            True where a gate is open.
        """
        rows, gates = scores.shape
        units = scores.reshape(rows, gates // self.pieces, self.pieces)
        nan = units.isnan()
        winner = torch.where(nan, -torch.inf, units).argmax(2, keepdim=True)
        return (torch.zeros_like(nan).scatter_(2, winner, True) & ~nan).view(rows, gates)

    def units(self, scores: Tensor) -> Tensor:
        """Return the highest score of each unit.

        Parameters
        ----------
        scores : Tensor of shape (rows, gates)
            ``W x`` for each row.

        Returns
        -------
        Tensor of shape (rows, gates / pieces)
            Activities of the maxout network.
        """
        best: Tensor = scores.unflatten(1, (-1, self.pieces)).amax(2)
        return best


@dataclass(frozen=True)
class MaxPool2d:
    """Copy, for each unit and window, the patch at the position with the highest score.

    Among equal scores the first one in row-major order wins. The patch is copied only if
    ``switch`` opens the gate there. With :class:`Maxout`, the best piece at the best position wins.

    Parameters
    ----------
    kernel_size : int or tuple of (int, int)
        Height and width of a window.
    stride : int or tuple of (int, int), optional
        Distance between windows. By default ``kernel_size``.
    switch : Switch, default=AllOpen()
        Rule that opens the gates.

    Examples
    --------
    >>> routes = MaxPool2d(2)(torch.tensor([[[[0.0, 1.0], [3.0, 2.0]]]]))
    >>> routes.gates[:, 0], routes.target
    (tensor([False, False,  True, False]), tensor([0, 0, 0, 0]))
    """

    kernel_size: int | tuple[int, int]
    stride: int | tuple[int, int] | None = None
    switch: Switch = field(default_factory=AllOpen)

    def __call__(self, scores: Tensor) -> Routes:
        """Return the routes of scores of shape (images, gates, height, width).

        Sources are positions and targets are windows, both numbered image by image and within an
        image in row-major order.
        """
        check_floating("scores", scores)
        check_shape("scores", scores, (None,) * 4, "(images, gates, height, width)")
        images, gates, height, width = scores.shape
        self.switch.check_gates(gates)
        flat = scores.permute(0, 2, 3, 1).reshape(-1, gates)
        opened = self.switch.open(flat).view(images, height, width, gates).permute(0, 3, 1, 2)
        finite = torch.where(scores.isnan(), -torch.inf, scores)
        units = finite.unflatten(1, (-1, self.switch.pieces)).amax(2)
        return _pooled(units, opened, self.kernel_size, self.stride)


def as_switch(switch: Switch | str) -> Switch:
    """Return the switch with a given name; a switch is returned unchanged.

    Parameters
    ----------
    switch : Switch or {"relu", "none", "maxout", "maxout:PIECES"}
        ``"none"`` opens every gate. ``PIECES`` is the number of gates per unit, 2 by default.

    Returns
    -------
    Switch
        The switch.

    Raises
    ------
    ValueError
        If the name is unknown.

    Examples
    --------
    >>> as_switch("maxout:3")
    Maxout(pieces=3)
    """
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


def switch_name(switch: Switch) -> str:
    """Return the name of a switch, the inverse of :func:`as_switch`.

    Parameters
    ----------
    switch : Switch
        :class:`ReLU`, :class:`Maxout` or :class:`AllOpen`.

    Returns
    -------
    str
        The name.
    """
    if isinstance(switch, Maxout):
        return f"maxout:{switch.pieces}"
    return "relu" if isinstance(switch, ReLU) else "none"


def draw_gates(
    in_features: int,
    gates: Sequence[int],
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
    switch: Switch | None = None,
) -> list[Tensor]:
    """Draw the gate weights of each layer from the Glorot uniform distribution.

    Parameters
    ----------
    in_features : int
        Number of inputs of the first layer, n_0.
    gates : sequence of int
        Number of gates of each layer, (n_1, …, n_L).
    generator : torch.Generator
        Source of randomness; the weights are created on its device.
    dtype : torch.dtype, default=torch.float32
        Data type of the weights.
    switch : Switch, default=ReLU()
        Rule that opens the gates. It determines the number of units in each layer, which is the
        number of inputs of the next layer.

    Returns
    -------
    list of Tensor
        For each layer the weights, of shape (n_l, units of layer l - 1).

    References
    ----------
    Glorot and Bengio, Understanding the difficulty of training deep feedforward neural networks,
    AISTATS 2010.

    Examples
    --------
    >>> [w.shape for w in draw_gates(5, (4, 3), torch.Generator().manual_seed(0))]
    [torch.Size([4, 5]), torch.Size([3, 4])]
    """
    switch = ReLU() if switch is None else switch
    weights = []
    for n in gates:
        switch.check_gates(n)
        uniform = torch.rand(
            n, in_features, generator=generator, dtype=dtype, device=generator.device
        )
        weights.append((2 * uniform - 1) * math.sqrt(6 / (n + in_features)))
        in_features = n // switch.pieces
    return weights


def deep_gates(
    x: Tensor, gate_weights: Sequence[Tensor], switch: Switch | None = None
) -> list[Tensor]:
    """Return ``h_l = H(W_l x_{l-1})`` for each layer, with ``x_l`` from the scalar network.

    Parameters
    ----------
    x : Tensor of shape (rows, n_0)
        Input rows.
    gate_weights : sequence of Tensor
        For each layer the weights, of shape (n_l, units of layer l - 1).
    switch : Switch, default=ReLU()
        Rule that opens the gates.

    Returns
    -------
    list of bool Tensor
        For each layer the gates, of shape (rows, n_l).

    References
    ----------
    Tsai, Saxe and Cox, Tensor Switching Networks, arXiv:1610.10087, Sec. 2.2.
    """
    switch = ReLU() if switch is None else switch
    gates = []
    for w in gate_weights:
        scores = x @ w.t()
        gates.append(switch.open(scores))
        x = switch.units(scores)
    return gates


def combine_gates(gates: Sequence[Tensor]) -> Tensor:
    """Return ``h_L ⊗ … ⊗ h_1``: which chains of units are open in all layers.

    Parameters
    ----------
    gates : sequence of bool Tensor
        ``h_1, …, h_L``, of shape (rows, n_l).

    Returns
    -------
    bool Tensor of shape (rows, n_L · … · n_1)
        The combined gates, last layer first.

    Examples
    --------
    >>> first, second = torch.tensor([[True, False]]), torch.tensor([[False, True]])
    >>> combine_gates([first, second])
    tensor([[False, False,  True, False]])
    """
    combined = gates[0]
    for h in gates[1:]:
        combined = (h[:, :, None] & combined[:, None, :]).flatten(1)
    return combined


def _pooled(
    units: Tensor,
    opened: Tensor,
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int] | None,
) -> Routes:
    """Return the routes of the positions with the highest unit scores, where ``opened``."""
    (kh, kw), images = _pair(kernel_size), units.shape[0]
    sh, sw = _pair(kernel_size if stride is None else stride)
    height, width = units.shape[2:]
    if min(kh, kw, sh, sw) < 1 or kh > height or kw > width:
        raise ValueError(
            f"a {kh}×{kw} pooling window with stride {sh}×{sw} does not fit in "
            f"scores of {height}×{width}"
        )
    finite = torch.where(units.isnan(), -torch.inf, units)
    # The winning position: (images, units, windows).
    winner = F.max_pool2d(finite, (kh, kw), (sh, sw), return_indices=True)[1].flatten(2)
    device = units.device
    top = torch.arange(0, height - kh + 1, sh, device=device)
    left = torch.arange(0, width - kw + 1, sw, device=device)
    corner = (top[:, None] * width + left).flatten()
    within = torch.arange(kh, device=device)[:, None] * width + torch.arange(kw, device=device)
    position = (corner[:, None] + within.flatten()).flatten()  # (windows · candidates,)
    windows = corner.shape[0]

    # (images, windows · candidates, units)
    wins = winner.transpose(1, 2).repeat_interleave(kh * kw, 1) == position[:, None]
    pieces = opened.shape[1] // units.shape[1]
    gates = wins.repeat_interleave(pieces, 2) & opened.flatten(2).transpose(1, 2)[:, position]
    source = (torch.arange(images, device=device)[:, None] * (height * width) + position).flatten()
    target = torch.arange(images * windows, device=device).repeat_interleave(kh * kw)
    return Routes(gates.flatten(0, 1), source, target, images * windows)


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
