# SPDX-License-Identifier: BSD-3-Clause
"""GPUs: archives decoded into their memory, and encoded from it (docs/device.md)."""
from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _arrays, _dlpack
from ._device_memory import DeviceArray, DeviceHandle, Pool, torch_with_cuda
from ._io import Calls, Handle
from ._native import ffi, lib
from ._options import Common, count
from ._ranges import Range
from ._types import DeviceLike, IdsLike, PathLike
from .errors import DamagedError
from .geometry import Tensor
from .reader import Reader
from .writer import Writer

__all__ = ["Device", "DeviceArray", "Plan"]

_PLAN_TOKENS = 2048  # of a plan that writes
_DEVICES = {1: "the CPU", 2: "CUDA", 3: "pinned memory of the CPU", 10: "ROCm",
            13: "managed memory of CUDA"}


def _ordinal(device: Any) -> int:
    """The number of "cuda:N", "cuda", N, or a torch.device."""
    if hasattr(device, "type") and hasattr(device, "index"):
        device = f"{device.type}:{device.index or 0}"
    if isinstance(device, str):
        m = re.fullmatch(r"cuda(?::([0-9]{1,9}))?", device)
        if not m:
            raise ValueError(f'device: "cuda:N" is needed, not {device!r}')
        return int(m[1] or 0)
    return count(device, "device", (1 << 31) - 1)


def stream_of(stream: Any, ordinal: int) -> int:
    """The handle of a stream: an int, or what torch and others have; None: the current one of
    torch where that is there, else the default one."""
    if stream is None:
        torch = torch_with_cuda()
        return int(torch.cuda.current_stream(ordinal).cuda_stream) if torch else 0
    for name in ("cuda_stream", "ptr"):
        stream = getattr(stream, name, stream)
    if hasattr(stream, "__cuda_stream__"):
        stream = stream.__cuda_stream__()[1]
    return count(stream, "stream", (1 << 64) - 1)


def as_producer(array: Any) -> Any:
    """An array as DLPack takes it: tensors of torch without their graph, 8-bit floats as bytes."""
    if not _arrays.is_torch(array):
        return array
    array = array.detach()
    if str(array.dtype).startswith("torch.float8"):
        import torch
        array = array.view(torch.uint8)
    return array


class _Elements:
    """The arrays of some tensors as views of the library, and what must stay while they are used.

    what: how errors name them; written: they are written to."""

    def __init__(self, what: str, ordinal: int, stream: int, written: bool) -> None:
        self.what, self.ordinal, self.written = what, ordinal, written
        self.stream = stream or 1  # as DLPack has it: 1 is the default stream
        self.keep: List[Any] = []

    def take(self, index: int, array: Any, tensor: Tensor) -> _dlpack.Taken:
        """Checks all of an array but its shape."""
        name, array = f"{self.what}[{index}]", as_producer(array)
        if not hasattr(array, "__dlpack_device__"):
            raise TypeError(f"{name}: {type(array).__module__}.{type(array).__name__} has no "
                            "DLPack")
        kind, number = array.__dlpack_device__()
        if int(kind) not in (_dlpack.CUDA, _dlpack.CUDA_MANAGED) or \
                int(kind) == _dlpack.CUDA and number != self.ordinal:
            where = _DEVICES.get(int(kind), f"DLPack's device type {int(kind)}")
            raise ValueError(f"{name}: memory of {where}, number {number}; that of "
                             f"cuda:{self.ordinal} is needed")
        taken = _dlpack.Taken(array, self.stream)
        self.keep.append(taken)
        if not taken.is_of(tensor.dtype):
            raise TypeError(f"{name}: elements of {taken.type_name}, the tensor has "
                            f"{tensor.dtype}")
        if self.written and not taken.writeable:
            raise ValueError(f"{name}: read-only, or a copy of what was given")
        lengths = [s for s, n in zip(taken.strides, taken.shape) if n > 1]
        if any(s < 0 or s == 0 and self.written for s in lengths):
            raise ValueError(f"{name}: strides {taken.strides} that are not positive")
        return taken

    @staticmethod
    def fill(view: Any, taken: _dlpack.Taken, first: int, n: int) -> None:
        """Fills a kvarc_device_view with n tokens of an array [tokens, heads, channels]."""
        size = taken.bits // 8
        lengths = (n, *taken.shape[1:])
        # of an axis of 1 any stride would do: some libraries have strange ones
        token, head, element = (s if length > 1 else 1 for s, length in
                                zip(taken.strides, lengths))
        view.base = taken.address + first * token * size
        view.bytes = (1 + sum((length - 1) * stride for length, stride in
                              zip(lengths, (token, head, element)))) * size
        view.token_stride, view.head_stride = token * size, head * size
        view.elem_stride = element * size

    def check_shape(self, index: int, taken: _dlpack.Taken, tensor: Tensor, n: int) -> None:
        """n: tokens; below 0: any number of them."""
        if len(taken.shape) != 3 or taken.shape[1:] != (tensor.heads, tensor.channels) or \
                n >= 0 and taken.shape[0] != n:
            raise ValueError(f"{self.what}[{index}]: shape {taken.shape}, expected "
                             f"({n if n >= 0 else 'tokens'}, {tensor.heads}, {tensor.channels})")


