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
    subprocess.run([sys.executable, "-m", "kvarc", "pack", "-q", name], check=True)
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


def test_other_archive(tmp_path):
    kvarc.save(tmp_path / "x.kva", [(np.zeros((1, 4, 8), np.float16),) * 2])
    with pytest.raises(kvarc.OptionsError, match="0 safetensors files"):
        kvarc.mlx.load_prompt_cache(tmp_path / "x.kva")
