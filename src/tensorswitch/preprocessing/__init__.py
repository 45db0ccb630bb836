"""Scaling of columns and principal components: fitted once, and the same everywhere.

    x ↦ ((x − centre) · factor − mean) B

Rows may be dense or sparse and weighted; what is fitted does not depend on their order, and a
weight of two is a repeated row.
"""

from tensorswitch.preprocessing._columns import ColumnMap as ColumnMap
from tensorswitch.preprocessing._components import PrincipalComponents
from tensorswitch.preprocessing._moments import column_moments as column_moments
from tensorswitch.preprocessing._moments import dense_blocks as dense_blocks
from tensorswitch.preprocessing._scaling import Scaling

__all__ = ["PrincipalComponents", "Scaling"]
