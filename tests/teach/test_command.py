"""The command ``python -m apps.teach``: its options, its messages and its end."""

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")
ROOT = Path(__file__).parents[2]


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "apps.teach", "--no-browser", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def refusal(*arguments):
    with start(*arguments) as server:
        _, errors = server.communicate(timeout=120)
    assert server.returncode != 0
    assert "Traceback" not in errors
    return errors.strip().splitlines()[-1]


def test_an_unknown_lesson_is_refused(tmp_path):
    assert refusal("--start", "nothing", "--folder", tmp_path).startswith(
        "error: there is no lesson 'nothing' in "
    )
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_refused(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} cannot be used" in refusal("--port", port, "--folder", tmp_path)


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_what_is_no_port_is_refused(port):
    assert f"must be a number from 0 to 65535, got '{port}'" in refusal(f"--port={port}")


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_the_page_is_served_until_interrupted(tmp_path):
    server = start("--folder", tmp_path)
    try:
        address = re.search(r"http://127\.0\.0\.1:\d+/[0-9a-f]{32}/", server.stdout.readline())[0]
        with urllib.request.urlopen(address, timeout=30) as page:
            assert "tensorswitch" in page.read().decode()
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=60)
    finally:
        server.kill()
    assert "Traceback" not in errors
