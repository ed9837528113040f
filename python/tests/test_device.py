# SPDX-License-Identifier: BSD-3-Clause
"""GPUs, behind a stand-in of NVIDIA's driver: a mock, in which memory of the GPU is the host's, and
the kernels are the real ones, run on the host."""
import ctypes
import gc
import io
import os
import subprocess
import sys
import types

import numpy as np
import pytest
from conftest import make_pairs, same, same_pairs

import kvarc
from kvarc import _dlpack

BUILD = os.environ.get("KVARC_BUILD", "")
DRIVER = os.path.join(BUILD, "tests", "device", ".libs", "driver_stand_in.so")
KERNELS = os.path.join(BUILD, "Makefile")  # any file: the stand-in has the kernels

pytestmark = pytest.mark.skipif(not os.path.exists(DRIVER), reason="no stand-in of the driver")


class CudaMemory:
    """A mock of an array of another library: memory of the host that says it is of a GPU."""

    def __init__(self, array, dtype, device=(_dlpack.CUDA, 0)):
        self.array, self.dtype, self.device, self.streams = array, dtype, device, []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        a = self.array
        return _dlpack.give(a.ctypes.data, a.shape, [s // a.itemsize for s in a.strides],
                            self.dtype, self.device, a)


class Bits(CudaMemory):
    """Elements of 16 bits as unsigned numbers."""

    def __dlpack__(self, stream=None):
        capsule = super().__dlpack__(stream)
        _dlpack._Managed.from_address(_dlpack._pointer(capsule, b"dltensor")).tensor.code = 1
        return capsule


class ReadOnly(CudaMemory):
    """With a version, and the flag that it must not be written."""

    def __dlpack__(self, stream=None, max_version=None):
        capsule = super().__dlpack__(stream)
        plain = _dlpack._Managed.from_address(_dlpack._pointer(capsule, b"dltensor"))
        self.made = _dlpack._Versioned(1, 0, None, None, 1, plain.tensor)
        self.plain = capsule
        return _dlpack._new(ctypes.addressof(self.made), b"dltensor_versioned", None)


def stand_in(name):
    function = getattr(ctypes.CDLL(DRIVER), "stand_in_" + name)
    function.restype = ctypes.c_void_p
    return function() or 0


@pytest.fixture
def device():
    with kvarc.Device(driver=DRIVER, kernels=KERNELS, encoders=KERNELS) as d:
        yield d


@pytest.fixture
def archive(tmp_path, pairs):
    kvarc.save(tmp_path / "a.kva", pairs, tokens=np.arange(300), dtype="bf16")
    return str(tmp_path / "a.kva")


def bits(array):
    return array.numpy(raw=True)


def pairs_of(loaded):
    return [tuple(bits(a) for a in pair) for pair in loaded]


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "e4m3", "e5m2", "i8"])
def test_load(tmp_path, device, level, dtype):
    """Kernels and, of i8, the host."""
    pairs = make_pairs(layers=2, tokens=270)
    kind = kvarc._arrays.BITS[dtype]
    if np.dtype(kind).itemsize == 1:
        pairs = [tuple((a >> 8).astype(np.uint8).view(kind) for a in p) for p in pairs]
    elif dtype != "bf16":
        wide = [tuple((a.astype(np.uint32) << 16).view(np.float32) for a in p) for p in pairs]
        pairs = [tuple(a.astype(kind) for a in p) for p in wide]
    kvarc.save(tmp_path / "a.kva", pairs, dtype=dtype, level=level)
    loaded = kvarc.load(tmp_path / "a.kva", device=device)
    assert isinstance(loaded[0][0], kvarc.DeviceArray) and loaded[0][0].dtype == dtype
    assert same_pairs(pairs_of(loaded), pairs)


@pytest.mark.parametrize("ranges", [{}, {"layers": 1}, {"tokens": (250, 270)},
                                    {"layers": (1, 3), "tokens": slice(-1, None)},
                                    {"tokens": (7, 7)}])
def test_ranges(archive, device, ranges):
    expected = kvarc.load(archive, raw=True, **ranges)
    assert same_pairs(pairs_of(kvarc.load(archive, device=device, **ranges)), expected)
    with kvarc.open(archive) as r:
        read = {i: bits(a) for i, a in device.read(r, **ranges).items()}
        host = r.read(raw=True, **ranges)
    # the description of the cache is not a tensor of the track
    assert read.keys() == host.keys()
    assert all(same(read[i], host[i]) for i in host)


