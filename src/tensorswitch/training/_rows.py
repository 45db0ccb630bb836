"""The rows that a learner trains on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tensorswitch._checks import from_numpy


@dataclass
class Rows:
    """Inputs and targets of a part of the data.

    Parameters
    ----------
    x : Tensor of shape (rows, ...)
        Inputs.
    y : Tensor of shape (rows,) or (rows, outputs)
        Integer labels, or targets of a regression.
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
    def from_numpy(cls, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> Rows:
        """Return rows that share the memory of writable arrays.

        Parameters
        ----------
        x : ndarray of shape (rows, ...)
            Inputs.
        y : ndarray of shape (rows,) or (rows, outputs)
            Targets.
        weight : ndarray of shape (rows,), optional
            Factors on the losses of the rows.
        """
        return cls(from_numpy(x), from_numpy(y), None if weight is None else from_numpy(weight))

    def to(self, device: torch.device | str) -> Rows:
        """Return the rows on a device, without a copy if they are already there.

        Parameters
        ----------
        device : torch.device or str
            Device.
        """
        weight = None if self.weight is None else self.weight.to(device)
        return Rows(self.x.to(device), self.y.to(device), weight)
