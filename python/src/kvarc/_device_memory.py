# SPDX-License-Identifier: BSD-3-Clause
"""Memory of a GPU: where it comes from, and arrays in it."""
from __future__ import annotations

import sys
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from . import _arrays, _dlpack
from ._native import ffi, lib
from .errors import Trouble

ALIGN = 256


def torch_with_cuda(load: bool = False) -> Any:
    """The module torch, if it was imported (with `load`: if it can be) and has CUDA."""
    if load:
        try:
            import torch  # noqa: F401
        except ImportError:
            return None
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_available() else None


class DeviceHandle:
    """A kvarc_device, which is closed when nothing refers to it any more: arrays do."""

    def __init__(self, trouble: Trouble) -> None:
        self.c = ffi.new("kvarc_device **")
        self.trouble = trouble
        self.ordinal = 0
        self.keep: Any = None  # what must stay as long as this

    def __del__(self, close: Any = lib.kvarc_device_close) -> None:
        close(self.c)

    def check(self, ret: int, what: str = "") -> None:
        self.trouble.check(ret, what)

    def fetch(self, address: int, n: int, stream: int = 0) -> np.ndarray:
        """n bytes, when what was queued on the stream is done."""
        out = np.empty(n, np.uint8)
        if n:
            self.check(lib.kvarc_device_fetch(self.c[0], ffi.from_buffer(out), address, n,
                                              ffi.cast("void *", stream)))
        return out


class Memory:
    """Bytes of the GPU by the library's own calls, freed with this object."""

    def __init__(self, handle: DeviceHandle, n: int) -> None:
        self.handle, self.address = handle, 0
        at = ffi.new("uint64_t *")
        handle.check(lib.kvarc_device_alloc(handle.c[0], max(n, 1), at))
        self.address = at[0]

    def __del__(self, free: Any = lib.kvarc_device_free) -> None:
        if self.address:
            free(self.handle.c[0], self.address)


class DeviceArray:
    """An array in memory of a GPU: what kvarc gives where torch is not imported.

    cupy.from_dlpack, jax.dlpack.from_dlpack and torch.from_dlpack take it without a copy; dtype is
    the name in the format ("bf16"). It is complete: nothing is queued that writes to it.
    numpy() copies it to the host. `array[i]`, `array[None]` and transpose(*axes) are views of it.
    """

    is_on_device = True

    def __init__(self, memory: Any, address: int, shape: Sequence[int], dtype: str,
                 strides: Optional[Sequence[int]] = None) -> None:
        self._memory, self._address = memory, address
        self.shape, self.dtype = tuple(shape), dtype
        self.strides = tuple(strides) if strides is not None else _dlpack.strides_of(self.shape)

    def __repr__(self) -> str:
        return f"<kvarc.DeviceArray {self.shape} {self.dtype} on cuda:{self._memory.handle.ordinal}>"

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return np.dtype(_arrays.BITS[self.dtype]).itemsize

    def __getitem__(self, index: Optional[int]) -> "DeviceArray":
        if index is None:
            return DeviceArray(self._memory, self._address, (1, *self.shape), self.dtype,
                               (1, *self.strides))
        n = range(self.shape[0])[index]
        return DeviceArray(self._memory, self._address + n * self.strides[0] * self.itemsize,
                           self.shape[1:], self.dtype, self.strides[1:])

    def transpose(self, *axes: int) -> "DeviceArray":
        """A view with the axes in this order."""
        return DeviceArray(self._memory, self._address, [self.shape[a] for a in axes], self.dtype,
                           [self.strides[a] for a in axes])

    def numpy(self, raw: bool = False) -> np.ndarray:
        """A copy on the host; bf16 and 8-bit floats as of Reader.read."""
        kind = np.dtype(_arrays.BITS[self.dtype])
        if 0 in self.shape:
            return _arrays.from_bits(np.empty(self.shape, kind), self.dtype, raw)
        n = 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides))
        flat = self._memory.handle.fetch(self._address, n * kind.itemsize).view(kind)
        strides = [s * kind.itemsize for s in self.strides]
        array = np.lib.stride_tricks.as_strided(flat, self.shape, strides).copy()
        return _arrays.from_bits(array, self.dtype, raw)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return _dlpack.CUDA, self._memory.handle.ordinal

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
                   copy: Optional[bool] = None) -> Any:
        if dl_device not in (None, self.__dlpack_device__()) or copy:
            raise BufferError("copies, and other devices, are not offered: use numpy()")
        return _dlpack.give(self._address, self.shape, self.strides, self.dtype,
                            self.__dlpack_device__(), self._memory)


class Pool:
    """Where a Device takes memory from: torch's allocator where torch is there, so that both share
    one; else the library's calls."""

    def __init__(self, handle: DeviceHandle) -> None:
        self.handle = handle

    def _torch_stream(self, torch: Any, stream: int) -> Any:
        device = f"cuda:{self.handle.ordinal}"
        return torch.cuda.stream(torch.cuda.ExternalStream(stream, device=device) if stream else
                                 torch.cuda.default_stream(device))

    def bytes(self, n: int, stream: int, keep: List[Any]) -> int:
        """The address of n bytes, a multiple of 256, for work of a stream; keep has what must stay
        until that is done."""
        torch = torch_with_cuda()
        if torch is None:
            keep.append(Memory(self.handle, n))
            return keep[-1].address
        with self._torch_stream(torch, stream):
            keep.append(torch.empty(n + ALIGN, dtype=torch.uint8,
                                    device=f"cuda:{self.handle.ordinal}"))
        return -(-keep[-1].data_ptr() // ALIGN) * ALIGN

    def array(self, shape: Sequence[int], dtype: str, stream: int) -> Any:
        """An array for elements: a tensor of torch, or a DeviceArray."""
        torch = torch_with_cuda()
        if torch is None:
            n = int(np.prod(shape, dtype=np.int64)) * np.dtype(_arrays.BITS[dtype]).itemsize
            memory = Memory(self.handle, n)
            return DeviceArray(memory, memory.address, shape, dtype)
        with self._torch_stream(torch, stream):
            return torch.empty(tuple(shape), dtype=getattr(torch, _arrays.TORCH[dtype]),
                               device=f"cuda:{self.handle.ordinal}")
