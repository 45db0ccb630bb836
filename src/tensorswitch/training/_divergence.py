"""Where NaN or infinity comes from: weights, rows or a layer."""

from typing import NoReturn

import torch
from torch import Tensor, nn

ADVICE = "use a smaller learning rate"


class DivergedError(ArithmeticError):
    """Raised if the loss becomes NaN or infinite.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.training import Learner, Rows
    >>> rows = Rows(torch.full((4, 2), torch.nan), torch.zeros(4, dtype=torch.long))
    >>> Learner(torch.nn.Linear(2, 2)).epoch(rows)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    DivergedError: the loss is not finite in epoch 1: the inputs contain NaN or infinity
    """


@torch.no_grad()
def raise_diverged(
    problem: str, network: nn.Module, x: Tensor, y: Tensor, batch_size: int
) -> NoReturn:
    """Raise an error that names what has NaN or infinity first."""
    for name, parameter in network.named_parameters():
        if not parameter.isfinite().all():
            raise DivergedError(f"{problem}: {name} is the first with NaN or infinity; {ADVICE}")
    for name, values in (("inputs", x), ("targets", y)):
        if not values.isfinite().all():
            raise DivergedError(f"{problem}: the {name} contain NaN or infinity")
    where = _first_wrong_layer(network, x.split(batch_size)) or "the loss"
    raise DivergedError(f"{problem}: NaN or infinity first appears in {where}; {ADVICE}")


def _first_wrong_layer(network: nn.Module, batches: tuple[Tensor, ...]) -> str | None:
    """Return the first layer with outputs that are not finite for some batch."""
    if not isinstance(network, nn.Sequential):  # of others, the order is not known
        return None
    device = next((p.device for p in network.parameters()), batches[0].device)
    for batch in batches:
        outputs = batch.to(device)
        for name, layer in network.named_children():
            outputs = layer(outputs)
            if not outputs.isfinite().all():
                return f"the output of layer {name} ({type(layer).__name__})"
    return None
