# SPDX-License-Identifier: BSD-3-Clause
"""Whole caches: every bit, shape, dtype and text that is saved comes back."""
import io
import os

import numpy as np
import pytest
from conftest import bf16, make_pairs, same, same_pairs

import kvarc
from kvarc import _safetensors


def test_pairs(tmp_path, pairs):
    path, ids = tmp_path / "a.kva", np.arange(300) + 7
    stats = kvarc.save(path, pairs, tokens=ids, model="m", dtype="bf16", metadata={"turn": 3})
    assert stats["file_bytes"] == os.path.getsize(path)
    assert stats["raw_bytes"] >= sum(k.nbytes + v.nbytes for k, v in pairs)
    found = kvarc.load(path, raw=True)
    assert type(found) is kvarc.Pairs and isinstance(found, list) and same_pairs(found, pairs)
    assert (found.model, found.metadata) == ("m", {"turn": 3})
    assert same(found.tokens, ids.astype(np.int32))
    cache = kvarc.load_cache(path, raw=True)
    assert cache.model == "m" and cache.metadata["user"] == {"turn": 3}
    assert same(cache.tokens, ids.astype(np.int32))
    assert cache.layers[0].dtypes == {"key": "bf16", "value": "bf16"}
    assert not [n for n in os.listdir(tmp_path) if n != "a.kva"]


def test_dtype_of_ml_dtypes(tmp_path, pairs):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    given = [(k.view(ml_dtypes.bfloat16), v.view(ml_dtypes.bfloat16)) for k, v in pairs]
    kvarc.save(tmp_path / "a.kva", given)
    back = kvarc.load(tmp_path / "a.kva")
    assert back[0][0].dtype == ml_dtypes.bfloat16 and same_pairs(back, given)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint8])
def test_dtypes(tmp_path, dtype):
    rng = np.random.default_rng(2)
    given = [tuple((rng.standard_normal((2, 70, 32)) * 9).astype(dtype) for _ in range(2))]
    kvarc.save(tmp_path / "a.kva", given)
    back = kvarc.load(tmp_path / "a.kva")
    assert back[0][0].dtype == dtype and same_pairs(back, given)


def test_every_bit_pattern(tmp_path):
    bits = np.arange(65536, dtype=np.uint16).reshape(1, 1024, 64)
    for dtype in ("bf16", "f16"):
        given = [(bits, bits[:, ::-1])]
        kvarc.save(tmp_path / "a.kva", given, dtype=dtype, level=1)
        assert same_pairs([tuple(a.view(np.uint16) for a in kvarc.load(tmp_path / "a.kva",
                                                                       raw=True)[0])], given)


def test_by_layer_number(tmp_path, pairs):
    given = {2: pairs[0], 5: pairs[1]}
    kvarc.save(tmp_path / "a.kva", given, dtype="bf16")
    back = kvarc.load(tmp_path / "a.kva", raw=True)
    assert sorted(back) == [2, 5] and same_pairs(back.values(), given.values())
    assert type(back) is kvarc.PairsByLayer and back.tokens is None


def test_batch(tmp_path):
    pairs = [tuple(np.stack([a, b]) for a, b in zip(p, q))
             for p, q in zip(make_pairs(seed=1), make_pairs(seed=2))]
    ids = np.arange(600).reshape(2, 300)
    kvarc.save(tmp_path / "a.kva", pairs, tokens=ids, dtype="bf16")
    assert same_pairs(kvarc.load(tmp_path / "a.kva", raw=True), pairs)
    assert same(kvarc.load_cache(tmp_path / "a.kva").tokens, ids.astype(np.int32))


def test_strides(tmp_path, pairs):
    given = [(k.transpose(1, 0, 2).copy().transpose(1, 0, 2), np.flip(v, 2)) for k, v in pairs]
    kvarc.save(tmp_path / "a.kva", given, dtype="bf16")
    assert same_pairs(kvarc.load(tmp_path / "a.kva", raw=True), given)


def hybrid(tokens=200, window=64):
    """Full attention, a sliding window, a recurrent layer, one without anything."""
    rng = np.random.default_rng(3)
    k, v = (bf16(rng.standard_normal((1, 2, tokens, 32))) for _ in range(2))
    tag = {"key": "bf16", "value": "bf16"}
    low = tokens - window + 1
    return kvarc.Cache([
        kvarc.Layer({"key": k, "value": v}, dtypes=tag),
        kvarc.Layer({"key": k[:, :, low:], "value": v[:, :, low:]}, dtypes=tag, window=window,
                    positions=np.arange(low, tokens), metadata={"cumulative_length": tokens}),
        kvarc.Layer(states={
            "conv": rng.standard_normal((1, 50, 4)).astype(np.float32),
            "recurrent": rng.standard_normal((1, 3, 16, 32)).astype(np.float32),
            "bits": bf16(rng.standard_normal((1, 7))), "none": np.zeros((0, 4), np.float32),
            "flags": np.array([True, False]), "steps": np.array([2**40, -1]),
            "scalar": np.array(1.5)}, dtypes={"bits": "bf16"}),
        kvarc.Layer()], tokens=np.arange(tokens), metadata={"é": [1, None, "x"]},
        identity={"engine": "test"})


def check_hybrid(a, b):
    assert len(a.layers) == len(b.layers)
    for x, y in zip(a.layers, b.layers):
        assert list(x.tensors) == list(y.tensors) and list(x.states) == list(y.states)
        assert all(same(x.tensors[n], y.tensors[n]) for n in x.tensors)
        for n in x.states:
            assert same(x.states[n], y.states[n]) and x.states[n].dtype == y.states[n].dtype
        assert (x.window, x.metadata) == (y.window, y.metadata)
        assert x.positions is None and y.positions is None or \
            np.array_equal(x.positions, y.positions)
    assert np.array_equal(a.tokens, b.tokens) and a.metadata == b.metadata


