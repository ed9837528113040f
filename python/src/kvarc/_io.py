# SPDX-License-Identifier: BSD-3-Clause
"""Sources and sinks of the C library on paths, buffers and file-like objects."""
from __future__ import annotations

import errno
import gc
import io
import operator
import os
import re
import sys
import tempfile
import threading
from contextlib import ExitStack, contextmanager
from typing import Any, Callable, Iterator, Optional, Tuple

from ._native import ffi, lib
from .errors import OptionsError, Trouble, UsageError, input_output

UNKNOWN = lib.KVARC_UNKNOWN
_URL = re.compile(r"(?!file://)([a-z0-9+.-]+::)*[a-z][a-z0-9+.-]*://")
# What exceptions without an errno mean: those of file systems of fsspec have none.
_ERRNO = ((FileNotFoundError, errno.ENOENT), (PermissionError, errno.EACCES),
          (IsADirectoryError, errno.EISDIR), (OSError, errno.EIO))
_MOST = 1 << 26  # bytes of one read of a file-like object


def is_path(obj: Any) -> bool:
    return isinstance(obj, (str, os.PathLike))


def base_name(obj: Any) -> str:
    """The last part of a path, "" of anything else."""
    return os.path.basename(os.fspath(obj)) if is_path(obj) else ""


def is_url(obj: Any) -> bool:
    """Whether this is a URL, which fsspec opens: "s3://bucket/x.kva", "simplecache::s3://..."."""
    return isinstance(obj, str) and _URL.match(obj) is not None


def _file_system(url: str) -> Tuple[Any, str]:
    """The file system of fsspec for a URL, and the path in it."""
    from ._options import shown
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise OptionsError(f"{shown(url)}: URLs need fsspec: pip install fsspec, and its package "
                           "for this protocol") from None
    try:
        return url_to_fs(url)
    except (ImportError, ValueError) as e:
        raise OptionsError(f"{shown(url)}: {e}") from e


@contextmanager
def _remote_errors(url: str) -> Iterator[None]:
    """What a file system of fsspec raises as an InputOutputError of the URL."""
    from ._options import shown
    try:
        yield
    except OSError as e:
        number = e.errno or next(n for kind, n in _ERRNO if isinstance(e, kind))
        text = e.strerror or (os.strerror(number) if number != errno.EIO else str(e))
        raise input_output(f"{shown(url)}: {text}", number, shown(url)) from e


def open_url(url: str) -> Any:
    """A file of fsspec to read."""
    system, path = _file_system(url)
    with _remote_errors(url):
        return system.open(path, "rb")


def remote_exists(url: str) -> bool:
    """Whether there is a file at a URL."""
    system, path = _file_system(url)
    with _remote_errors(url):
        return bool(system.exists(path))


def local_path(obj: Any) -> Any:
    """The path of a URL file://PATH; anything else as it is."""
    return obj[len("file://"):] if isinstance(obj, str) and obj.startswith("file://") else obj


class _Upload:
    """A temporary file that becomes the file at a URL when it is complete."""

    def __init__(self, url: str) -> None:
        self.url, (self.system, self.path) = url, _file_system(url)
        self.file = tempfile.NamedTemporaryFile(prefix="kvarc-")

    def end(self, complete: bool) -> None:
        """Uploads it where it is complete, and removes it here."""
        try:
            if complete:
                self.file.flush()
                with _remote_errors(self.url):
                    self.system.put_file(self.file.name, self.path)
        finally:
            self.file.close()


def is_buffer(obj: Any) -> bool:
    try:
        memoryview(obj).release()
    except TypeError:
        return False
    return True


class Handle:
    """What has a handle of the library, which is of this process alone."""

    def __reduce__(self) -> Any:
        raise TypeError(f"a kvarc.{type(self).__name__} cannot be pickled or copied: give the "
                        "path, and open it there")


