"""The switched linear map, the one operation that everything else is made of.

    y_b = Σ_j h_bj V_jᵀ x_b          h_bj ∈ {0, 1},  V_j ∈ R^{in × out}

The expanded tensor ``Z = h ⊗ x`` is never built. Two strategies compute the same sum and its two
adjoints:

- *dense*: ``Z`` a few units at a time, small enough to stay in cache. It has the least overhead and
  is used for small sizes.
- *grouped by g*: units are taken g at a time. Among g units there are 2^g − 1 gate patterns that
  open anything, and all rows that show one pattern need the same matrix, the sum of the pattern's
  ``V_j``. Rows are sorted by pattern, every pattern costs one matrix product, and a row costs one
  product row per *group* instead of one per open unit. ``g = 1`` is the plain gather: each unit
  meets only the rows that open it. Larger g ("four Russians") pays once there are enough rows for
  each pattern.

:func:`choose_group` picks a strategy from the sizes and from how many gates are open.
"""

from tensorswitch.switched._cost import MAX_GROUP, choose_group
from tensorswitch.switched._operator import switched_linear, switched_outer

__all__ = ["MAX_GROUP", "choose_group", "switched_linear", "switched_outer"]