def test_profile(tmp_path, device, sample):
    """Level 2 (linear profile), and a file of `kvarc pack`."""
    profile, path = sample("smollm2-135m-level2.kvp"), str(tmp_path / "2.kva")
    subprocess.run([sys.executable, "-m", "kvarc", "pack", "-q", "-2", "--profile", profile,
                    "-o", path, sample("smollm2-135m-bf16-160.safetensors")], check=True)
    assert same_pairs(pairs_of(kvarc.load(path, device=device, profiles=profile)),
                      kvarc.load(path, raw=True, profiles=profile))
    with kvarc.open(path, profiles=profile) as r, device.plan(r) as plan:
        assert plan.info["host_chunks"] == plan.info["chunks"] == 60


def test_batches_and_states(tmp_path, device):
    a = np.stack([make_pairs(seed=s)[0][0] for s in (1, 2)])
    state = np.arange(600, dtype=np.float32).reshape(2, 300)
    layer = kvarc.Layer({"key": a, "value": a[..., :32].copy()}, {"recurrent": state},
                        {"key": "bf16", "value": "bf16"})
    kvarc.save(tmp_path / "a.kva", kvarc.Cache([layer]), tokens=np.arange(600).reshape(2, 300))
    loaded = kvarc.load(tmp_path / "a.kva", device=device)
    assert same(bits(loaded.layers[0].tensors["key"]), a)
    assert same(bits(loaded.layers[0].tensors["value"]), a[..., :32])
    assert same(loaded.layers[0].states["recurrent"], state)
    assert np.array_equal(loaded.tokens, np.arange(600).reshape(2, 300))


def test_read_into_strides(archive, device, pairs):
    """Heads before tokens, with a gap behind each channel; nothing else is written."""
    whole = np.full((3, 310, 128), 0xa5a5, np.uint16)
    view = whole[:, 5:305, ::2].transpose(1, 0, 2)
    out = CudaMemory(view, "bf16")
    with kvarc.open(archive) as r:
        assert device.read(r, out={0: out}, stream=77)[0] is out
    assert out.streams == [77]
    assert same(view, pairs[0][0].transpose(1, 0, 2))
    view[...] = 0xa5a5
    assert (whole == 0xa5a5).all()


def test_streams(archive, device, monkeypatch):
    whole = np.zeros((300, 3, 64), np.uint16)
    named = types.SimpleNamespace
    given = [(None, 1), (0, 1), (5, 5), (named(cuda_stream=6), 6), (named(ptr=7), 7),
             (named(__cuda_stream__=lambda: (0, 8)), 8)]
    with kvarc.open(archive) as r:
        for stream, expected in given:
            out = CudaMemory(whole, "bf16")
            device.read(r, out={0: out}, stream=stream)
            assert out.streams == [expected]
        for bad, error in (("1", TypeError), (-1, ValueError), (1.0, TypeError)):
            with pytest.raises(error, match="stream"):
                device.read(r, out={0: out}, stream=bad)


def test_torch_is_asked_for_stream_and_memory(archive, device, pairs, monkeypatch):
    """A mock of torch: its current stream, and empty()."""
    made, entered = [], []

    class Stream:
        def __init__(self, handle):
            self.cuda_stream = handle

        def __enter__(self):
            entered.append(self.cuda_stream)

        def __exit__(self, *unused):
            entered.append("left")

    def empty(shape, dtype, device):
        assert device == "cuda:0" and entered[-1] == 9
        shape = (shape,) if isinstance(shape, int) else shape
        kind = np.uint16 if dtype == "bfloat16" else np.uint8
        made.append(CudaMemory(np.zeros(shape, kind), "bf16" if kind == np.uint16 else "u8"))
        made[-1].data_ptr = lambda at=made[-1].array.ctypes.data: at
        return made[-1]
    cuda = types.SimpleNamespace(
        is_available=lambda: True, current_stream=lambda n: Stream(9), stream=lambda s: s,
        ExternalStream=lambda handle, device: Stream(handle), default_stream=None)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(
        cuda=cuda, empty=empty, uint8="uint8", bfloat16="bfloat16"))
    with kvarc.open(archive) as r:
        arrays = device.read(r, layers=1)
    assert [a.array.shape for a in made[:2]] == [(300, 3, 64)] * 2 and len(made) == 5
    assert same_pairs([[a.array.transpose(1, 0, 2) for a in arrays.values()]], [pairs[1]])
    assert entered == [9, "left"] * 5


