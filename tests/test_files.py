import os
import resource
import signal
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest

from tensorswitch import _files
from tensorswitch._files import replacing, write_text
from tensorswitch.persistence import load, save
from tensorswitch.preprocessing import Scaling

posix = pytest.mark.skipif(os.name != "posix", reason="links, modes and limits of POSIX")


def leftovers(folder):
    return [p.name for p in folder.iterdir() if p.name.endswith(".part")]


def test_a_block_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(TypeError), replacing(path) as partial:
        partial.write_text(5)
    assert path.read_text() == "old"
    assert not leftovers(tmp_path)


@posix
def test_a_planted_link_is_not_followed(tmp_path, monkeypatch):
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    monkeypatch.setattr(_files.secrets, "token_hex", lambda _: "0")
    (tmp_path / f".a.txt.{_files._host()}-{os.getpid()}-0.part").symlink_to(precious)
    with pytest.raises(FileExistsError):
        write_text(tmp_path / "a.txt", "new")
    assert precious.read_text() == "keep me"


@posix
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_mode_follows_the_umask(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_text(tmp_path / "a.txt", "a")
        save(Scaling(), tmp_path / "a.safetensors")
    finally:
        os.umask(before)
    for name in ("a.txt", "a.safetensors"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode


@posix
def test_a_replaced_file_keeps_its_mode(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "secret")
    path.chmod(0o600)
    write_text(path, "more")
    assert path.read_text() == "more"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_threads_may_write_to_one_path(tmp_path):
    path, errors = tmp_path / "a.safetensors", []

    def work(value):
        try:
            for _ in range(40):
                save(Scaling("given", np.full(500, float(value))), path)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(np.unique(load(path).centre)) == 1
    assert not leftovers(tmp_path)


@posix
def test_what_a_killed_process_left_is_removed(tmp_path):
    path = tmp_path / "a.txt"
    code = (
        "import os, signal, sys; from tensorswitch._files import replacing\n"
        "with replacing(sys.argv[1]) as partial:\n"
        "    partial.with_name('.tmp1').touch()  # as safetensors does\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(leftovers(tmp_path)) == 1
    elsewhere = tmp_path / ".a.txt.another-1-0.part"
    elsewhere.touch()  # of another machine, which may still be writing
    write_text(path, "a")
    assert leftovers(tmp_path) == [elsewhere.name]


@posix
@pytest.mark.parametrize("name", ["a.txt", "a.safetensors"])
def test_a_full_disk_is_reported_with_the_file(tmp_path, name):
    path = tmp_path / name
    path.write_text("old")
    texts = {"a.txt": lambda path: write_text(path, "x" * 5000)}
    write = texts.get(name, lambda path: save(Scaling("given", np.ones(5000)), path))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        with pytest.raises(OSError, match=name):
            write(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert path.read_text() == "old"
    assert not leftovers(tmp_path)


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        (".", IsADirectoryError, "is a folder; name a file to write"),
        ("none/a.txt", FileNotFoundError, "the folder none does not exist"),
    ],
)
def test_wrong_paths_are_named(tmp_path, monkeypatch, path, error, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        write_text(path, "a")


@posix
def test_links_lead_to_the_file_that_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.txt").write_text("old")
    link = tmp_path / "link.txt"
    link.symlink_to("real/a.txt")
    write_text(link, "new")
    assert link.is_symlink()
    assert (tmp_path / "real" / "a.txt").read_text() == "new"
    assert not leftovers(tmp_path / "real")


@posix
def test_pipes_are_written_to(tmp_path):
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "hello")
    reader.join()
    assert received == ["hello"]
    assert pipe.is_fifo()


@posix
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1"])
@pytest.mark.parametrize("mode", ["a", "r+", "pipe"])
def test_standard_output_is_written_to(tmp_path, mode, name):
    write = f"from tensorswitch._files import write_text; write_text('{name}', 'hello')"
    code = f"print('first', flush=True); {write}; print(' last')"
    target = tmp_path / "out.txt"
    target.write_text("before ")
    with target.open(mode if mode != "pipe" else "a") as file:
        file.seek(0, os.SEEK_END)
        stdout = subprocess.PIPE if mode == "pipe" else file
        done = subprocess.run([sys.executable, "-c", code], stdout=stdout, check=True, text=True)
    found = f"before {done.stdout}" if mode == "pipe" else target.read_text()
    assert found == "before first\nhello last\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_devices_stay_devices():
    before = os.stat("/dev/null")
    write_text("/dev/null", "nothing")
    assert os.stat("/dev/null") == before
    with pytest.raises(OSError, match="No space left"):
        write_text("/dev/full", "nothing")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
