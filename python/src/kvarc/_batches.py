# SPDX-License-Identifier: BSD-3-Clause
"""Batches of blocks that threads work on, for adapters of engines."""
from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Callable, List, Set

_log = logging.getLogger("kvarc.blocks")


class Batches:
    """Threads that work on the blocks of batches, and a call when a batch is done. Nothing that a
    block raises passes: its result is `failed`."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(max(1, threads), "kvarc")
        self._lock = threading.Lock()
        self._running: Set[Future] = set()

    def submit(self, n: int, one: Callable[[int], Any], end: Callable[[List[Any]], None],
               failed: Any) -> None:
        """Calls one(i) for 0 <= i < n, and end(results) in the thread that is the last one, or at
        once for n = 0."""
        results: List[Any] = [failed] * n
        left = [n]

        def finish() -> None:
            try:
                end(results)
            except Exception:
                _log.exception("the end of a batch")

        def run(i: int) -> None:
            try:
                results[i] = one(i)
            except Exception:
                _log.exception("a block of a batch")
            with self._lock:
                left[0] -= 1
                last = left[0] == 0
            if last:
                finish()

        if n == 0:
            finish()
        for i in range(n):
            future = self._pool.submit(run, i)
            with self._lock:
                self._running.add(future)
            future.add_done_callback(self._done)

    def _done(self, future: Future) -> None:
        with self._lock:
            self._running.discard(future)

    def busy(self) -> bool:
        """Whether a block is not done yet."""
        with self._lock:
            return bool(self._running)

    def drain(self) -> None:
        """Waits for all that was submitted."""
        while True:
            with self._lock:
                running = set(self._running)
            if not running:
                return
            wait(running)

    def close(self) -> None:
        """Waits for all that was submitted, and ends the threads."""
        self._pool.shutdown(wait=True)
