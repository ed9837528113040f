# SPDX-License-Identifier: BSD-3-Clause
"""DLPack: memory of other libraries as address, shape and strides, and ours for them."""
from __future__ import annotations

import ctypes
import math
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, \
    c_uint64, c_void_p, py_object
from typing import Any, Dict, Optional, Sequence, Tuple

CPU, CUDA, CUDA_MANAGED = 1, 2, 13
# Codes and bits of elements by dtype of the format: the first pair is what we export; bits that
# have no type of their own come as unsigned numbers.
DTYPES = {"f32": ((2, 32),), "f16": ((2, 16),), "bf16": ((4, 16), (1, 16)), "i8": ((0, 8),),
          "u8": ((1, 8),), "bytes": ((1, 8),), "e4m3": ((10, 8), (1, 8)),
          "e5m2": ((12, 8), (1, 8))}
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool",
          10: "float8_e4m3fn", 12: "float8_e5m2"}
_READ_ONLY, _COPIED = 1, 2


class _Device(ctypes.Structure):
    _fields_ = [("type", c_int32), ("id", c_int32)]


class _Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device", _Device), ("ndim", c_int32), ("code", c_uint8),
                ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("context", c_void_p),
                ("deleter", c_void_p), ("flags", c_uint64), ("tensor", _Tensor)]


def _capsule(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_valid = _capsule("PyCapsule_IsValid", c_int, py_object, c_char_p)
_pointer = _capsule("PyCapsule_GetPointer", c_void_p, py_object, c_char_p)
_new = _capsule("PyCapsule_New", py_object, c_void_p, c_char_p, c_void_p)
# of a capsule that is being freed, which must not become an object again
_valid_raw = _capsule("PyCapsule_IsValid", c_int, c_void_p, c_char_p)
_pointer_raw = _capsule("PyCapsule_GetPointer", c_void_p, c_void_p, c_char_p)
_PLAIN, _WITH_VERSION = b"dltensor", b"dltensor_versioned"


def strides_of(shape: Sequence[int]) -> Tuple[int, ...]:
    """Of elements that follow each other."""
    return tuple(math.prod(shape[i + 1:]) for i in range(len(shape)))


class Taken:
    """Memory of another library, as long as this object is there.

    address: of the first element; strides: in elements; device: (type, number); writeable: it is
    the memory itself, and may be written."""

    def __init__(self, obj: Any, stream: Optional[int]) -> None:
        """stream: the number that producers are given; what they have queued is done, in its
        order, before what is queued there from now on. Raises TypeError for what has no DLPack."""
        if not hasattr(obj, "__dlpack__"):
            raise TypeError(f"{type(obj).__module__}.{type(obj).__name__} has no __dlpack__")
        try:
            self.capsule = obj.__dlpack__(stream=stream, max_version=(1, 0))
        except TypeError:  # of an older library, or of one without streams
            try:
                self.capsule = obj.__dlpack__(stream=stream)
            except TypeError:
                self.capsule = obj.__dlpack__()
        flags = 0
        if _valid(self.capsule, _WITH_VERSION):
            versioned = _Versioned.from_address(_pointer(self.capsule, _WITH_VERSION))
            if versioned.major > 1:
                raise TypeError(f"DLPack of version {versioned.major} is not known")
            flags, t = versioned.flags, versioned.tensor
        else:
            t = _Managed.from_address(_pointer(self.capsule, _PLAIN)).tensor
        self.address = (t.data or 0) + t.byte_offset
        self.device = t.device.type, t.device.id
        self.shape = tuple(t.shape[i] for i in range(t.ndim))
        self.strides = tuple(t.strides[i] for i in range(t.ndim)) if t.strides else \
            strides_of(self.shape)
        self.code, self.bits, self.lanes = t.code, t.bits, t.lanes
        self.writeable = not flags & (_READ_ONLY | _COPIED)

    @property
    def type_name(self) -> str:
        lanes = f"x{self.lanes}" if self.lanes != 1 else ""
        return f"{_CODES.get(self.code, f'type {self.code} of ')}{self.bits}{lanes}" \
            if self.code < 5 else _CODES.get(self.code, f"type {self.code}")

    def is_of(self, dtype: str) -> bool:
        """Whether elements are those of a dtype of the format, or its bits."""
        return self.lanes == 1 and (self.code, self.bits) in DTYPES[dtype]


# What was given and not yet freed: structs, and whose memory it is.
_given: Dict[int, Tuple[Any, ...]] = {}


@ctypes.CFUNCTYPE(None, c_void_p)
def _deleter(managed: int, given: Any = _given) -> None:
    given.pop(managed, None)  # also when the interpreter ends, and no global is left


@ctypes.PYFUNCTYPE(None, c_void_p)
def _destructor(capsule: int) -> None:
    """Of a capsule that nobody took over: its name is still the one that we gave it."""
    if _valid_raw(capsule, _PLAIN):
        _given.pop(_pointer_raw(capsule, _PLAIN), None)


def give(address: int, shape: Sequence[int], strides: Sequence[int], dtype: str,
         device: Tuple[int, int], owner: Any) -> Any:
    """A capsule for `from_dlpack`; owner stays until the other library is done with it."""
    managed = _Managed()
    t = managed.tensor
    shape_c = (c_int64 * len(shape))(*shape)
    strides_c = (c_int64 * len(shape))(*strides)
    t.data, t.ndim, t.byte_offset, t.lanes = address, len(shape), 0, 1
    t.device.type, t.device.id = device
    t.code, t.bits = DTYPES[dtype][0]
    t.shape, t.strides = shape_c, strides_c
    managed.deleter = ctypes.cast(_deleter, c_void_p)
    at = ctypes.addressof(managed)
    _given[at] = managed, shape_c, strides_c, owner
    return _new(at, _PLAIN, ctypes.cast(_destructor, c_void_p))