def test_hybrid(tmp_path):
    given = hybrid()
    kvarc.save(tmp_path / "a.kva", given)
    check_hybrid(given, kvarc.load(tmp_path / "a.kva", raw=True))
    assert kvarc.info(tmp_path / "a.kva")["identity"]["engine"] == "test"


def test_more_ids_than_tokens(tmp_path, pairs):
    ids = np.arange(301)
    kvarc.save(tmp_path / "a.kva", pairs, tokens=ids, dtype="bf16")
    assert np.array_equal(kvarc.load_cache(tmp_path / "a.kva").tokens, ids)


def test_ranges(tmp_path, pairs):
    kvarc.save(tmp_path / "a.kva", pairs, tokens=np.arange(300), dtype="bf16")
    cache = kvarc.load_cache(tmp_path / "a.kva", layers=(1, 3), tokens=(20, 290), raw=True)
    assert len(cache.layers) == 2 and np.array_equal(cache.tokens, np.arange(20, 290))
    assert same(cache.layers[0].tensors["key"][0], pairs[1][0][:, 20:290])
    with pytest.raises(kvarc.GeometryError, match="there are 300"):
        kvarc.load(tmp_path / "a.kva", tokens=(0, 301))
    with pytest.raises(kvarc.GeometryError, match="there are 3"):
        kvarc.load(tmp_path / "a.kva", layers=3)
    kvarc.save(tmp_path / "w.kva", hybrid())
    with pytest.raises(kvarc.OptionsError, match="sliding window"):
        kvarc.load(tmp_path / "w.kva", tokens=10)


def test_torch(tmp_path, pairs):
    torch = pytest.importorskip("torch")
    given = [tuple(torch.from_numpy(a.view(np.int16)).view(torch.bfloat16) for a in p)
             for p in pairs]
    kvarc.save(tmp_path / "a.kva", given)
    assert same_pairs(kvarc.load(tmp_path / "a.kva", raw=True), pairs)


@pytest.mark.parametrize("level", [0, 1])
def test_same_bytes_again(level, pairs):
    files = [io.BytesIO(), io.BytesIO()]
    for i, file in enumerate(files):
        kvarc.save(file, pairs, dtype="bf16", level=level, file_id=b"x" * 16, threads=1 + i)
    assert files[0].getvalue() == files[1].getvalue()


def test_refused(tmp_path, pairs):
    path = tmp_path / "a.kva"
    for bad, error in ((pairs, "dtype="), ([(1, 2, 3)], "pair"), (object(), "no cache"),
                       ([(np.zeros((3, 4)), np.zeros((3, 4)))], "float64"),
                       ([(np.zeros((2, 3), np.float16),) * 2], "shape")):
        with pytest.raises((TypeError, ValueError), match=error):
            kvarc.save(path, bad)
    with pytest.raises(ValueError, match="ids"):
        kvarc.save(path, pairs, dtype="bf16", tokens=[1, 2])
    with pytest.raises(TypeError, match="levle"):
        kvarc.save(path, pairs, dtype="bf16", levle=1)
    assert not os.listdir(tmp_path)


def test_overwrite(tmp_path, pairs):
    path = tmp_path / "a.kva"
    kvarc.save(path, pairs, dtype="bf16")
    kvarc.save(path, pairs[:1], dtype="bf16")
    assert len(kvarc.load(path)) == 1
    with pytest.raises(FileExistsError):
        kvarc.save(path, pairs, dtype="bf16", overwrite=False)
    with pytest.raises(ValueError):
        kvarc.save(path, pairs, dtype="bf16", tokens=[1])
    assert len(kvarc.load(path)) == 1 and os.listdir(tmp_path) == ["a.kva"]


@pytest.mark.parametrize("metadata", [{1: 2}, {"a": (1, 2)}, {"a": [{2: 3}]}, {"a": b"x"},
                                      {"a": np.arange(2)}])
def test_metadata_that_json_changes(pairs, metadata):
    for cache, options in (pairs, {"metadata": metadata, "dtype": "bf16"}), \
            (kvarc.Cache([kvarc.Layer(metadata=metadata)]), {}):
        with pytest.raises(TypeError, match="metadata.*JSON"):
            kvarc.save(io.BytesIO(), cache, **options)
        with pytest.raises(TypeError, match="metadata.*JSON"):
            _safetensors.dump(kvarc.to_cache(cache, **options))


def test_states_of_any_dtype():
    """What numpy can name comes back with its dtype, and the rest is refused."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    states = {"f8": np.arange(5.), "complex": np.arange(5) * 1j,
              "date": np.array(["2020-01-01"], "M8[D]"), "big": np.arange(3, dtype=">f4"),
              "text": np.array(["ab", "c"]), "void": np.zeros(3, "V7")}
    file = io.BytesIO()
    kvarc.save(file, kvarc.Cache([kvarc.Layer(states=states)]))
    back = kvarc.load_cache(file.getvalue()).layers[0].states
    for name, array in states.items():
        assert back[name].dtype == array.dtype and same(back[name], array)
    for dtype in ml_dtypes.float8_e8m0fnu, ml_dtypes.int4, ml_dtypes.float8_e4m3fnuz, \
            [("a", "<i4"), ("b", "<f8")]:
        cache = kvarc.Cache([kvarc.Layer(states={"x": np.zeros(128, dtype)})])
        with pytest.raises(TypeError, match="view"):
            kvarc.save(io.BytesIO(), cache)
        with pytest.raises(TypeError, match="view"):
            _safetensors.dump(cache)
