# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of numpy, torch and others as memory of the C library, without copies."""
from __future__ import annotations

import ctypes
from typing import Any, Optional, Tuple

import numpy as np

from ._native import ffi, lib
from .errors import OptionsError


class Numbers(dict):  # type: ignore[type-arg]
    """Numbers by name. A name "unknown-70" is the number 70 of a later version of the format."""

    def __missing__(self, name: str) -> int:
        if not name.startswith("unknown-"):
            raise KeyError(name)
        return int(name[len("unknown-"):])


class Names(dict):  # type: ignore[type-arg]
    """Names by number; what Numbers reads."""

    def __missing__(self, number: int) -> str:
        return f"unknown-{number}"


class Bits(dict):  # type: ignore[type-arg]
    """numpy dtypes by name; unsigned numbers for dtypes of later versions."""

    def __missing__(self, name: str) -> Any:
        return np.dtype(f"u{lib.kvarc_dtype_bytes(CODES[name])}")


# dtype names of the format, and the numpy dtype of their bits.
BITS = Bits({"bytes": np.uint8, "f32": np.float32, "f16": np.float16, "bf16": np.uint16,
             "e4m3": np.uint8, "e5m2": np.uint8, "i8": np.int8, "u8": np.uint8})
CODES = Numbers({"bytes": lib.KVARC_BYTES, "f32": lib.KVARC_F32, "f16": lib.KVARC_F16,
                 "bf16": lib.KVARC_BF16, "e4m3": lib.KVARC_E4M3, "e5m2": lib.KVARC_E5M2,
                 "i8": lib.KVARC_I8, "u8": lib.KVARC_U8})
