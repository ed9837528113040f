# SPDX-License-Identifier: BSD-3-Clause
"""Handles in forked processes, in callbacks of their own, and over files that misbehave."""
import fcntl
import io
import os
import signal
import threading

import numpy as np
import pytest

import kvarc

TENSORS = [kvarc.Tensor(0, "key", "f16", 4, 64, 0)]
ARRAY = np.random.default_rng(1).standard_normal((20000, 4, 64)).astype(np.float16)


def write(file, **options):
    with kvarc.Writer(file, [kvarc.Track()], TENSORS, **options) as w:
        w.append(0, [ARRAY])


@pytest.fixture
def path(tmp_path):
    write(tmp_path / "a.kva")
    return tmp_path / "a.kva"


def in_child(work):
    """Runs work() in a child, which must neither fail nor wait for ever."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(60)
            status = 0 if work() is None else 2
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


def whole(r):
    return np.array_equal(r.read()[0], ARRAY)


@pytest.mark.parametrize("threads", [1, 4])
def test_reader_of_a_parent(path, threads):
    r = kvarc.Reader(path, threads=threads)
    assert whole(r)
    held = [r]

    def read():
        assert whole(r)
        r.verify()
        r.close()

    def open_another():
        held[0] = kvarc.Reader(path, threads=threads)
        assert whole(held[0])

    in_child(read)
    in_child(open_another)
    in_child(r.__del__)
    assert whole(r)
    r.close()


@pytest.mark.parametrize("threads", [1, 4])
def test_writer_of_a_parent(tmp_path, threads):
    w = kvarc.Writer(tmp_path / "w", [kvarc.Track()], TENSORS, threads=threads)
    w.append(0, [ARRAY])

    def append():
        for call in (lambda: w.append(0, [ARRAY]), w.commit, w.checkpoint):
            with pytest.raises(kvarc.UsageError, match="forked"):
                call()
        w.close()

    in_child(append)
    in_child(w.close)
    in_child(w.abort)
    in_child(w.__del__)
    w.append(0, [ARRAY])
    w.close()
    with kvarc.Reader(tmp_path / "w") as r:
        assert r.tokens() == 2 * len(ARRAY)
        r.verify()


def test_fork_during_a_call(path):
    """Another thread forks, and the child closes what it does not use."""
    forked = []

    class File(io.FileIO):
        def readinto(self, buf):
            if armed and not forked:
                forked.append(True)
                thread = threading.Thread(target=in_child, args=(r.close,))
                thread.start()
                thread.join()
            return super().readinto(buf)

    armed = False
    r = kvarc.Reader(File(path), threads=4)
    armed = True
    assert whole(r) and forked


@pytest.mark.parametrize("call", ["close", "verify", "read", "plan"])
def test_reader_in_its_own_callback(path, call):
    class File(io.FileIO):
        def readinto(self, buf):
            if armed:
                getattr(r, call)()
            return super().readinto(buf)

    armed = False
    r = kvarc.Reader(File(path), threads=1)
    armed = True
    with pytest.raises(kvarc.Error) as e:
        r.read()
    assert isinstance(e.value.__cause__, kvarc.UsageError)
    armed = False
    r.close()
    with kvarc.Reader(path, threads=1, progress=lambda done, total: again.close()) as again, \
            pytest.raises(kvarc.Error) as e:
        again.verify()
    assert "another call" in str(e.value.__cause__)


def test_writer_in_its_own_callback():
    class File(io.BytesIO):
        def write(self, data):
            if armed:
                w.abort()
            return super().write(data)

    armed = False
    w = kvarc.Writer(File(), [kvarc.Track()], TENSORS, threads=1)
    armed = True
    with pytest.raises(kvarc.Error) as e:
        w.append(0, [ARRAY])
        w.commit()
    assert isinstance(e.value.__cause__, kvarc.UsageError)
    armed = False
    w.abort()


def test_closed_by_another_thread(path):
    at_work, closed = threading.Event(), threading.Event()

    def progress(done, total):
        at_work.set()
        closed.wait(60)

    r = kvarc.Reader(path, threads=1, progress=progress)
    thread = threading.Thread(target=r.verify)
    thread.start()
    at_work.wait(60)
    with pytest.raises(kvarc.UsageError):
        r.close()
    closed.set()
    thread.join()
    r.close()


class Raw(io.RawIOBase):
    """A raw file in memory, whose write() returns what `returns` makes of the data."""

    def __init__(self, returns):
        self.data, self.returns = bytearray(), returns

    def write(self, data):
        n = self.returns(len(data))
        self.data += bytes(data)[:max(n or 0, 0)]
        return n

    def tell(self):
        return 0


def test_a_raw_file_takes_parts(path):
    file = Raw(lambda n: max(1, n // 2))
    write(file)
    with kvarc.Reader(bytes(file.data)) as r:
        assert whole(r)


@pytest.mark.parametrize("returns", [lambda n: None, lambda n: 0, lambda n: -1, lambda n: n + 1])
def test_a_raw_file_that_does_not_take_all(returns):
    with pytest.raises(kvarc.InputOutputError) as e:
        write(Raw(returns))
    assert isinstance(e.value.__cause__, OSError)


def test_a_file_without_a_count():
    class Kept:
        def __init__(self):
            self.data = bytearray()

        def write(self, data):
            self.data += data

    file = Kept()
    write(file)
    with kvarc.Reader(bytes(file.data)) as r:
        assert whole(r)


def test_a_pipe_that_does_not_wait():
    r, w = os.pipe()
    fcntl.fcntl(w, fcntl.F_SETFL, fcntl.fcntl(w, fcntl.F_GETFL) | os.O_NONBLOCK)
    with io.open(w, "wb", buffering=0) as file, pytest.raises(kvarc.InputOutputError) as e:
        write(file)
    assert isinstance(e.value.__cause__, BlockingIOError)
    os.close(r)


def test_memory_of_callbacks_is_released(path):
    kept = []

    class Sink(io.BytesIO):
        def write(self, data):
            kept.append(data)
            return super().write(data)

    class Source(io.FileIO):
        def readinto(self, buf):
            kept.append(buf)
            return super().readinto(buf)

    write(Sink())
    with kvarc.Reader(Source(path)) as r:
        assert whole(r)
    assert kept
    for view in kept:
        with pytest.raises(ValueError, match="released"):
            view.tobytes()


@pytest.mark.parametrize("keep", [lambda data: data[1:],
                                  lambda data: np.frombuffer(data, np.uint8)])
def test_a_file_that_keeps_memory(keep):
    kept = []

    class Sink(io.BytesIO):
        def write(self, data):
            kept.append(keep(data))
            return len(data)

    with pytest.raises(kvarc.InputOutputError) as e:
        write(Sink())
    assert isinstance(e.value.__cause__, BufferError)
