"""Export to ONNX."""

import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tensorswitch._files import replacing
from tensorswitch.nn._base import evaluating


def to_onnx(module: nn.Module, args: Tensor | tuple[Tensor], path: str | Path) -> None:
    """Write a network as an ONNX file that takes any number of rows, as ``torch.onnx.export``.

    The switched linear map is written in plain operations, so that ONNX Runtime needs nothing
    else. They build the expanded tensor: memory grows with rows × gates × the smaller of inputs
    and outputs. The network is exported in evaluation mode, and not modified.

    Parameters
    ----------
    module, path : torch.nn.Module, and str or Path
        Network with one input and one output, and file to write, all of it or nothing.
    args : Tensor of shape (rows, ...), or a tuple of it
        Input whose first axis stands for any number of rows; at least two.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch import SwitchedLinear
    >>> from tensorswitch.nn import to_onnx
    >>> to_onnx(SwitchedLinear(4, 8, 2), torch.randn(2, 4), "layer.onnx")  # doctest: +SKIP
    """
    missing = [p for p in ("onnx", "onnxscript") if importlib.util.find_spec(p) is None]
    if missing:
        raise ImportError(
            f"export to ONNX needs {' and '.join(missing)}: pip install 'tensorswitch[onnx]'"
        )
    rows = torch.export.Dim("rows", min=1, max=1 << 30)
    with evaluating(module), torch.no_grad(), _silent():
        options: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"], "verbose": False}
        options |= {"dynamo": True, "dynamic_shapes": ({0: rows},)}
        program = torch.onnx.export(module, args if isinstance(args, tuple) else (args,), **options)
    assert program is not None
    with replacing(path) as partial:
        partial.write_bytes(program.model_proto.SerializeToString())


@contextmanager
def _silent() -> Iterator[None]:
    """Silence the exporter's progress, and warnings of torch about its own internals."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        log.setLevel(level)
