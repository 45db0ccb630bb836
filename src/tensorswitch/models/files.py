"""Files of networks: safetensors with the description that a network is built from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tensorswitch._files import read_tensors, write_tensors
from tensorswitch.models.networks import Network, build

__all__ = ["load_model", "load_model_with_extra", "save_model"]

FORMAT = "tensorswitch.model"


def save_model(
    network: Network, path: str | Path, extra: dict[str, Tensor] | None = None, **notes: Any
) -> None:
    """Write a network to a safetensors file, atomically.

    Parameters
    ----------
    network : Network
        Network of :func:`~tensorswitch.models.mlp` or :func:`~tensorswitch.models.cnn`.
    path : str or Path
        File to write.
    extra : dict of Tensor, optional
        Tensors to store with the weights, such as the preprocessing of the inputs.
    **notes : Any
        Values to store as JSON in the header, next to the description of the network.

    Raises
    ------
    ValueError
        If layers were added, removed or changed since the network was built, so that the file
        would not be read as this network.

    See Also
    --------
    load_model : Read the file.
    """
    _check_description(network)
    tensors = {
        f"model.{name}": t.detach().cpu().contiguous() for name, t in network.state_dict().items()
    }
    tensors.update({f"extra.{name}": t.contiguous() for name, t in (extra or {}).items()})
    write_tensors(path, FORMAT, tensors, {"description": network.description, "notes": notes})


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

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, or its weights do not match its description.

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
    return load_model_with_extra(path)[0]


def load_model_with_extra(path: str | Path) -> tuple[Network, dict[str, Tensor], dict[str, Any]]:
    """Read a network, and the tensors and notes stored with it.

    Parameters
    ----------
    path : str or Path
        File written by :func:`save_model`.

    Returns
    -------
    network : Network
        The network, with the weights of the file.
    extra : dict of Tensor
        Tensors stored with the weights.
    notes : dict
        Values stored in the header.
    """
    tensors, header = read_tensors(path, FORMAT)
    weights, extra = _with_prefix("model.", tensors), _with_prefix("extra.", tensors)
    try:
        if not weights:
            raise ValueError("it contains no weights")
        with torch.device("meta"):  # allocate nothing before the sizes are known to agree
            network = build(header["description"])
        network.load_state_dict(weights, assign=True)
    except (LookupError, TypeError, ValueError, RuntimeError, MemoryError, OverflowError) as error:
        raise ValueError(
            f"{path} does not contain the weights that its description requires: {error}"
        ) from error
    return network, extra, header.get("notes", {})


def _check_description(network: Network) -> None:
    """Raise unless the description builds the layers that the network has."""
    description = getattr(network, "description", None)
    advice = "save its state_dict() with safetensors.torch.save_file instead"
    if not isinstance(description, dict):
        raise ValueError(
            f"only networks that mlp or cnn have built can be saved, got {type(network).__name__} "
            f"without their description; {advice}"
        )
    with torch.device("meta"):
        built = build(description)
    if repr(built) != repr(network):
        raise ValueError(
            "the network was changed after it was built, so its description would not build it "
            f"again; {advice}"
        )


def _with_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
