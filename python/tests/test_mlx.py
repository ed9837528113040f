# SPDX-License-Identifier: BSD-3-Clause
"""Prompt caches of mlx-lm: packed, and loaded as mlx-lm loads its own file."""
import os
import subprocess
import sys

import numpy as np
import pytest

import kvarc

mx = pytest.importorskip("mlx.core")
mlx_cache = pytest.importorskip("mlx_lm.models.cache")
from mlx.utils import tree_flatten  # noqa: E402

import kvarc.mlx  # noqa: E402


def caches():
    made = [mlx_cache.KVCache(), mlx_cache.RotatingKVCache(max_size=64, keep=4)]
    for i, one in enumerate(made):
        for n in (50, 1, 40):
            k, v = (mx.random.normal((1, 2, n, 16), key=mx.random.key(9 * i + n + j)).astype(
                mx.bfloat16) for j in (0, 1))
            one.update_and_fetch(k, v)
    return made


def raw(array):
    return np.array(array.view(mx.uint16))


def test_load_prompt_cache(tmp_path):
    name = str(tmp_path / "prompt.safetensors")
    made = caches()
    mlx_cache.save_prompt_cache(name, made, {"who": "test"})
    # not 2, which would be a warning: all tensors are known
    subprocess.run([sys.executable, "-m", "kvarc", "pack", "-q", "--as-cache", name], check=True)
    archive = next(p for p in tmp_path.iterdir() if p.suffix == ".kva")
    direct, _ = mlx_cache.load_prompt_cache(name, return_metadata=True)
    os.unlink(name)
    back, metadata = kvarc.mlx.load_prompt_cache(str(archive), return_metadata=True)
    assert metadata == {"who": "test"}
    assert [type(c) for c in back] == [type(c) for c in made]
    for a, b in zip(direct, back):
        assert a.offset == b.offset
        for x, y in zip(a.state, b.state):
            assert type(x) is type(y)
            if isinstance(x, mx.array):
                assert x.dtype == y.dtype and np.array_equal(raw(x), raw(y))
            else:
                assert x == y


def hybrid():
    """Layers as those of hybrid models of mlx-lm, with states of their shapes."""
    def state(i, shape, dtype):
        return mx.random.normal(shape, key=mx.random.key(i)).astype(dtype)
    made = [mlx_cache.ArraysCache(size=2), mlx_cache.KVCache(), mlx_cache.ArraysCache(size=2)]
    made[0][0] = state(1, (1, 3, 192), mx.bfloat16)
    made[0][1] = state(2, (1, 4, 32, 48), mx.float32)
    made[1].update_and_fetch(*(state(i, (1, 2, 50, 16), mx.bfloat16) for i in (3, 4)))
    made[2][0] = state(5, (1, 2, 64), mx.bfloat16)  # the other one was never set
    return made


def pack(path, name):
    run = subprocess.run([sys.executable, "-m", "kvarc", "pack", "-q", "--as-cache", "-o",
                          str(path), name])
    assert run.returncode == 0
    with kvarc.Reader(path) as reader:
        tensors = [(t.layer, t.kind, t.dtype, t.channels) for t in reader.tensors]
        with open(name, "rb") as f:
            assert reader.unpack([n for n, _ in reader.items])[reader.items[0][0]] == f.read()
    return tensors


def test_states(tmp_path):
    name = str(tmp_path / "prompt.safetensors")
    mlx_cache.save_prompt_cache(name, hybrid())
    assert sorted(pack(tmp_path / "x.kva", name)) == [
        (0, "conv_state", "bf16", 192), (0, "recurrent_state", "f32", 48),
        (1, "key", "bf16", 16), (1, "value", "bf16", 16), (2, "conv_state", "bf16", 64)]
    direct = mlx_cache.load_prompt_cache(name)
    back = kvarc.mlx.load_prompt_cache(str(tmp_path / "x.kva"))
    assert [type(c) for c in back] == [type(c) for c in direct]
    for i in (0, 2):
        for x, y in zip(direct[i].cache, back[i].cache):
            assert x is y is None or x.dtype == y.dtype and bool(mx.array_equal(x, y))


def cache_lists():
    """Caches of several parts, as falcon_h1, deepseek_v32 and baichuan_m1 of mlx-lm make them."""
    def random(i, shape, dtype=mx.bfloat16):
        return mx.random.normal(shape, key=mx.random.key(i)).astype(dtype)

    def filled(one, i, heads=2, channels=(16, 16)):
        one.update_and_fetch(*(random(2 * i + j, (1, heads, 50, c)) for j, c in enumerate(channels)))
        return one
    states = mlx_cache.ArraysCache(size=2)
    states[0], states[1] = random(1, (1, 3, 192)), random(2, (1, 4, 32, 48), mx.float32)
    return [
        mlx_cache.CacheList(states, filled(mlx_cache.KVCache(), 2)),
        # latents, and an indexer that has keys alone
        mlx_cache.CacheList(filled(mlx_cache.KVCache(), 3, 1, (64, 8)),
                            filled(mlx_cache.KVCache(), 4, 1, (24, 0))),
        mlx_cache.CacheList(filled(mlx_cache.RotatingKVCache(max_size=64, keep=4), 5),
                            mlx_cache.KVCache()),  # never used
    ]


def arrays_of(caches):
    return [x for _, x in tree_flatten([c.state for c in caches]) if isinstance(x, mx.array)]