def test_layer_by_layer(archive, device, pairs):
    with kvarc.open(archive) as r, device.plan(r, tokens=(0, 300)) as plan:
        assert plan.layers == range(3) and plan.info["chunks"] == 12
        for n in range(3):
            assert plan.decode() == range(n, n + 1)
            plan.finish()
            assert same(bits(plan.arrays[2 * n]).transpose(1, 0, 2), pairs[n][0])
        assert plan.decode() == range(3, 3)
    with pytest.raises(ValueError, match="closed"):
        plan.finish()


def test_a_plan_needs_neither_device_nor_reader(archive, pairs):
    device = kvarc.Device(driver=DRIVER, kernels=KERNELS)
    with kvarc.open(archive) as r:
        plan = device.plan(r)
    device.close()
    plan.decode(3)
    arrays = plan.finish()
    assert same_pairs([[bits(arrays[i]).transpose(1, 0, 2) for i in (4, 5)]], [pairs[2]])
    del device
    gc.collect()
    plan.close()
    assert bits(arrays[0]).any()


def damaged_copy(archive, folder, layer):
    """A copy with a flipped bit in the first chunk of a layer; which tensor that is."""
    with kvarc.open(archive) as r:
        c, i = kvarc._native.ffi.new("kvarc_chunk_info *"), 0
        while kvarc._native.lib.kvarc_reader_chunk(r._c[0], i, c) == 0:
            if r.tensors[c.tensor].layer == layer and r.tensors[c.tensor].name == "":
                break
            i += 1
        at, tensor = c.offset + c.frame_bytes // 2, c.tensor
    data = bytearray(open(archive, "rb").read())
    data[at] ^= 4
    path = os.path.join(folder, "damaged.kva")
    with open(path, "wb") as f:
        f.write(data)
    return path, tensor


def test_damage(archive, device, pairs, tmp_path):
    path, tensor = damaged_copy(archive, tmp_path, 1)
    with pytest.raises(kvarc.DamagedError, match="layer 1") as e:
        kvarc.load(path, device=device)
    assert e.value.layer == 1 and e.value.tensor == tensor and e.value.tokens == range(0, 256)
    with kvarc.open(path) as r:
        memory = np.full((310, 3, 64), 0xa5a5, np.uint16)
        with pytest.raises(kvarc.DamagedError):
            device.read(r, out={tensor: CudaMemory(memory[:300], "bf16")})
        assert (memory[300:] == 0xa5a5).all()  # rows of a bad chunk may have anything
        again = device.read(r, layers=2)  # and the rest is there
        assert same_pairs([[bits(a).transpose(1, 0, 2) for a in again.values()]], [pairs[2]])


def test_failures_of_the_file(archive, device):
    """What the reader says of its file."""
    class Failing(io.BytesIO):
        fails = False

        def readinto(self, buffer):
            if self.fails:
                raise OSError(5, "gone")
            return super().readinto(buffer)
    with open(archive, "rb") as f:
        file = Failing(f.read())
    with kvarc.open(file) as r:
        file.fails = True
        with pytest.raises(kvarc.InputOutputError) as e:
            device.read(r)
        assert isinstance(e.value.__cause__, OSError) and e.value.errno == 5
        file.fails = False
        assert len(device.read(r, layers=0)) == 2


