import pytest
import torch
from threadpoolctl import threadpool_limits

# Checks that compare two computations, whose sums several threads take in another order.
EQUIVALENCES = (
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_sample_weight",
    "check_sample_weights",
)


@pytest.fixture
def threads(request):
    """Two threads, as on a user's machine, for scikit-learn's checks of equivalences."""
    if not any(name in request.node.name for name in EQUIVALENCES):
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with threadpool_limits(2):
        yield
    torch.set_num_threads(before)
