# SPDX-License-Identifier: BSD-3-Clause
"""What makes common things one call: verify, bytes, names of layers, tensors of torch, URLs."""
import io
import os
import sys

import numpy as np
import pytest
from conftest import make_pairs, same, same_pairs
from test_save_load import hybrid

import kvarc
from kvarc import _arrays


def test_verify(tmp_path, pairs):
    path = tmp_path / "a.kva"
    kvarc.save(path, pairs, dtype="bf16", tier="near:0.01", key=b"k" * 32)
    assert kvarc.verify(path, key=b"k" * 32) is None
    with pytest.raises(kvarc.AuthError):
        kvarc.verify(path)
    kvarc.save(path, pairs, dtype="bf16")
    data = bytearray(path.read_bytes())
    assert kvarc.verify(bytes(data)) is None
    data[len(data) // 2] ^= 1
    with pytest.raises(kvarc.DamagedError):
        kvarc.verify(data)


def test_bytes(pairs):
    data = kvarc.dumps(pairs, tokens=range(300), dtype="bf16", level=0, model="m")
    found = kvarc.loads(data, layers=(1, 3), raw=True)
    assert type(data) is bytes and same_pairs(found, pairs[1:])
    assert np.array_equal(found.tokens, np.arange(300)) and found.model == "m"
    assert same_pairs(kvarc.loads(memoryview(data), raw=True), pairs)
    with pytest.raises(TypeError, match="bytes are needed, not str: load"):
        kvarc.loads("a.kva")
    with pytest.raises(ValueError, match="level: 9"):
        kvarc.dumps(pairs, dtype="bf16", level=9)


def test_tokens_alone(tmp_path, pairs):
    batch = [tuple(np.stack([a, a]) for a in p) for p in pairs]
    window = hybrid()
    window.layers, window.tokens = window.layers[1:2], np.arange(200)  # more ids than the window
    for cache, ids, keywords in ((pairs, np.arange(300), {}), (pairs, None, {}),
                                 (batch, np.arange(600).reshape(2, 300), {}),
                                 (pairs, np.arange(310), {"key": b"k" * 32})):
        data = kvarc.dumps(cache, tokens=ids, dtype="bf16", **keywords)
        found = kvarc.load_tokens(data, **keywords)
        assert found is None if ids is None else same(found, ids.astype(np.int32))
    assert same(kvarc.load_tokens(kvarc.dumps(window)), np.arange(200, dtype=np.int32))
    session = kvarc.Session(tmp_path / "s.kva")
    for n in (200, 300):
        session.append([(k[:, :n], v[:, :n]) for k, v in pairs], tokens=range(n), dtype="bf16")
    assert len(kvarc.load_tokens(session.path)) == 300
    assert len(kvarc.load_tokens(session.path, checkpoint=1)) == 200


def test_layers_by_number(pairs):
    with kvarc.open(kvarc.dumps({2: pairs[0], 5: pairs[1]}, dtype="bf16")) as r:
        assert r.keys() == list(r) == [0, 1] and 1 in r and 2 not in r
    with kvarc.open(kvarc.dumps(pairs, dtype="bf16")) as r:
        assert list(r[1]) == ["key", "value"]
        assert all(same(r[n]["key"].transpose(1, 0, 2), pairs[n][0]) for n in r)
        assert sorted(dict(r)) == [0, 1, 2]
        with pytest.raises(KeyError, match="layer 3: the archive has 3 layers, 0 to 2"):
            r[3]
    batch = [tuple(np.stack([a, b]) for a, b in zip(p, q))
             for p, q in zip(pairs, make_pairs(seed=2))]
    with kvarc.open(kvarc.dumps(batch, dtype="bf16")) as r:
        assert sorted(r[0]) == ["key", "key@1", "value", "value@1"]
        assert same(r[2]["value@1"].transpose(1, 0, 2), batch[2][1][1])
    with kvarc.open(kvarc.dumps(hybrid())) as r:  # states have no tokens, and no name here
        assert r.keys() == [0, 1] and r[1]["key"].shape == (63, 2, 32)


def test_codecs_have_names(pairs, monkeypatch):
    for level, name in (0, "layers"), (1, "cells"):
        codecs = kvarc.info(kvarc.dumps(pairs, dtype="bf16", level=level))["codecs"]
        assert type(codecs) is tuple and name in codecs
        with kvarc.open(kvarc.dumps(pairs, dtype="bf16", level=level)) as r:
            assert r.info["codecs"] == codecs
    from kvarc.reader import _codec_names
    assert _codec_names(0) == () and _codec_names(1 << 63 | 1 << 62) == ("unknown-62", "later")


def test_tensors_in_and_out(tmp_path, pairs):
    torch = pytest.importorskip("torch")
    given = [tuple(torch.from_numpy(a.view(np.int16)).view(torch.bfloat16) for a in p)
             for p in pairs]
    kvarc.save(tmp_path / "a.kva", given, tokens=torch.arange(300), device="cpu")
    session = kvarc.Session(tmp_path / "s.kva")
    session.append(given)
    with kvarc.Store(tmp_path / "store") as store:
        store.save("a", given)
        for found in (kvarc.load(tmp_path / "a.kva", like="torch"),
                      kvarc.load(tmp_path / "a.kva", device="cpu"),
                      kvarc.load(tmp_path / "a.kva", device=torch.device("cpu")),
                      kvarc.loads((tmp_path / "a.kva").read_bytes(), like="torch"),
                      session.load(like="torch"), store.load("a", like="torch"),
                      store.load("a", device="cpu")):
            for p, q in zip(found, given):
                assert all(a.dtype == torch.bfloat16 and torch.equal(a, b) for a, b in zip(p, q))
    part = kvarc.load(tmp_path / "a.kva", layers=1, tokens=(10, 20), like="torch")
    assert torch.equal(part[0][0], given[1][0][:, 10:20])
    assert isinstance(kvarc.load(tmp_path / "a.kva")[0][0], np.ndarray)
    assert isinstance(kvarc.load(tmp_path / "a.kva", like="numpy", device="cpu")[0][0], np.ndarray)
    assert kvarc.load(tmp_path / "a.kva", device="meta")[0][0].device.type == "meta"
    for keywords, words in (({"like": "jax"}, "like: .*'jax'"), ({"device": "gpu"}, "'gpu' is no"),
                            ({"like": "numpy", "device": "meta"}, "numpy are not on meta"),
                            ({"like": "torch", "raw": True}, "raw: bits")):
        with pytest.raises(ValueError, match=words):
            kvarc.load(tmp_path / "a.kva", **keywords)


def test_every_dtype_of_torch(tmp_path):
    torch = pytest.importorskip("torch")
    bits = torch.arange(3 * 256, dtype=torch.int64).to(torch.uint8).reshape(1, 3, 256)
    bits = torch.cat([bits] * 4, 2)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
                  torch.float8_e5m2, torch.int8, torch.uint8):
        tensor = bits.view(dtype)
        back = kvarc.loads(kvarc.dumps([(tensor, tensor.flip(1))]), like="torch")[0]
        assert back[0].dtype == dtype
        assert torch.equal(back[0].view(torch.uint8), bits)
        assert torch.equal(back[1].view(torch.uint8), bits.flip(1))
    states = {"conv": torch.randn(1, 5, 4, dtype=torch.bfloat16), "flags": torch.tensor([True]),
              "steps": torch.tensor([1 << 40])}
    data = kvarc.dumps(kvarc.Cache([kvarc.Layer(states=states)]))
    found = kvarc.loads(data, like="torch").layers[0].states
    assert all(torch.equal(found[n], states[n]) and found[n].dtype == states[n].dtype
               for n in states)


