"""The networks of the paper (Sec. 5), scalar (SS) and tensor switching (TS), and their files.

``"ss"``
    ReLU layers ``x_l = max(0, W_l x_{l-1})`` with a linear readout.
``"ts-lrc"``
    :class:`~tensorswitch.SwitchedLinear` layers with fixed gates (linear rotation-compression,
    Sec. 4.3). The last one is the readout.
``"ts-ibp-lrc"``
    The same, with gates trained by inverted backpropagation (Sec. 4.2).
``"ts-ibp"``
    The uncompressed deep network, :class:`~tensorswitch.TensorSwitching` (Eq. 3).
``"ss+ts"``
    :class:`~tensorswitch.JointSwitching` layers, whose units have an SS and a TS readout. It is not
    in the paper: gates learn by backpropagation through the SS part.
"""

from tensorswitch.models._networks import KINDS as KINDS
from tensorswitch.models._networks import Network, cnn, load_model, mlp, save_model

__all__ = ["Network", "cnn", "load_model", "mlp", "save_model"]
