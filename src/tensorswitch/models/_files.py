"""Files of networks, in the format of everything that is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorswitch.models._networks import ADVICE, Network
from tensorswitch.persistence import load, save

__all__ = ["load_model", "save_model"]


def save_model(network: Network, path: str | Path, **notes: Any) -> None:
    """Write a network to a safetensors file, atomically.

    Parameters
    ----------
    network : Network
        Network of :func:`~tensorswitch.models.mlp` or :func:`~tensorswitch.models.cnn`.
    path : str or Path
        File to write.
    **notes : Any
        What to store with it, such as the preparation of its inputs: plain values, arrays and
        tensors, which :func:`tensorswitch.persistence.load_with_notes` returns.

    Raises
    ------
    TypeError
        If it is not such a network.
    ValueError
        If layers were added, removed or changed since the network was built, so that the file
        would not be read as this network.

    See Also
    --------
    load_model : Read the file; it has an example.
    """
    if not isinstance(network, Network):
        raise TypeError(f"only networks of mlp or cnn can be saved, got {type(network)}; {ADVICE}")
    save(network, path, **notes)


def load_model(path: str | Path) -> Network:
    """Read a network from a file written by :func:`save_model`.

    Nothing is unpickled, so that files from untrusted sources cannot run code.

    Parameters
    ----------
    path : str or Path
        File to read.

    Returns
    -------
    Network
        The network, with the weights of the file.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> from tensorswitch.models import load_model, mlp, save_model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(mlp(4, 2, depth=1, width=3), f"{folder}/model.safetensors")
    ...     network = load_model(f"{folder}/model.safetensors")
    >>> network(torch.zeros(1, 4)).shape
    torch.Size([1, 2])
    """
    network: Network = load(path, Network)
    return network
