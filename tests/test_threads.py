import torch
from threadpoolctl import threadpool_info

from tensorswitch._threads import threads


def counts():
    blas = {lib["filepath"]: lib["num_threads"] for lib in threadpool_info()}
    return torch.get_num_threads(), blas


def test_threads_are_limited_and_restored():
    before = counts()
    with threads(1):
        limited = counts()
        assert limited[0] == 1
        blas = [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]
        assert set(blas) <= {1}
        with threads(2):
            assert torch.get_num_threads() == 2
        assert counts() == limited
    assert counts() == before