def test_out_is_checked(archive, device):
    good = np.zeros((300, 3, 64), np.uint16)

    def refused(error, match, array, dtype="bf16", device_of=(_dlpack.CUDA, 0), kind=CudaMemory):
        with kvarc.open(archive) as r, pytest.raises(error, match=match):
            device.read(r, out={0: kind(array, dtype, device_of)})
    refused(ValueError, r"out\[0\]: shape \(299, 3, 64\), expected \(300, 3, 64\)", good[1:])
    refused(ValueError, "shape", good[0])
    refused(ValueError, "shape", good.transpose(1, 0, 2))
    refused(TypeError, r"out\[0\]: elements of float32, the tensor has bf16",
            good.astype(np.float32), "f32")
    refused(TypeError, "elements of float16", good.view(np.float16), "f16")
    refused(ValueError, r"out\[0\]: memory of the CPU, number 0; that of cuda:0", good,
            device_of=(_dlpack.CPU, 0))
    refused(ValueError, "memory of CUDA, number 1; that of cuda:0", good,
            device_of=(_dlpack.CUDA, 1))
    refused(ValueError, "strides .* not positive", good[::-1])
    refused(ValueError, "strides", np.broadcast_to(good[:1], good.shape))
    refused(ValueError, "read-only", good, kind=ReadOnly)
    odd = np.zeros(300 * 3 * 64 * 2 + 1, np.uint8)[1:].view(np.uint16).reshape(300, 3, 64)
    refused(kvarc.GeometryError, "not aligned", odd)
    with kvarc.open(archive) as r:
        with pytest.raises(TypeError, match=r"out\[0\]: builtins.list has no DLPack"):
            device.read(r, out={0: [1]})
        with pytest.raises(ValueError, match="memory of the CPU"):
            device.read(r, out={0: good})
        with pytest.raises(kvarc.GeometryError):
            device.read(r, tokens=(0, 301))
        # bits of the elements will do, and managed memory
        device.read(r, out={0: CudaMemory(good.view(np.float16).view(np.uint16), "bf16",
                                          (_dlpack.CUDA_MANAGED, 3))})
    with kvarc.open(archive, salvage=True) as r, pytest.raises(ValueError, match="salvage"):
        device.read(r)


def write(path, arrays, level, device=None, parts=()):
    tensors = [kvarc.Tensor(i // 2, ("key", "value")[i % 2], "bf16", 3, 64, 0) for i in range(4)]
    with kvarc.Writer(path, [kvarc.Track("self")], tensors, level=level,
                      file_id=b"0123456789abcdef") as w:
        for first, end in zip((0, *parts), (*parts, 1200)):
            part = [a[first:end] for a in arrays]
            ids = np.arange(first, end)
            if device is None:
                w.append(0, part, ids=ids)
            else:
                given = [CudaMemory(a, "bf16") for a in part]
                assert device.append(w, 0, given, ids=ids, stream=3) == end - first
                assert all(g.streams == [3] for g in given)


@pytest.mark.parametrize("level", [0, 1])
def test_append(tmp_path, device, level):
    """The archive of the host, byte for byte; of strided arrays, too."""
    arrays = [a.transpose(1, 0, 2) for p in make_pairs(layers=2, tokens=1200) for a in p]
    write(tmp_path / "host.kva", arrays, level)
    write(tmp_path / "gpu.kva", arrays, level, device)
    assert (tmp_path / "host.kva").read_bytes() == (tmp_path / "gpu.kva").read_bytes()
    write(tmp_path / "parts.kva", arrays, level, device, parts=(512, 1024))
    with kvarc.open(tmp_path / "parts.kva") as r:
        assert all(same(a, b) for a, b in zip(r.read(raw=True).values(), arrays))
        assert np.array_equal(r.ids(), np.arange(1200))


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "e4m3", "u8"])
def test_save(tmp_path, device, dtype):
    """Of arrays in the GPU: the archive of the host."""
    pairs = make_pairs(layers=2, tokens=600)
    kind = np.dtype(kvarc._arrays.BITS[dtype])
    if kind.itemsize == 1:
        pairs = [tuple((a >> 8).astype(np.uint8) for a in p) for p in pairs]
    elif dtype != "bf16":
        wide = [tuple((a.astype(np.uint32) << 16).view(np.float32) for a in p) for p in pairs]
        pairs = [tuple(a.astype(kind) for a in p) for p in wide]
    given = [tuple(CudaMemory(a, dtype) for a in p) for p in pairs]
    common = {"tokens": np.arange(600), "file_id": b"0123456789abcdef"}
    kvarc.save(tmp_path / "host.kva", pairs, dtype=dtype, **common)
    kvarc.save(tmp_path / "gpu.kva", given, device=device, **common)
    assert all(a.streams[0] == 1 for p in given for a in p)
    assert same_pairs(kvarc.load(tmp_path / "gpu.kva", raw=True), pairs)
    if dtype == "bf16":
        assert (tmp_path / "host.kva").read_bytes() == (tmp_path / "gpu.kva").read_bytes()


