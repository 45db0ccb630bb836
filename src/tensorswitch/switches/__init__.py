"""Switches, the rules that turn gate scores into routes, and the gates of deep networks.

    s = W x + b,        h_j = H(s_j)        for ReLU; the best of its pieces for maxout

A route states that a copy of input row ``source`` goes to unit ``j`` of output row ``target``.
With :class:`ReLU` and :class:`Maxout`, source and target are the same row; :class:`MaxPool2d`
copies the patch at the winning position of each window. A closed unit has no route, and a score of
NaN never opens a unit.
"""

from tensorswitch.switches._gates import combine_gates, deep_gates, draw_gates
from tensorswitch.switches._pooling import MaxPool2d
from tensorswitch.switches._routes import Routes
from tensorswitch.switches._switch import AllOpen, Maxout, ReLU, Switch
from tensorswitch.switches._switch import as_switch as as_switch
from tensorswitch.switches._switch import switch_name as switch_name

__all__ = [
    "AllOpen",
    "MaxPool2d",
    "Maxout",
    "ReLU",
    "Routes",
    "Switch",
    "combine_gates",
    "deep_gates",
    "draw_gates",
]
