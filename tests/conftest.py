import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

from tensorswitch._process import bfloat16_problem

# `make test` uses the small profile, `make test-slow` the other one.
settings.register_profile("quick", max_examples=25, deadline=None, derandomize=True)
settings.register_profile("slow", max_examples=1000, deadline=None)
settings.load_profile("quick")

# A job that a shell runs in the background ignores SIGINT, and so would all processes it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture
def golden():
    """Read results of the paper's implementation: ``golden("a_ts1_ibp")`` is a dict of tensors."""

    def read(name):
        with np.load(GOLDEN / f"{name}.npz") as arrays:
            return {
                key: torch.from_numpy(arrays[key])
                for key in arrays.files
                if arrays[key].dtype.kind != "U"
            }

    return read


@pytest.fixture
def bfloat16():
    """Skip the test if products in bfloat16 do not work."""
    if (problem := bfloat16_problem()) is not None:
        pytest.skip(problem)


def naive_switched_linear(x, gates, weight):
    """The switched linear map in its simplest form: build Z, flatten, multiply."""
    z = gates.to(x.dtype)[:, :, None] * x[:, None, :]
    return z.flatten(1) @ weight.flatten(0, 1)


@pytest.fixture
def naive():
    return naive_switched_linear


@pytest.fixture
def browser(tmp_path):
    """A headless Chromium, driven by selenium."""
    webdriver = pytest.importorskip("selenium.webdriver")
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("needs chromium and chromedriver (Debian: chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    quiet = ("quic", "background-networking", "component-update", "sync", "gpu")
    for flag in (
        "headless",
        "no-sandbox",
        "no-first-run",
        f"user-data-dir={tmp_path / 'browser'}",
        *(f"disable-{q}" for q in quiet),
    ):
        options.add_argument(f"--{flag}")
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()
