"""Where the processes of a grid come from: how they are named, reached and started."""

from __future__ import annotations

import signal
import sys
import threading

import pytest

from fscil_bench.grids.workers import uninterrupted


@pytest.mark.skipif(sys.platform == "win32", reason="signals are not masked there")
def test_an_interrupt_while_workers_start_counts_once_they_have() -> None:
    done, masks = threading.Event(), []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def starting() -> None:
        done.wait()
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))

    thread = threading.Thread(target=starting)
    try:
        with pytest.raises(KeyboardInterrupt), uninterrupted():
            thread.start()
            signal.raise_signal(signal.SIGINT)
            done.set()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.is_set(), "the block was gone through"
    thread.join()
    assert signal.SIGINT in masks[0], "what the thread starts does not hear of it, later neither"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
