"""The networks of the paper, scalar (SS) and tensor switching (TS), and their files."""

from tensorswitch.models._networks import KINDS as KINDS
from tensorswitch.models._networks import Network, cnn, load_model, mlp, save_model

__all__ = ["Network", "cnn", "load_model", "mlp", "save_model"]