class Plan(Handle):
    """A range of an archive on its way into a GPU, layer by layer: Device.plan makes it.

    arrays: by tensor, [tokens, heads, channels], filled when finish() has returned. layers: those
    of the range. info: sizes and numbers of chunks, those that the host decodes among them.
    """

    def __init__(self, device: "Device", reader: Reader, range_: Any, arrays: Dict[int, Any],
                 stream: int) -> None:
        self._device, self._reader, self._stream = device, reader, stream
        self._own = device._own  # closed behind the plan, even where the Device is closed before
        self._c = ffi.new("kvarc_device_plan **")
        self._keep: List[Any] = []
        self.arrays = arrays
        self.info: Dict[str, int] = {}
        self.layers = range(0)
        elements = _Elements("out", device.ordinal, stream, written=True)
        self._keep.append(elements)
        self._views = ffi.new("kvarc_device_view[]", max(len(reader.tensors), 1))
        for i, array in arrays.items():
            taken = elements.take(i, array, reader.tensors[i])
            elements.check_shape(i, taken, reader.tensors[i], range_.n)
            if range_.n:
                elements.fill(self._views[i], taken, 0, range_.n)
        self._next = self._status = 0
        if range_.n and arrays:
            try:
                self._open(range_)
            except BaseException:
                self.close()
                raise
        self._next = self.layers.start

    def _open(self, range_: Any) -> None:
        device, stream = self._device, ffi.cast("void *", self._stream)
        with self._reader._calls.one():
            self._check(lib.kvarc_device_plan_read(self._c, device._handle(),
                                                   self._reader._handle(), range_))
            c = ffi.new("kvarc_device_plan_info *")
            self._check(lib.kvarc_device_plan_get_info(self._c[0], c))
            self.info = {name: getattr(c, name) for name in dir(c) if name != "reserved"}
            self.layers = range(c.layer0, c.layer0 + c.n_layers)
            staging, work, self._status = (
                device._pool.bytes(n, self._stream, self._keep)
                for n in (c.staging_bytes, c.work_bytes, c.status_bytes))
            self._own.fetch(staging, 1, self._stream)  # torch's memory may still be in use there
            self._check(lib.kvarc_device_stage(self._c[0], staging, stream))
            self._check(lib.kvarc_device_place(self._c[0], self._views, work, self._status,
                                               stream))

    def _check(self, ret: int) -> None:
        self._device._check(ret, self)

    def _locate(self, e: DamagedError) -> None:
        if e.offset is not None and self._reader._c[0] != ffi.NULL:
            self._reader._locate(e)

    def decode(self, layers: int = 1) -> range:
        """Queues the kernels of the next layers on the stream, and waits for nothing; returns which
        they are."""
        first = self._next
        end = min(first + count(layers, "layers"), self.layers.stop)
        if end > first:
            with self._device._calls.one():
                self._check(lib.kvarc_device_decode(self._plan(), first, end - first,
                                                    ffi.cast("void *", self._stream)))
        self._next = max(end, first)
        return range(first, self._next)

    def finish(self) -> Dict[int, Any]:
        """Waits for the stream; raises unless every chunk of the layers that were decoded passed
        its check. Returns `arrays`."""
        n = self._next - self.layers.start
        if n:
            with self._device._calls.one():
                words = self._own.fetch(self._status, self.info["status_bytes"], self._stream)
                self._check(lib.kvarc_device_plan_answer(
                    self._plan(), self.layers.start, n,
                    ffi.from_buffer("uint32_t[]", words)))
        return self.arrays

    def _plan(self) -> Any:
        if self._c[0] == ffi.NULL:
            raise ValueError("the plan is closed")
        return self._c[0]

    def close(self) -> None:
        """What was queued must be done, as it is behind finish()."""
        lib.kvarc_device_plan_close(self._c)
        self._keep.clear()

    def __enter__(self) -> "Plan":
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_keep"):
            self.close()


