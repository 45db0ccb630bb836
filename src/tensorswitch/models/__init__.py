"""The networks of the paper, scalar (SS) and tensor switching (TS), and their files."""

from tensorswitch.models.files import load_model, load_model_with_extra, save_model
from tensorswitch.models.networks import KINDS, Network, build, cnn, mlp

__all__ = [
    "KINDS",
    "Network",
    "build",
    "cnn",
    "load_model",
    "load_model_with_extra",
    "mlp",
    "save_model",
]
