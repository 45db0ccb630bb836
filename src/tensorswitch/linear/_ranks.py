"""The process among those of ``torch.distributed`` that share a problem, or alone."""

from typing import Self

from torch import Tensor, distributed


class Ranks:
    """Sums over processes, and this one's share of what is divided among them."""

    def __init__(self, together: bool = False) -> None:
        self.rank = distributed.get_rank() if together else 0
        self.count = distributed.get_world_size() if together else 1

    @classmethod
    def found(cls) -> Self:
        """Return the ranks of the process group, if there is one."""
        return cls(distributed.is_available() and distributed.is_initialized())

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum over all ranks, in place."""
        if self.count > 1:
            distributed.all_reduce(tensor)
        return tensor

    def share(self, count: int) -> slice:
        """Return the part of ``count`` items that is this rank's."""
        # Rounded so that the shares of all ranks add up.
        return slice(count * self.rank // self.count, count * (self.rank + 1) // self.count)
