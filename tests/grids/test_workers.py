"""Where the processes of a grid come from: how they are named, reached and started."""

from __future__ import annotations

import signal
import sys
import threading

import pytest

from fscil_bench.grids.workers import uninterrupted


@pytest.mark.skipif(sys.platform == "win32", reason="signals are not masked there")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_while_workers_start_counts_once_they_have(number: int) -> None:
    done, masks = threading.Event(), []
    before = signal.signal(number, signal.default_int_handler)

    def starting() -> None:
        done.wait()
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))

    thread = threading.Thread(target=starting)
    try:
        with pytest.raises(KeyboardInterrupt), uninterrupted():
            thread.start()
            signal.raise_signal(number)
            done.set()
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)
    assert done.is_set(), "the block was gone through"
    thread.join()
    assert signal.SIGINT in masks[0], "what the thread starts does not hear Ctrl-C, later neither"
    assert signal.SIGTERM not in masks[0], "but it can be ended"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