NAMES = Names({code: name for name, code in CODES.items()})
_BY_NUMPY = {"float32": "f32", "float16": "f16", "int8": "i8", "uint8": "u8",
             "bfloat16": "bf16", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
_TORCH_VIEWS = {"torch.bfloat16": ("bf16", "int16", np.uint16),
                "torch.float8_e4m3fn": ("e4m3", "uint8", np.uint8),
                "torch.float8_e5m2": ("e5m2", "uint8", np.uint8)}
TORCH = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "u8": "uint8",
         "bytes": "uint8", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
_FLOATS = ("f32", "f16", "bf16", "e4m3", "e5m2")  # whose arrays say themselves what they are
_ML_DTYPES = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def is_torch(obj: Any) -> bool:
    return type(obj).__module__.split(".")[0] == "torch" and hasattr(obj, "detach")


def is_cpu(device: Any) -> bool:
    """Whether this is "cpu", or a torch.device of it."""
    return (device if isinstance(device, str) else getattr(device, "type", None)) == "cpu"


def torch_device(device: Any, raw: bool, like: Optional[str], gpu: bool = False) -> Any:
    """The torch.device where the host makes tensors; None: it makes arrays of numpy, or a GPU
    decodes. gpu: that also makes them for a GPU."""
    name = device if isinstance(device, str) else getattr(device, "type", "")
    on_host = device is None or is_cpu(device)
    if like not in (None, "numpy", "torch"):
        raise ValueError(f'like: "numpy" or "torch" is needed, not {like!r}')
    if raw and like == "torch":
        raise ValueError('raw: bits as numbers are arrays of numpy: like="torch" goes without it')
    if like == "numpy" and not on_host:
        raise ValueError(f"like: arrays of numpy are not on {device}")
    if raw and on_host or like != "torch" and device is None or like == "numpy":
        return None
    try:
        import torch
    except ImportError:
        if like is None and on_host:
            return None
        if like is None:
            return None  # Device says what is missing
        raise OptionsError('like="torch": torch is not installed') from None
    if device is None:
        return torch.device("cpu")
    is_gpu = isinstance(device, int) or hasattr(device, "ordinal") or name.startswith("cuda")
    if is_gpu:
        number = getattr(device, "ordinal", device)
        return torch.device(f"cuda:{number}" if isinstance(number, int) else number) if gpu \
            else None
    try:
        return torch.device(device)
    except RuntimeError as e:
        raise ValueError(f"device: {device!r} is no device of torch") from e


def to_torch(array: np.ndarray, name: str, device: Any = None) -> Any:
    """Bits as a tensor of the dtype of the format, which shares their memory on the CPU; of the
    dtype of the array where the format has none, and the array itself where torch has none."""
    import torch
    dtype = TORCH.get(name)
    wanted = None if dtype is None else getattr(torch, dtype)
    bits = array.view(np.int16) if wanted is not None and array.dtype == np.uint16 else array
    if not bits.flags.writeable:
        bits = bits.copy()
    try:
        tensor = torch.from_numpy(bits)
    except TypeError:
        return array
    if wanted is not None and tensor.dtype != wanted:
        tensor = tensor.view(wanted)
    return tensor if device is None else tensor.to(device)


def is_on_device(obj: Any) -> bool:
    """Whether this is a DeviceArray."""
    return getattr(obj, "is_on_device", False) is True


def _of_torch(tensor: Any) -> Tuple[np.ndarray, Optional[str]]:
    import torch
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    known = _TORCH_VIEWS.get(str(tensor.dtype))
    if known is None:
        return tensor.numpy(), None
    name, bits, view = known
    return tensor.view(getattr(torch, bits)).numpy().view(view), name


def _of_other(obj: Any) -> Tuple[np.ndarray, Optional[str]]:
    """An array of numpy, of what numpy takes itself, or of a library that has DLPack."""
    if hasattr(obj, "__array__") or not hasattr(obj, "__dlpack__"):
        try:
            return np.asarray(obj), None
        except (ValueError, BufferError, RuntimeError):  # mlx: its buffers of bf16 are not numpy's
            if not hasattr(obj, "__dlpack__"):
                raise
    return _of_dlpack(obj)


def _of_dlpack(obj: Any) -> Tuple[np.ndarray, Optional[str]]:
    """Memory of the CPU of a library that has DLPack: of bf16 and 8-bit floats, which numpy has
    not, the bits."""
    from . import _dlpack
    taken = _dlpack.Taken(obj, None)
    name = next((n for n in _ML_DTYPES if (taken.code, taken.bits) == _dlpack.DTYPES[n][0]), None)
    if name is None or taken.device[0] != _dlpack.CPU or taken.lanes != 1 or \
            any(s < 0 for s in taken.strides):
        return np.from_dlpack(obj), None
    kind = np.dtype(BITS[name])
    strides = tuple(s * kind.itemsize for s in taken.strides)
    n = sum((length - 1) * s for length, s in zip(taken.shape, strides)) + kind.itemsize \
        if 0 not in taken.shape else 0
    memory: Any = (ctypes.c_char * n).from_address(taken.address)
    memory.owner = taken
    array = np.ndarray(taken.shape, kind, memory, 0, strides) if n else np.empty(taken.shape, kind)
    array.flags.writeable = taken.writeable
    return array, name


def as_bits(obj: Any, dtype: Optional[str] = None) -> Tuple[np.ndarray, str]:
    """An array as (bits, name of the dtype in the format), no copy where its memory can be
    used as it is: numpy, torch (of the CPU), anything with the buffer protocol or DLPack.
    dtype names what the bits are where the array's own dtype does not say it ("bf16" for
    uint16). Raises TypeError for dtypes that caches do not have. A DeviceArray, which save() makes
    with device= alone, stays one."""
    if is_on_device(obj):
        if dtype not in (None, obj.dtype):
            raise TypeError(f"elements of {obj.dtype} are not {dtype}")
        return obj, obj.dtype
    if is_torch(obj):
        array, name = _of_torch(obj)
    else:
        array, name = _of_other(obj)
    if not array.dtype.isnative:
        raise TypeError(f"arrays of the other byte order ({array.dtype.str}) are not taken")
    name = name or _BY_NUMPY.get(array.dtype.name)
    if dtype is not None:
        if dtype not in BITS:
            raise TypeError(f"dtype {dtype!r} is not known: one of {', '.join(BITS)}")
        if np.dtype(BITS[dtype]).itemsize != array.dtype.itemsize or \
                dtype != "bytes" and name in _FLOATS and dtype != name:
            raise TypeError(f"elements of {array.dtype} are not {dtype}")
        name = dtype
    if name is None:
        raise TypeError(f"arrays of {array.dtype} need dtype=, one of {', '.join(BITS)}")
    if array.dtype != BITS[name]:
        array = array.view(BITS[name])
    return array, name


def has_ml_dtypes() -> bool:
    try:
        import ml_dtypes  # noqa: F401
    except ImportError:
        return False
    return True


def from_bits(array: np.ndarray, name: str, raw: bool = False) -> np.ndarray:
    """Bits as an array of the dtype: bf16 and 8-bit floats are those of ml_dtypes where it is
    installed, else (or with raw) uint16 and uint8."""
    if raw or name not in _ML_DTYPES or not has_ml_dtypes():
        return array
    import ml_dtypes
    return array.view(getattr(ml_dtypes, _ML_DTYPES[name]))


def fits(array: np.ndarray) -> bool:
    """Whether a view of the library can describe it: along each axis, from the one with the
    shortest steps on, a step goes past all that is within, and none is too long."""
    end = array.itemsize
    for stride, n in sorted((s, n) for s, n in zip(array.strides, array.shape) if n > 1):
        if stride < end:
            return False
        end += stride * (n - 1)
    return abs(array.strides[2]) < 1 << 32


def fill_view(view: Any, array: np.ndarray) -> np.ndarray:
    """Fills a kvarc_view with an array [tokens, heads, channels] of any strides; returns the
    array whose memory it is, which must stay."""
    if not fits(array):
        array = np.ascontiguousarray(array)
    n, heads, channels = array.shape
    token, head, element = (abs(s) for s in array.strides)
    if array.size == 0:
        view.data = ffi.NULL
        return array
    view.data = ffi.cast("void *", array.__array_interface__["data"][0])
    view.token_stride = token
    view.elem_stride = element
    # one block where heads follow each other as channels do
    whole = heads == 1 or head == element * channels
    view.block_elems = heads * channels if whole else channels
    view.block_stride = head * heads if whole else head
    return array


def int32(values: Any, n: int, what: str) -> np.ndarray:
    """A contiguous int32 array of n values."""
    if is_torch(values):
        values = _of_torch(values)[0]
    array = np.asarray(values)
    if array.ndim != 1 or len(array) != n:
        raise ValueError(f"{what}: shape {array.shape}, expected ({n},)")
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"{what}: integers are needed, not {array.dtype}")
    if array.size and not (-2**31 <= int(array.min()) and int(array.max()) < 2**31):
        raise ValueError(f"{what}: a value is outside of int32")
    return np.ascontiguousarray(array, dtype=np.int32)


def same_bits(a: Any, b: Any) -> Any:
    """Which tokens of two arrays [tokens, heads, channels] are equal, bit for bit."""
    unsigned = f"u{a.dtype.itemsize}"
    return (np.asarray(a).view(unsigned) == np.asarray(b).view(unsigned)).all(axis=(1, 2))