def test_save_a_cache(tmp_path, device):
    """Batches, bits without a type of their own, states and arrays of the host beside others."""
    a = np.stack([make_pairs(seed=s)[0][0] for s in (1, 2)])
    state = np.arange(600, dtype=np.float32).reshape(2, 300)
    layers = [kvarc.Layer({"key": CudaMemory(a, "bf16"), "value": CudaMemory(a[..., :32], "bf16")},
                          {"recurrent": state}),
              kvarc.Layer({"latent": a[:, :1]}, {}, {"latent": "bf16"}, window=9)]
    kvarc.save(tmp_path / "a.kva", kvarc.Cache(layers), device=device)
    loaded = kvarc.load(tmp_path / "a.kva", raw=True)
    assert same(loaded.layers[0].tensors["key"], a)
    assert same(loaded.layers[0].tensors["value"], a[..., :32])
    assert same(loaded.layers[0].states["recurrent"], state)
    assert same(loaded.layers[1].tensors["latent"], a[:, :1])
    wide = a[0].astype(np.float32)
    for bad, dtype in ((CudaMemory(wide, "f32"), "bf16"), (CudaMemory(a[0], "bf16"), "f16")):
        with pytest.raises(TypeError, match=f"are not {dtype}"):
            kvarc.save(tmp_path / "b.kva", [(bad, bad)], dtype=dtype, device=device)
    kvarc.save(tmp_path / "b.kva", {3: (Bits(a[0], "bf16"), Bits(a[1], "bf16"))}, dtype="bf16",
               device=device)
    assert same_pairs([kvarc.load(tmp_path / "b.kva", raw=True)[3]], [(a[0], a[1])])
    with pytest.raises(TypeError, match="need dtype="):
        kvarc.save(tmp_path / "b.kva", [(Bits(a[0], "bf16"),) * 2], device=device)


def test_append_is_checked(tmp_path, device):
    good = np.zeros((10, 3, 64), np.uint16)
    tensors = [kvarc.Tensor(0, "key", "bf16", 3, 64, 0), kvarc.Tensor(0, "value", "bf16", 3, 64, 0)]
    with kvarc.Writer(tmp_path / "a.kva", [kvarc.Track("self")], tensors) as w:
        for bad, error, match in (
                ([good, good], ValueError, r"arrays\[0\]: memory of the CPU"),
                ([CudaMemory(good, "bf16"), CudaMemory(good[1:], "bf16")], ValueError,
                 r"arrays\[1\]: shape \(9, 3, 64\), expected \(10, 3, 64\)"),
                ([CudaMemory(good, "bf16")], ValueError, "2 tensors, not 1"),
                ([CudaMemory(good.view(np.float16), "f16")] * 2, TypeError, "float16"),
                ([CudaMemory(good[:, :, ::-1], "bf16")] * 2, ValueError, "strides")):
            with pytest.raises(error, match=match):
                device.append(w, 0, bad)
        assert device.append(w, 0, [CudaMemory(good[:0], "bf16")] * 2) == 0
        w.append(0, [good, good])  # waits for a full segment
        with pytest.raises(kvarc.UsageError):
            device.append(w, 0, [CudaMemory(good, "bf16")] * 2)
        w.commit()
        assert device.append(w, 0, [CudaMemory(good, "bf16")] * 2) == 10
    assert kvarc.open(tmp_path / "a.kva").tokens() == 20


def test_dlpack_of_arrays(archive, device):
    array = kvarc.load(archive, device=device)[0][0]
    taken = _dlpack.Taken(array, 1)
    assert taken.device == array.__dlpack_device__() == (_dlpack.CUDA, 0)
    assert taken.shape == array.shape == (3, 300, 64) and taken.strides == (19200, 64, 1)
    assert taken.is_of("bf16") and taken.type_name == "bfloat16"
    with pytest.raises(BufferError):
        array.__dlpack__(dl_device=(_dlpack.CPU, 0))
    expected = bits(array)
    view = array.transpose(1, 0, 2)[7]
    assert len(array) == 3 and same(bits(view), expected[:, 7])
    with pytest.raises(IndexError):
        array[3]
    # the memory stays as long as a capsule does
    del array, view
    gc.collect()
    memory = (ctypes.c_uint16 * expected.size).from_address(taken.address)
    assert same(np.frombuffer(memory, np.uint16).reshape(expected.shape), expected)
    del taken
    gc.collect()
    assert not _dlpack._given


def test_nothing_is_left(archive):
    """Memory, contexts and modules of the driver go back, arrays outlive their Device."""
    left = ctypes.CDLL(DRIVER).stand_in_left
    left.restype = ctypes.c_void_p
    gc.collect()
    before = left() or 0
    device = kvarc.Device("cuda:0", driver=DRIVER, kernels=KERNELS)
    arrays = kvarc.load(archive, device=device, layers=1)
    with kvarc.open(archive) as r:
        plan = device.plan(r)
    device.close()
    with pytest.raises(ValueError, match="closed"):
        device.read(kvarc.open(archive))
    assert bits(arrays[0][0]).any() and (left() or 0) > before
    del device, arrays, plan
    gc.collect()
    assert (left() or 0) == before