class Calls:
    """The calls of a handle, of which one is at work at a time, in the process that opened it."""

    def __init__(self, what: str) -> None:
        self._what, self._process = what, os.getpid()
        self._lock = threading.Lock()

    @property
    def inherited(self) -> bool:
        """Whether this is a child of that process. Who held the lock is not in it."""
        return self._process != os.getpid()

    @contextmanager
    def one(self) -> Iterator[None]:
        """While a call, or close, is at work. UsageError: another one is, which may have called
        back; nothing was done."""
        if self.inherited:
            yield
            return
        if not self._lock.acquire(False):
            raise UsageError(f"another call of this {self._what} is at work")
        try:
            yield
        finally:
            self._lock.release()


class _Bytes:
    """Bytes in memory, which readers take without a copy."""

    def __init__(self, data: Any) -> None:
        self.view = memoryview(data).cast("B")

    def read_into(self, buf: memoryview, offset: int) -> int:
        part = self.view[offset:offset + len(buf)]
        buf[:len(part)] = part
        return len(part)


class _File:
    """A file-like object that can seek; one thread reads at a time."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.lock = threading.Lock()
        self.size = file.seek(0, os.SEEK_END)
        if self.size is None:
            self.size = file.tell()
        self.into = hasattr(file, "readinto")
        fs = getattr(file, "fs", None)
        self.cat: Any = getattr(fs, "cat_ranges", None) if hasattr(file, "path") else None

    def read_into(self, buf: memoryview, offset: int) -> int:
        with self.lock:
            self.file.seek(offset)
            if self.into:
                return operator.index(self.file.readinto(buf) or 0)
            data = self.file.read(len(buf))
        buf[:len(data)] = data
        return len(data)

    def read_ranges(self, ranges: list) -> None:
        """All of (offset, memoryview) in one request, where the file system has that."""
        starts = [offset for offset, _ in ranges]
        ends = [offset + len(buf) for offset, buf in ranges]
        parts = self.cat([self.file.path] * len(ranges), starts, ends)
        for (_, buf), part in zip(ranges, parts):
            if isinstance(part, Exception):
                raise part
            if len(part) != len(buf):
                raise EOFError("the file has become shorter")
            buf[:] = part


class FileSource:
    """A kvarc_source. obj: a path, bytes or another buffer, or a binary file-like object (of a
    pipe all is read into memory first). `c` lives until close."""

    def __init__(self, obj: Any, trouble: Trouble) -> None:
        self.c = ffi.new("kvarc_source *")
        self.trouble = trouble
        self.opened = False
        self.of: Any = None
        self.pin: Any = None
        self.remote: Any = None
        obj = local_path(obj)
        if is_url(obj):
            obj = self.remote = open_url(obj)
        if is_path(obj):
            common = ffi.new("kvarc_common *", {"error": trouble.c})
            trouble.check(lib.kvarc_source_open_path(self.c, os.fsencode(obj), common),
                          os.fsdecode(obj), path=True)
            self.opened = True
            return
        if not is_buffer(obj):
            if not hasattr(obj, "read"):
                raise TypeError(f"a path, bytes or a binary file is needed, not {type(obj)}")
            seekable = getattr(obj, "seekable", None)
            if isinstance(obj, io.TextIOBase):
                raise TypeError("a binary file is needed, not one of text")
            if seekable is not None and not seekable():
                obj = obj.read()
        self.handle = ffi.new_handle(self)
        self.c.opaque = self.handle
        self.c.read = lib.kvpy_read
        if is_buffer(obj):
            self.of = _Bytes(obj)
            self.c.size = self.of.view.nbytes
            if self.of.view.nbytes:
                self.pin = ffi.from_buffer(self.of.view)
                self.c.memory = self.pin
        else:
            self.of = _File(obj)
            self.c.size = self.of.size
            if self.of.cat:
                self.c.read_ranges = lib.kvpy_read_ranges

    def close(self) -> None:
        if self.opened:
            lib.kvarc_source_close(self.c)
            self.opened = False
        if self.pin is not None:
            ffi.release(self.pin)
            self.pin = None
        if isinstance(self.of, _Bytes):
            self.of.view.release()
        self.of = None
        remote, self.remote = self.remote, None
        if remote is not None:
            remote.close()


class FileSink:
    """A kvarc_sink. obj: a path, which is made or emptied (keep=True: kept, for an append), or a
    binary file-like object that is written forward from its position on."""

    def __init__(self, obj: Any, trouble: Trouble, *, keep: bool = False,
                 overwrite: bool = True, sync: bool = True) -> None:
        self.c = ffi.new("kvarc_sink *")
        self.trouble = trouble
        self.opened = False
        self.complete = False  # of a URL: close() uploads what was written
        self.remote: Optional[_Upload] = None
        obj = local_path(obj)
        if is_url(obj):
            if keep:
                raise ValueError(f"{obj}: an archive at a URL cannot be continued")
            self.remote = _Upload(obj)
            obj = self.remote.file
        self.path = obj if is_path(obj) else None
        self.end = 0  # of what was written, in a file-like object
        if is_path(obj):
            flags = lib.KVARC_SINK_KEEP if keep else \
                lib.KVARC_SINK_TRUNCATE if overwrite else 0
            common = ffi.new("kvarc_common *", {"error": trouble.c})
            trouble.check(lib.kvarc_sink_open_path(self.c, os.fsencode(obj), flags, common),
                          os.fsdecode(obj), path=True)
            self.opened = True
            if not sync:
                self.c.flush = ffi.NULL
            return
        if not hasattr(obj, "write") or isinstance(obj, io.TextIOBase):
            raise TypeError(f"a path or a binary file is needed, not {type(obj)}")
        self.file = obj
        self.begin = 0
        self.at = 0
        self.handle = ffi.new_handle(self)
        self.c.opaque = self.handle
        self.c.write = lib.kvpy_write
        self.c.flush = lib.kvpy_flush
        if keep:
            self.c.truncate = lib.kvpy_truncate
            self.at = -1
        else:
            try:
                self.begin = obj.tell()
            except (OSError, AttributeError):
                self.begin = 0

    def write(self, data: memoryview, offset: int) -> None:
        if offset != self.at:
            self.file.seek(self.begin + offset)
        done = 0
        while done < len(data):
            with data[done:] as left:
                done += self._accepted(self.file.write(left), len(left))
        self.at = offset + len(data)
        self.end = max(self.end, self.at)

    def _accepted(self, n: Any, most: int) -> int:
        """Bytes that a write() has taken, by what it returned. A raw file may take a part."""
        if n is None and not isinstance(self.file, io.RawIOBase):
            return most
        if n is None:
            raise BlockingIOError(errno.EAGAIN, "the file does not wait until it can be written "
                                  "to: make it blocking")
        n = operator.index(n)
        if not 0 < n <= most:
            raise OSError(errno.EIO, f"write() of the file returned {n} for {most} bytes")
        return n

    def size(self) -> int:
        """Bytes of what was written."""
        return os.path.getsize(self.path) if self.path is not None else self.end

    def flush(self) -> None:
        flush = getattr(self.file, "flush", None)
        if flush:
            flush()

    def truncate(self, size: int) -> None:
        self.file.truncate(self.begin + size)
        self.at = -1

    def close(self) -> None:
        if self.opened:
            self.opened = False
            self.trouble.check(lib.kvarc_sink_close(self.c, self.trouble.c))
        remote, self.remote = self.remote, None
        if remote is not None:
            remote.end(self.complete)


class MemorySinks:
    """Sinks on bytearrays, for the files that an archive restores."""

    class One:
        def __init__(self, trouble: Trouble, size: int) -> None:
            self.trouble = trouble
            self.data = bytearray(size)
            self.handle = ffi.new_handle(self)

        def write(self, data: memoryview, offset: int) -> None:
            self.data[offset:offset + len(data)] = data

        def flush(self) -> None:
            pass

    def __init__(self, trouble: Trouble, want: Optional[Callable[[str], bool]] = None) -> None:
        self.trouble = trouble
        self.want = want
        self.items: list = []  # (name, One)
        self.handle = ffi.new_handle(self)

    def open(self, item: Any, sink: Any) -> int:
        name = ffi.string(item.name).decode("utf-8", "replace")
        if self.want is not None and not self.want(name):
            return 1
        one = self.One(self.trouble, item.bytes)
        self.items.append((name, one))
        sink.opaque = one.handle
        sink.write = lib.kvpy_write
        sink.flush = lib.kvpy_flush
        return 0


class Progress:
    """Progress of a handle. callback(done, total): bytes, total None where it is not known; a
    true return value stops the call. callback True: a bar of tqdm."""

    def __init__(self, callback: Any, trouble: Trouble) -> None:
        self.trouble = trouble
        self.bar: Any = None
        if callback is True:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                callback = None
            else:
                self.bar = tqdm(unit="B", unit_scale=True)
                callback = self._step
        self.callback = callback
        self.handle = ffi.new_handle(self)

    def _step(self, done: int, total: Optional[int]) -> None:
        self.bar.total = total
        self.bar.update(done - self.bar.n)

    def set(self, common: Any) -> None:
        if self.callback is not None:
            common.progress = lib.kvpy_progress
            common.progress_opaque = self.handle

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def _guard(failed: int) -> Callable:
    """A callback of C: what it raises goes to the Trouble of its object."""
    def wrap(function: Callable) -> Callable:
        def call(opaque: Any, *arguments: Any) -> int:
            owner = ffi.from_handle(opaque)
            try:
                return function(owner, *arguments)
            except BaseException as e:  # nothing may pass through C
                owner.trouble.failed(e)
                return failed
        return call
    return wrap


def callback(name: str, failed: int = 1) -> Callable:
    """Decorator of the Python side of a callback, whose first argument is its object."""
    def wrap(function: Callable) -> Callable:
        return ffi.def_extern(name=name, error=failed)(_guard(failed)(function))
    return wrap


@contextmanager
def _memory(buf: Any, n: int) -> Iterator[memoryview]:
    """Memory of the library, for the time of a callback. BufferError: somebody keeps a part."""
    whole = ffi.buffer(buf, n)
    unused = sys.getrefcount(whole)
    with memoryview(whole) as memory:
        yield memory
    if sys.getrefcount(whole) > unused:
        gc.collect()
        if sys.getrefcount(whole) > unused:
            raise BufferError("the file keeps memory that was lent to it for one call")


@callback("kvpy_read", -1)
def _read(source: Any, buf: Any, n: int, offset: int) -> int:
    with _memory(buf, min(n, _MOST)) as memory:
        return source.of.read_into(memory, offset)


@callback("kvpy_read_ranges")
def _read_ranges(source: Any, ranges: Any, n: int) -> int:
    with ExitStack() as stack:
        source.of.read_ranges([
            (ranges[i].offset, stack.enter_context(_memory(ranges[i].buf, ranges[i].bytes)))
            for i in range(n)])
    return 0


@callback("kvpy_write")
def _write(sink: Any, buf: Any, n: int, offset: int) -> int:
    with _memory(buf, n) as memory:
        sink.write(memory, offset)
    return 0


@callback("kvpy_flush")
def _flush(sink: Any) -> int:
    sink.flush()
    return 0


@callback("kvpy_truncate")
def _truncate(sink: Any, size: int) -> int:
    sink.truncate(size)
    return 0


@callback("kvpy_progress")
def _progress(progress: Any, done: int, total: int) -> int:
    return 1 if progress.callback(done, None if total == UNKNOWN else total) else 0


@callback("kvpy_item_open", 2)
def _item_open(sinks: Any, item: Any, sink: Any) -> int:
    return sinks.open(item, sink)
