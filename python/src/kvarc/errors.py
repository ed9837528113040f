# SPDX-License-Identifier: BSD-3-Clause
"""Exceptions, one for each return code of the C library."""
from __future__ import annotations

import errno as _errno
import os as _os
import re as _re
from typing import Any, Optional, Tuple, Union as _Union

from ._native import ffi, lib

__all__ = ["Error", "OutOfMemoryError", "MemLimitError", "FormatError", "OptionsError",
           "DamagedError", "GeometryError", "PredictorError", "AuthError", "InputOutputError",
           "UsageError", "LossyError", "StoreError", "NotFoundError"]

_UNKNOWN = lib.KVARC_UNKNOWN


class Error(Exception):
    """What went wrong, as the library says it: the base of all exceptions of this package.

    offset: bytes from the start of the archive, frame: sequence number, track and layer: where
    the fault lies; None where that is not known. tensor, tokens: of DamagedError the index of the
    tensor, and a range of its tokens; of GeometryError tokens is the number that the track has.
    name, digest: of the profile, model or segment that is needed. bytes_needed: of MemLimitError,
    a limit that would have sufficed.
    """

    code = 0
    offset: Optional[int] = None
    frame: Optional[int] = None
    track: Optional[int] = None
    layer: Optional[int] = None
    tensor: Optional[int] = None
    tokens: _Union[None, int, range] = None
    bytes_needed = 0
    name = ""
    digest = b""


class OutOfMemoryError(Error, MemoryError):
    """An allocation failed."""

    code = lib.KVARC_MEM


class MemLimitError(Error, MemoryError):
    """More memory than `memlimit` allows is needed: use a larger limit, or read less at once."""

    code = lib.KVARC_MEMLIMIT


class FormatError(Error, ValueError):
    """This is not an archive (or not a profile)."""

    code = lib.KVARC_FORMAT


class OptionsError(Error, ValueError):
    """Valid, but too new, not built in, or not with this kind of file."""

    code = lib.KVARC_OPTIONS


class DamagedError(Error):
    """The archive is damaged; nothing of the damaged part was handed out."""

    code = lib.KVARC_DATA


class GeometryError(Error, ValueError):
    """The archive is fine; the arrays, layers or tokens that were given do not fit it."""

    code = lib.KVARC_GEOMETRY


class PredictorError(Error):
    """A profile or model that the archive needs is missing, or is another one."""

    code = lib.KVARC_PREDICTOR


class AuthError(Error):
    """The archive is encrypted, and no key that was given opens it."""

    code = lib.KVARC_AUTH


class InputOutputError(Error, OSError):
    """Reading or writing failed; `__cause__` is the exception of a file-like object. errno,
    strerror and filename are set where they are known, and it is a FileNotFoundError,
    PermissionError and so on, too, where that fits."""

    code = lib.KVARC_IO

    __str__ = Exception.__str__

    def __reduce__(self) -> Tuple[Any, ...]:  # its class may be made of two
        return input_output, (str(self), self.errno or 0, self.filename), self.__dict__


class UsageError(Error, ValueError):
    """A call that the library does not allow here; nothing was done."""

    code = lib.KVARC_PROG


class LossyError(Error):
    """A lossy tier has changed what was asked for: read with allow_lossy=True if that will do."""

    code = lib.KVARC_LOSSY


class StoreError(Error):
    """What was asked for lies in a store, which is not here or does not have it."""

    code = lib.KVARC_STORE


class NotFoundError(Error, KeyError):
    """There is no such session, version or checkpoint."""

    code = lib.KVARC_END

    __str__ = Exception.__str__


_TEXTS = {_os.strerror(n): n for n in sorted(_errno.errorcode, reverse=True)}


def input_output(text: str, errno: int, filename: Optional[str] = None) -> InputOutputError:
    """An InputOutputError of an errno, 0: not known."""
    named = type(OSError(errno, "")) if errno else OSError
    kind = InputOutputError if named is OSError else \
        type("InputOutputError", (InputOutputError, named), {"__module__": __name__})
    e = kind(text)
    if errno:
        e.errno, e.strerror = errno, _os.strerror(errno)
    if filename:
        e.filename = filename
    return e


def of_os_error(e: OSError) -> InputOutputError:
    """An exception of the operating system as one of this package."""
    name = None if e.filename is None else _os.fsdecode(e.filename)
    text = e.strerror or str(e)
    return input_output(f"{name}: {text}" if name else text, e.errno or 0, name)


def _errno_of(text: str, cause: Optional[BaseException]) -> int:
    """The errno of a failure that the library has put into words, 0: it is not known."""
    if isinstance(cause, OSError) and cause.errno:
        return cause.errno
    return next((n for words, n in _TEXTS.items() if words in text), 0)


_CLASSES = {c.code: c for c in list(globals().values())
            if isinstance(c, type) and issubclass(c, Error) and c is not Error}


def _known(value: int) -> Optional[int]:
    return None if value in (_UNKNOWN, 0xFFFFFFFF) else value


class Trouble:
    """The kvarc_error of a handle, and what callbacks of the handle have raised."""

    def __init__(self) -> None:
        self.c = ffi.new("kvarc_error *")
        self.raised: Optional[BaseException] = None

    def failed(self, exception: BaseException) -> None:
        """A callback has raised this: the call that it belongs to returns IO."""
        if self.raised is None:
            self.raised = exception
        ffi.errno = exception.errno if isinstance(exception, OSError) and exception.errno \
            else _errno.EIO

    def exception(self, ret: int, what: str = "", cause: Optional[BaseException] = None, *,
                  path: bool = False) -> Error:
        """The exception of a return code. what: a name, or path (path=True); cause: what a
        callback raised."""
        c = self.c
        filled = c.code == ret
        text = ffi.string(c.text).decode("utf-8", "replace") if filled else ""
        if not text:
            text = ffi.string(lib.kvarc_strerror(ret)).decode()
            if ret == lib.KVARC_IO and ffi.errno:
                text = _os.strerror(ffi.errno)
        if filled and c.reason == lib.KVARC_REASON_PROFILE_NEEDED:
            text += "; give it with profiles=[FILE], or install it with 'kvarc profiles install'"
        if ret == lib.KVARC_MEMLIMIT and filled and c.bytes_needed:
            text = _re.sub(r"(, \d+ MiB or more)?[:;] raise (the limit|it)$", "", text) + \
                f": memlimit={c.bytes_needed} or more"
        # names of functions of C say nothing here, and one name of a file is enough
        text = _re.sub(r"^kvarc_[a-z_0-9]+: ", "", text)
        named = not what or text.startswith(what) or path and what in text
        text = text if named else f"{what}: {text}"
        if ret == lib.KVARC_IO:
            e: Error = input_output(text, _errno_of(text, cause), what if path else "")
        else:
            e = _CLASSES.get(ret, Error)(text)
        e.code = ret
        if filled:
            e.offset, e.frame = _known(c.offset), _known(c.frame)
            e.track, e.layer, e.tokens = _known(c.track), _known(c.layer), _known(c.tokens)
            e.bytes_needed = c.bytes_needed
            e.name = ffi.string(c.name).decode("utf-8", "replace")
            e.digest = bytes(ffi.buffer(c.digest))
        return e

    def check(self, ret: int, what: str = "", *, path: bool = False) -> None:
        """Raises unless ret is OK; what, path as of exception."""
        if ret == lib.KVARC_OK:
            self.raised = None
            return
        cause, self.raised = self.raised, None
        if cause is not None and not isinstance(cause, Exception):
            raise cause
        raise self.exception(ret, what, cause, path=path) from cause