def vector(name):
    return os.path.join(os.path.dirname(__file__), "..", "..", "spec", "vectors", name)


def test_model(archive):
    """The model of an archive; the host decodes."""
    device = kvarc.Device(driver=DRIVER, kernels=KERNELS, exact=KERNELS)
    path, model = vector("good-transformer-7.kva"), vector("transformer.gguf")
    with kvarc.open(path, predictor=model) as r:
        assert device.load_model(r) > 0
        with device.plan(r) as plan:
            assert plan.info["host_chunks"] == 8
            plan.decode(2)
            read, host = plan.finish(), r.read(raw=True)
        assert all(same(bits(read[i]), host[i]) for i in host)
        device.unload_models()
    with kvarc.open(archive) as r, pytest.raises(kvarc.OptionsError, match="not made with a model"):
        device.load_model(r)
    device.close()


def test_model_of_a_writer(tmp_path):
    """In any number of appends; the archive of the host."""
    device = kvarc.Device(driver=DRIVER, kernels=KERNELS, encoders=KERNELS, exact=KERNELS)
    model, profile = vector("transformer.gguf"), vector("good-transformer-6.kvp")
    options = {"level": 6, "profile": profile, "predictor": model, "file_id": b"0123456789abcdef"}
    with kvarc.open(vector("good-transformer-6.kva"), predictor=model, profiles=[profile]) as r:
        tracks, tensors = r.tracks, r.tensors
        ids = np.tile(r.ids(), 40)
        arrays = [np.tile(a, (40, 1, 1)) for a in r.read(raw=True).values()]
    on_gpu = [CudaMemory(a, t.dtype) for a, t in zip(arrays, tensors)]
    with kvarc.Writer(tmp_path / "host.kva", tracks, tensors, **options) as w:
        w.append(0, arrays, ids=ids)
    with kvarc.Writer(tmp_path / "gpu.kva", tracks, tensors, **options) as w:
        assert device.load_model(w) > 0
        assert device.append(w, 0, on_gpu, ids=ids) == len(ids) > 256
    assert (tmp_path / "host.kva").read_bytes() == (tmp_path / "gpu.kva").read_bytes()
    with kvarc.Writer(tmp_path / "no.kva", tracks, tensors) as w, \
            pytest.raises(kvarc.OptionsError, match="the writer has no model"):
        device.load_model(w)
    device.close()


def test_no_gpu(archive, monkeypatch):
    with pytest.raises(kvarc.OptionsError, match="no-such-driver"):
        kvarc.Device(driver="/no-such-driver")
    with pytest.raises(kvarc.OptionsError, match="cuda:3: there is no GPU with the number 3"):
        kvarc.Device("cuda:3", driver=DRIVER, kernels=KERNELS)
    with pytest.raises(kvarc.OptionsError, match="no kernels"):
        kvarc.Device(driver=DRIVER, kernels="/no/kernels")
    monkeypatch.setenv("KVARC_STAND_IN", "no-gpu")
    with pytest.raises(kvarc.OptionsError, match="no GPU"):
        kvarc.Device(driver=DRIVER, kernels=KERNELS)
    monkeypatch.delenv("KVARC_STAND_IN")
    if not os.path.exists("/dev/nvidia0"):
        with pytest.raises(kvarc.OptionsError, match="driver"):
            kvarc.load(archive, device="cuda:0")
    for bad, error in (("cpu", ValueError), ("cuda:x", ValueError), (1.5, TypeError),
                       (-1, ValueError)):
        with pytest.raises(error, match="device"):
            kvarc.Device(bad)
    assert kvarc.device._ordinal(types.SimpleNamespace(type="cuda", index=None)) == 0


def test_failures_of_the_driver(archive, device, monkeypatch):
    monkeypatch.setenv("KVARC_STAND_IN", "no-memory")
    with pytest.raises(kvarc.OutOfMemoryError):
        kvarc.load(archive, device=device)
    monkeypatch.setenv("KVARC_STAND_IN", "no-launch")
    with pytest.raises(kvarc.InputOutputError):
        kvarc.load(archive, device=device)
    monkeypatch.delenv("KVARC_STAND_IN")
    kvarc.load(archive, device=device)
