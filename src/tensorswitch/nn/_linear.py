"""The TS layer on vectors: ``y = Σ_j H(w_j · x) V_jᵀ x + bias``."""

from typing import Self

import torch
from torch import Tensor, nn

from tensorswitch._checks import check_positive
from tensorswitch.nn._base import OneLayer, check_relu_layers, fold_rows
from tensorswitch.switches import Switch


class SwitchedLinear(OneLayer):
    """Apply ``y = Σ_j H(w_j · x) V_jᵀ x + bias`` to the last axis of the input.

    This is a TS layer with linear rotation-compression (LRC, Sec. 4.3), or the readout of a TS
    layer. Weights start from the Glorot uniform distribution, biases from zero.

    Parameters
    ----------
    in_features, gates, out_features : int
        Size of the last axis of the input, number of gates, and size of the last axis of the
        output.
    bias : bool, default=True
        Whether to add a learned bias.
    switch : Switch or {"relu", "none", "maxout", "maxout:PIECES"}, default="relu"
        Rule that opens the gates: where scores are positive, all of them, or the best of ``PIECES``
        (2 by default) consecutive ones.
    learn_gates : {None, "ibp"}, default=None
        None keeps the gates fixed, without gradient and weight decay. ``"ibp"`` trains them by
        inverted backpropagation (Eq. 6).
    gate_bias : bool, default=False
        Whether gates have biases, ``H(w_j · x + b_j)``, and units copy ``[x, 1]`` instead of ``x``.
        The paper has none.
    dropout : float, default=0.0
        Probability that an open gate closes in training mode. The other copies are divided by one
        minus this probability, as in :class:`torch.nn.Dropout` of the units.
    device, dtype : optional
        Device and data type of the parameters.

    Attributes
    ----------
    gate_weight : Parameter of shape (gates, in_features)
        Gate weights ``w_j``, the paper's activation weights.
    weight : Parameter of shape (gates, in_features, out_features)
        Analysis weights ``V_j``, the paper's ``W*``.
    bias, gate_bias : Parameter of shape (out_features,) and (gates,), or None
        Bias of the output, and gate biases ``b_j``.
    constant : Parameter of shape (gates, out_features) or None
        Analysis weights of the constant 1 in the copies: what each open unit adds to the output.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch import SwitchedLinear
    >>> layer = SwitchedLinear(20, 64, 10, learn_gates="ibp")
    >>> layer(torch.randn(8, 20)).shape
    torch.Size([8, 10])
    """

    def __init__(
        self,
        in_features: int,
        gates: int,
        out_features: int,
        bias: bool = True,
        *,
        switch: Switch | str = "relu",
        learn_gates: str | None = None,
        gate_bias: bool = False,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(in_features=in_features, gates=gates, out_features=out_features)
        self.in_features, self.out_features = in_features, out_features
        settings, factory = (switch, learn_gates, gate_bias, dropout), (device, dtype)
        self._build((in_features,), gates, out_features, bias, *settings, *factory)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, (..., out_features), for input of shape (..., in_features)."""
        x, lead = fold_rows(x, self.weight, self.in_features)
        scores = self._scores(x, self.gate_weight, self.gate_bias)
        y = self._read(x, scores, self.switch.open(scores.detach()))
        return y if len(lead) == 1 else y.reshape(*lead, self.out_features)

    @classmethod
    @torch.no_grad()
    def from_relu(
        cls,
        hidden: nn.Linear,
        output: nn.Linear,
        *,
        learn_gates: str | None = None,
        dropout: float = 0.0,
    ) -> Self:
        """Return the layer that computes ``output(relu(hidden(x)))``.

        Its gates are those of ``hidden``, and ``V_j`` is the outer product of row ``j`` of
        ``hidden.weight`` and column ``j`` of ``output.weight``. It has gate biases if ``hidden``
        has a bias. ``dropout`` is that between the ReLU and ``output``. Weights are copied.
        """
        check_relu_layers([hidden], output)
        sizes = hidden.in_features, hidden.out_features, output.out_features
        return cls._from_relu(hidden, output, *sizes, learn_gates=learn_gates, dropout=dropout)