def test_tensors_are_read_into_where_they_are(monkeypatch):
    """The library decodes into the tensor's memory: nothing goes through another array."""
    torch = pytest.importorskip("torch")
    tensor = torch.randn(2, 70, 32).to(torch.bfloat16)
    data = kvarc.dumps([(tensor, tensor)])
    into, made = [], []
    read, empty = kvarc.Reader.read, torch.empty
    monkeypatch.setattr(kvarc.Reader, "read", lambda self, *a, **k: (
        into.extend(t.data_ptr() for t in (k.get("out") or {}).values()), read(self, *a, **k))[1])
    monkeypatch.setattr(torch, "empty", lambda *a, **k: (made.append(empty(*a, **k)), made[-1])[1])
    back = kvarc.load(data, like="torch")[0]
    assert torch.equal(back[0], tensor) and torch.equal(back[1], tensor)
    assert [t.data_ptr() for t in back] == [t.data_ptr() for t in made] == into


class Dlpack:
    """A stand-in of an array that has DLPack alone, as those of mlx: no __array__, no buffer of
    its dtype, and no keywords of __dlpack__."""

    def __init__(self, array, name):
        self.array, self.name = array, name

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self):
        from kvarc import _dlpack
        strides = [s // self.array.itemsize for s in self.array.strides]
        return _dlpack.give(self.array.ctypes.data, self.array.shape, strides, self.name, (1, 0),
                            self.array)


@pytest.mark.parametrize("name, kind", [("bf16", np.uint16), ("e4m3", np.uint8),
                                        ("e5m2", np.uint8)])
def test_arrays_with_dlpack_alone(name, kind):
    array = np.arange(2 * 70 * 32).astype(kind).reshape(70, 2, 32).transpose(1, 0, 2)
    found, dtype = _arrays.as_bits(Dlpack(array, name))
    assert dtype == name and np.shares_memory(found, array) and same(found, array)
    given = [(Dlpack(array, name),) * 2]
    back = kvarc.load_cache(kvarc.dumps(given), raw=True).layers[0]
    assert back.dtypes == {"key": name, "value": name} and same(back.tensors["key"][0], array)
    with pytest.raises(TypeError, match="are not f16"):
        kvarc.dumps(given, dtype="f16")


def test_arrays_of_mlx():
    mx = pytest.importorskip("mlx.core")
    array = mx.arange(2 * 70 * 32).reshape(2, 70, 32)
    for dtype, name in ((mx.bfloat16, "bf16"), (mx.float16, "f16"), (mx.float32, "f32")):
        one = array.astype(dtype)
        back = kvarc.load_cache(kvarc.dumps([(one, one)]), raw=True).layers[0]
        assert back.dtypes["key"] == name
        width = {2: mx.uint16, 4: mx.uint32}[one.itemsize]
        assert same(back.tensors["key"][0].view(f"u{one.itemsize}"), np.array(one.view(width)))


@pytest.fixture
def memory():
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


def test_urls(memory, pairs, tmp_path):
    url = "memory://folder/a.kva"
    stats = kvarc.save(url, pairs, tokens=range(300), dtype="bf16")
    assert memory.size("/folder/a.kva") == stats["file_bytes"]
    assert same_pairs(kvarc.load(url, raw=True), pairs)
    assert same_pairs(kvarc.load(url, raw=True, layers=1), pairs[1:2])
    assert kvarc.info(url)["layers"] == 3 and kvarc.verify(url) is None
    with kvarc.open(url) as r:
        assert r.ids().tolist() == list(range(300))
    with pytest.raises(FileExistsError):
        kvarc.save(url, pairs[:1], dtype="bf16", overwrite=False)
    kvarc.save(url, pairs[:1], dtype="bf16")
    assert len(kvarc.load(url)) == 1
    local = f"file://{tmp_path}/b.kva"
    kvarc.save(local, pairs, dtype="bf16")
    assert os.listdir(tmp_path) == ["b.kva"] and same_pairs(kvarc.load(local, raw=True), pairs)
    with pytest.raises(FileNotFoundError) as e:
        kvarc.load("memory://none.kva")
    assert isinstance(e.value, kvarc.InputOutputError)


def test_urls_have_whole_archives_or_none(memory, pairs, tmp_path):
    def stop(done, total):
        raise RuntimeError("stop")
    for url in "memory://a.kva", f"file://{tmp_path}/a.kva":
        with pytest.raises(kvarc.Error):
            kvarc.save(url, pairs, dtype="bf16", progress=stop)
    w = kvarc.Writer("memory://b.kva", [kvarc.Track()], [kvarc.Tensor(0, "key", "f16", 1, 8)])
    w.append(0, [np.zeros((9, 1, 8), np.float16)])
    w.abort()
    assert not memory.store and not os.listdir(tmp_path)


def test_urls_that_cannot_be_opened(monkeypatch, pairs):
    with pytest.raises(kvarc.OptionsError, match="nonsense://u.*[Pp]rotocol not known"):
        kvarc.load("nonsense://u/a.kva")
    with pytest.raises(ValueError, match="needs a file of this machine"):
        kvarc.Session("memory://a.kva")
    with pytest.raises(ValueError, match="cannot be continued"):
        kvarc.Writer("memory://a.kva", append=True)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    for call in (lambda: kvarc.load("s3://b/a.kva"),
                 lambda: kvarc.save("s3://b/a.kva", pairs, dtype="bf16")):
        with pytest.raises(kvarc.OptionsError, match="s3://b/a.kva: URLs need fsspec: pip install"):
            call()


def test_names_with_colons_are_paths(tmp_path, pairs, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in "a:b.kva", "a::b.kva":
        kvarc.save(name, pairs, dtype="bf16")
        assert same_pairs(kvarc.load(name, raw=True), pairs)
    assert sorted(os.listdir()) == ["a::b.kva", "a:b.kva"]


def test_save_on_the_cpu(pairs):
    file = io.BytesIO()
    kvarc.save(file, pairs, dtype="bf16", device="cpu")
    assert same_pairs(kvarc.load(file.getvalue(), raw=True, device="cpu"), pairs)