class _Model:
    """Weights in the GPU. of: whose model it is."""

    def __init__(self, device: "Device", of: Union[Reader, Writer], stream: int) -> None:
        self._reader: Any = of
        self._own = device._own
        self._c = ffi.new("kvarc_device_model **")
        self._keep: List[Any] = []
        size = ffi.new("uint64_t *")
        opened = lib.kvarc_device_model_open_writer if isinstance(of, Writer) else \
            lib.kvarc_device_model_open
        device._check(opened(self._c, device._handle(), of._handle(), size), self)
        self.bytes = size[0]
        at = device._pool.bytes(self.bytes, stream, self._keep)
        device._check(lib.kvarc_device_model_load(self._c[0], at, ffi.cast("void *", stream)),
                      self)
        self._own.fetch(at, 1, stream)  # plans of other streams find all of it
        self._reader = None

    def _locate(self, e: DamagedError) -> None:
        """The profile is damaged, which has no place among tokens."""

    def __del__(self, close: Any = lib.kvarc_device_model_close) -> None:
        close(self._c)


class Device(Handle):
    """A GPU with the kernels of this package: "cuda:0", a number, or a torch.device.

    OptionsError: no NVIDIA driver, no such GPU, no kernels, none for its architecture; then the
    host can decode. driver, kernels, encoders, exact: files; None: libcuda.so.1, those of
    KVARC_KERNELS, KVARC_ENCODERS and KVARC_EXACT, or the ones that were installed with the library.
    memlimit: bytes of the host.

    Arrays are torch tensors where torch was imported and has CUDA, else DeviceArray. Those that
    are given are of any library that has DLPack, and are not copied. stream: an int, or a stream
    of torch or cupy; None: torch's current one where torch is there, else the default one.
    One thread uses a Device at a time; the GIL is released while the library works.
    """

    def __init__(self, device: DeviceLike = "cuda:0", *, driver: Optional[PathLike] = None,
                 kernels: Optional[PathLike] = None, encoders: Optional[PathLike] = None,
                 exact: Optional[PathLike] = None, memlimit: int = 0) -> None:
        self._calls = Calls("device")
        self._models: List[_Model] = []
        self._common = common = Common(threads=1, memlimit=memlimit)
        self.ordinal = _ordinal(device)
        own = DeviceHandle(common.trouble)
        own.ordinal = self.ordinal
        options = ffi.new("kvarc_device_options *")
        common.fill(options.common)
        options.ordinal = self.ordinal
        for name, file, variable in (("driver", driver, ""), ("kernels", kernels, "KVARC_KERNELS"),
                                     ("encoders", encoders, "KVARC_ENCODERS"),
                                     ("exact", exact, "KVARC_EXACT")):
            path = os.environ.get(variable) if file is None else os.fspath(file)
            setattr(options, name, common.text(path))
        own.keep = common  # texts of the options, and the error: as long as arrays are there
        own.check(lib.kvarc_device_open(own.c, options), f"cuda:{self.ordinal}")
        c = ffi.new("kvarc_device_info *")
        own.check(lib.kvarc_device_get_info(own.c[0], c))
        self.name = ffi.string(c.name).decode("utf-8", "replace")
        self.memory, self.capability = c.memory, (c.major, c.minor)
        self._own: Any = own
        self._pool: Any = Pool(own)

    def __repr__(self) -> str:
        return f"<kvarc.Device cuda:{self.ordinal}, {self.name}>"

    def _handle(self) -> Any:
        if self._own is None:
            raise ValueError("the device is closed")
        return self._own.c[0]

    def _check(self, ret: int, of: Any) -> None:
        """Raises unless ret is OK; of: a plan, whose reader or writer may have the error."""
        trouble = self._common.trouble
        if ret == lib.KVARC_OK:
            return
        mine, trouble.c.code = trouble.c.code == ret, 0
        if not mine:
            of._reader._check(ret)
        trouble.c.code = ret
        try:
            trouble.check(ret)
        except DamagedError as e:
            of._locate(e)
            raise
        finally:
            trouble.c.code = 0

    def load_model(self, archive: Union[Reader, Writer], *, stream: Any = None) -> int:
        """Brings the model to the GPU that an archive of levels 4 to 8 is made with, and that the
        reader or writer has (predictor=), until unload_models() or close(), and compares what its
        kernels predict with the host's engine. Readers and writers do not use it yet. Returns its
        bytes there.

        OptionsError: the archive needs no model, or one that kernels do not compute; the host does
        without it. Waits for the stream.
        """
        self._handle()
        with self._calls.one(), archive._calls.one():
            self._models.append(_Model(self, archive, stream_of(stream, self.ordinal)))
        return self._models[-1].bytes

    def unload_models(self) -> None:
        """Frees their memory."""
        self._models.clear()

    def plan(self, reader: Reader, track: int = 0, *, layers: Range = None, tokens: Range = None,
             tensors: Optional[Sequence[int]] = None, out: Optional[Mapping[int, Any]] = None,
             stream: Any = None) -> Plan:
        """A Plan of what read() takes, for engines that load layer by layer: Plan.decode() queues
        the kernels of the next layer, Plan.finish() waits and raises. What was read from the file
        is on its way to the GPU when this returns."""
        self._handle()
        if reader._salvage:
            raise ValueError("salvage: the host alone reads damaged archives: Reader.read")
        c = reader._range(track, layers, tokens)
        stream = stream_of(stream, self.ordinal)
        wanted = reader._wanted(track, c, tensors if out is None else list(out))
        arrays: Dict[int, Any] = {}
        for i in wanted:
            t = reader.tensors[i]
            arrays[i] = out[i] if out is not None else \
                self._pool.array((c.n, t.heads, t.channels), t.dtype, stream)
        with self._calls.one():
            return Plan(self, reader, c, arrays, stream)

    def read(self, reader: Reader, track: int = 0, *, layers: Range = None, tokens: Range = None,
             tensors: Optional[Sequence[int]] = None, out: Optional[Mapping[int, Any]] = None,
             stream: Any = None) -> Dict[int, Any]:
        """Elements of a track, by index of the tensor: arrays [tokens, heads, channels] in the GPU.

        As Reader.read; out: arrays of the GPU to read into, of any strides. The chunks come into
        the GPU as they are in the file, and are decoded and checked there; what kernels do not
        decode the host does. Every check was made when this returns. DamagedError: chunks that
        are good may have been written, others were not.
        """
        with self.plan(reader, track, layers=layers, tokens=tokens, tensors=tensors, out=out,
                       stream=stream) as plan:
            plan.decode(len(plan.layers))
            return plan.finish()

    def append(self, writer: Writer, track: int, arrays: Union[Mapping[int, Any], Sequence[Any]],
               *, ids: Optional[IdsLike] = None, positions: Optional[IdsLike] = None,
               stream: Any = None) -> int:
        """Appends tokens, whose elements are in the GPU, to a track; returns how many.

        As Writer.append. The host encodes the first segment at level 1, whose parameters
        kernels use, and chunks and levels that they do not encode (docs/device.md). Waits for the
        stream. No token of the track may wait for a full segment: commit() after appends of the
        host.
        """
        self._handle()
        given = writer._of_track(track, arrays)
        handle = stream_of(stream, self.ordinal)
        elements = _Elements("arrays", self.ordinal, handle, written=False)
        taken, n = {}, -1
        for i, array in given.items():
            taken[i] = elements.take(i, array, writer.tensors[i])
            elements.check_shape(i, taken[i], writer.tensors[i], n)
            n = taken[i].shape[0]
        if n < 1:
            return 0
        ids = None if ids is None else _arrays.int32(ids, n, "ids")
        positions = None if positions is None else _arrays.int32(positions, n, "positions")
        with self._calls.one(), writer._calls.one():
            segment = lib.kvarc_writer_segment_tokens(writer._handle(), track) or 1
            first, step = 0, segment
            while first < n:
                part = min(step, n - first)
                _Output(self, writer, handle).append(track, taken, first, part, ids, positions)
                first += part
                step = max(_PLAN_TOKENS // segment, 1) * segment
        return n

    def close(self) -> None:
        """Nothing when it is closed already; arrays stay."""
        self._models.clear()
        self._own = self._pool = None

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()


class _Output:
    """A plan that writes, for one append."""

    def __init__(self, device: Device, writer: Writer, stream: int) -> None:
        self.device, self._reader, self.stream = device, writer, stream
        self._c = ffi.new("kvarc_device_plan **")

    def close(self) -> None:
        lib.kvarc_device_plan_close(self._c)

    def _locate(self, e: DamagedError) -> None:
        """Nothing is damaged in what is written."""

    def append(self, track: int, taken: Mapping[int, _dlpack.Taken], first: int, n: int,
               ids: Optional[np.ndarray], positions: Optional[np.ndarray]) -> None:
        device, stream = self.device, ffi.cast("void *", self.stream)
        keep: List[Any] = []
        views = ffi.new("kvarc_device_view[]", len(self._reader.tensors))
        for i, array in taken.items():
            _Elements.fill(views[i], array, first, n)
        c_ids, c_positions = (ffi.NULL if a is None else
                              ffi.from_buffer("int32_t[]", a[first:first + n])
                              for a in (ids, positions))

        def check(ret: int) -> None:
            device._check(ret, self)
        try:
            check(lib.kvarc_device_plan_write(self._c, device._handle(), self._reader._handle(),
                                              track, n, c_ids, c_positions))
            c = ffi.new("kvarc_device_plan_info *")
            check(lib.kvarc_device_plan_get_info(self._c[0], c))
            staging, work, status = (device._pool.bytes(size, self.stream, keep) for size in
                                     (c.staging_bytes, c.work_bytes, c.status_bytes))
            device._own.fetch(staging, 1, self.stream)  # as Plan._open
            check(lib.kvarc_device_stage(self._c[0], staging, stream))
            check(lib.kvarc_device_place(self._c[0], views, work, status, stream))
            check(lib.kvarc_device_encode(self._c[0], c.layer0, 0xFFFFFFFF, stream))
            check(lib.kvarc_device_append(self._c[0], stream))
        finally:
            self.close()