def test_cache_lists(tmp_path):
    name = str(tmp_path / "prompt.safetensors")
    made = cache_lists()
    mlx_cache.save_prompt_cache(name, made)
    assert sorted(pack(tmp_path / "x.kva", name)) == [
        (0, "conv_state", "bf16", 192), (0, "key", "bf16", 16), (0, "recurrent_state", "f32", 48),
        (0, "value", "bf16", 16), (1, "key", "bf16", 24), (1, "key", "bf16", 64),
        (1, "value", "bf16", 8), (2, "key", "bf16", 16), (2, "value", "bf16", 16)]
    back = kvarc.mlx.load_prompt_cache(str(tmp_path / "x.kva"))
    direct = mlx_cache.load_prompt_cache(name)
    assert [[type(c) for c in one.caches] for one in back] == [
        [type(c) for c in one.caches] for one in direct] == [
        [type(c) for c in one.caches] for one in made]
    for x, y in zip(arrays_of(direct), arrays_of(back), strict=True):
        assert x.dtype == y.dtype and bool(mx.array_equal(x, y))


@pytest.mark.parametrize("make", (caches, hybrid, cache_lists))
def test_save_prompt_cache(tmp_path, make):
    """Lists of caches in and out, without a file of mlx-lm between."""
    made, path = make(), tmp_path / "x.kva"
    size = kvarc.mlx.save_prompt_cache(path, made, {"who": "test"}, verify=True)
    assert size == path.stat().st_size < sum(x.nbytes for x in arrays_of(made))
    assert os.listdir(tmp_path) == ["x.kva"]
    kvarc.verify(path)
    back, metadata = kvarc.mlx.load_prompt_cache(path, return_metadata=True)
    assert metadata == {"who": "test"} and [type(c) for c in back] == [type(c) for c in made]
    mlx_cache.save_prompt_cache(str(tmp_path / "direct.safetensors"), made)
    direct = mlx_cache.load_prompt_cache(str(tmp_path / "direct.safetensors"))
    for x, y in zip(arrays_of(direct), arrays_of(back), strict=True):
        assert x.dtype == y.dtype and bool(mx.array_equal(x, y))
    kvarc.mlx.save_prompt_cache(path, made, key=b"k" * 32)  # replaces it
    with pytest.raises(kvarc.AuthError):
        kvarc.mlx.load_prompt_cache(path)
    assert len(kvarc.mlx.load_prompt_cache(path, key=b"k" * 32)) == len(made)
    with pytest.raises(FileNotFoundError):
        kvarc.mlx.save_prompt_cache(tmp_path / "absent" / "x.kva", made)


def test_quantised_in_a_list(tmp_path):
    """Stays bytes; the cache beside it does not."""
    one = mlx_cache.KVCache()
    one.update_and_fetch(*(mx.random.normal((1, 2, 50, 64), key=mx.random.key(i)).astype(mx.bfloat16)
                           for i in (0, 1)))
    name = str(tmp_path / "prompt.safetensors")
    mlx_cache.save_prompt_cache(name, [mlx_cache.CacheList(one.to_quantized(64, 8), one)])
    assert sorted(pack(tmp_path / "x.kva", name)) == [(0, "key", "bf16", 64), (0, "value", "bf16", 64)]


def test_other_archive(tmp_path):
    kvarc.save(tmp_path / "x.kva", [(np.zeros((1, 4, 8), np.float16),) * 2])
    with pytest.raises(kvarc.OptionsError, match="0 safetensors files"):
        kvarc.mlx.load_prompt_cache(tmp_path / "x.kva")


@pytest.mark.parametrize("padding", [[0, 0, 0], [0, 24, 8]])
def test_batch(tmp_path, padding):
    """Sequences of a batch that begin with the same tokens, with left padding, too."""
    def rows(key, n):
        return mx.random.normal((1, 2, n, 16), key=mx.random.key(key)).astype(mx.bfloat16)
    made = []
    for layer in range(2):
        caches = [mlx_cache.KVCache() for _ in padding]
        for i, one in enumerate(caches):
            one.update_and_fetch(rows(layer, 200), rows(layer + 2, 200))
            n = 40 - padding[i]
            one.update_and_fetch(rows(10 * i + layer + 4, n), rows(10 * i + layer + 6, n))
        made.append(mlx_cache.BatchKVCache.merge(caches))
    assert made[0].left_padding.tolist() == padding
    name = str(tmp_path / "prompt.safetensors")
    mlx_cache.save_prompt_cache(name, made)
    pack(tmp_path / "x.kva", name)
    # 200 of 240 rows are in the archive once
    assert os.path.getsize(tmp_path / "x.kva") < 0.5 * os.path.getsize(name)
    back = kvarc.mlx.load_prompt_cache(str(tmp_path / "x.kva"))
    for x, y in zip(arrays_of(made), arrays_of(back), strict=True):
        assert x.dtype == y.dtype and bool(mx.array_equal(x, y))
    with kvarc.Reader(tmp_path / "x.kva") as reader:
        for i, tensor in enumerate(reader.tensors):
            part = reader.read(tensor.track, tokens=(190, 230), raw=True)[i]
            cache = made[tensor.layer]
            want = raw(cache.keys if tensor.kind == "key" else cache.values)[tensor.track]
            assert np.array_equal(part.view(np.uint16), want[:, 190:230].swapaxes(0, 1))
