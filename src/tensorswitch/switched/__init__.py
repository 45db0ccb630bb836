"""The switched linear map, the operation on which everything else is built.

    y_b = Σ_j h_bj V_jᵀ x_b          h_bj ∈ {0, 1},  V_j ∈ R^{in × out}

The expanded tensor ``Z = h ⊗ x`` is never built. Two strategies compute the same sum and its two
adjoints:

- *dense*: builds ``Z`` for a few units at a time, small enough to stay in cache. It has the least
  overhead and is used for small sizes.
- *grouped by g*: processes units g at a time. A group has 2^g − 1 gate patterns with an open gate,
  and all rows with the same pattern are multiplied by the same matrix, the sum of the ``V_j`` of
  the open units. Rows are sorted by pattern and each pattern takes one matrix product, so that a
  row is multiplied once per *group* instead of once per open unit. With ``g = 1`` each unit is
  multiplied by the rows that open it. Larger groups (the "method of four Russians") pay off once
  there are enough rows per pattern.

:func:`choose_group` selects a strategy from the sizes and the fraction of open gates.

References
----------
Tsai, Saxe and Cox, Tensor Switching Networks, arXiv:1610.10087, Sec. 2 and 4.3.

Arlazarov, Dinic, Kronrod and Faradzev, On economical construction of the transitive closure of a
directed graph, Soviet Mathematics Doklady 11, 1970 (the method of four Russians).
"""

from tensorswitch.switched._choice import strategy_by, strategy_method
from tensorswitch.switched._cost import MAX_GROUP, choose_group
from tensorswitch.switched._operator import switched_linear, switched_outer

__all__ = [
    "MAX_GROUP",
    "choose_group",
    "strategy_by",
    "strategy_method",
    "switched_linear",
    "switched_outer",
]
