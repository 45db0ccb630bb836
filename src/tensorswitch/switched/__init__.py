"""The switched linear map, the operation on which everything else is built.

    y_b = Σ_j h_bj V_jᵀ x_b          h_bj ∈ {0, 1},  V_j ∈ R^{in × out}

The expanded tensor ``Z = h ⊗ x`` is never stored as a whole, unless it is small: up to a few
million multiply-adds the formula itself, in plain torch operations, is fastest. Above, two
strategies compute the same sum and its two adjoints:

- *dense*: builds ``Z`` for a few units at a time, small enough to stay in cache.
- *grouped by g*: processes units g at a time. A group has 2^g − 1 gate patterns with an open gate,
  and all rows with the same pattern are multiplied by the same matrix, the sum of the ``V_j`` of
  the open units, so that a row is multiplied once per *group* instead of once per open unit.
  Groups of several units (the "method of four Russians") pay off once there are enough rows per
  pattern. Units that are open for most rows are processed where they are closed, and their part
  that is common to all rows is added.

A cost rule selects the strategy from the sizes and the fraction of open gates, so that
equal calls have equal results in every process. The choice is made inside the torch operators
``tensorswitch::switched_linear``, ``switched_outer`` and ``switched_gradients``: a compiled graph
has one node for each, whatever the gates are. Graphs for other runtimes (ONNX,
``torch.jit.trace``) get the plain formula.

On CUDA devices a Triton kernel multiplies tiles of ``x`` that are masked by their gates in
registers, without sorting, counting or waiting for the device; without Triton, and for float64, the
dense strategy is used. The kernels are tested in Triton's interpreter. Their speed has not been
measured by the developers; ``benchmarks/gpu.py`` does so where there is a GPU.

References
----------
Arlazarov, Dinic, Kronrod and Faradzev, On economical construction of the transitive closure of a
directed graph, Soviet Mathematics Doklady 11, 1970 (the method of four Russians).
"""

from tensorswitch.switched._cost import MAX_GROUP as MAX_GROUP
from tensorswitch.switched._cost import choose_group as choose_group
from tensorswitch.switched._operator import switched_linear, switched_outer

__all__ = ["switched_linear", "switched_outer"]
