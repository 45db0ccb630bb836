"""Ctrl-C during an import waits for its end."""

import signal
import threading

import pytest

from tensorswitch._interrupts import deferring_interrupts


def test_the_interrupt_comes_at_the_end():
    done = []

    def work():
        with deferring_interrupts():
            signal.raise_signal(signal.SIGINT)
            done.append("import")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["import"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_nothing_is_deferred_without_one_or_in_another_thread():
    before = signal.getsignal(signal.SIGINT)
    with deferring_interrupts():
        pass
    inside = []

    def work():
        with deferring_interrupts():
            inside.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [before]


def test_errors_pass():
    with pytest.raises(ValueError, match="wrong"), deferring_interrupts():
        raise ValueError("wrong")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_does_not_swallow_the_interrupt():
    def work():
        with deferring_interrupts():
            signal.raise_signal(signal.SIGINT)
            raise ValueError("wrong")

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert isinstance(caught.value.__context__, ValueError)
