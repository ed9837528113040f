# SPDX-License-Identifier: BSD-3-Clause
"""key_file, ttl and budgets of the adapters of LMCache, vLLM and SGLang."""
import glob
import os
import time

import numpy as np
import pytest

import kvarc
from kvarc._coding import coding
from test_serving import LAYERS, PAGE, TOKENS, cache, disk, engine, lmcache_find, lmcache_key, \
    lmcache_load, lmcache_objects, lmcache_store, make_hicache, make_tier, vllm_job, vllm_keys

HEX = "00112233445566778899AABBCCDDEEFF" * 2


def write_key(path, data, mode=0o600):
    path.write_bytes(data)
    path.chmod(mode)
    return str(path)


def test_key_files(tmp_path):
    """As `kvarc keygen` makes them: 32 bytes, or 64 digits and the end of a line."""
    for data in bytes.fromhex(HEX), HEX.encode(), HEX.lower().encode() + b"\n", \
            HEX.encode() + b"\r\n":
        assert coding(key_file=write_key(tmp_path / "k", data))["key"] == bytes.fromhex(HEX)
    assert coding()["key"] is None
    for data in b"", b"short", HEX.encode()[:-1], HEX.encode() + b"0", b"x" * 64, b"\xff" * 64, \
            b" ".join([HEX.encode()[:62], b"0"]), bytes(33), bytes(1000):
        with pytest.raises(ValueError, match="key_file: .*is no key: 32 bytes") as e:
            coding(key_file=write_key(tmp_path / "k", data))
        assert "\n" not in str(e.value)
    for mode in 0o640, 0o604, 0o660:
        with pytest.raises(ValueError, match="others may read or change this key"):
            coding(key_file=write_key(tmp_path / "k", bytes(32), mode))
    with pytest.raises(ValueError, match="key_file: .*No such file"):
        coding(key_file=str(tmp_path / "absent"))


class Vllm:
    """A tier with chunks to store and load."""

    names = {"key_file": "key_file", "ttl": "ttl", "budget": "budget_bytes"}
    files = "tier/**/*.kva"

    def __init__(self, folder, **options):
        engine("vllm.v1.kv_offload.tiering.factory")
        self.tier, self.primary, self.n = make_tier(str(folder / "tier"), **options)
        self.keys = vllm_keys(self.n)

    def store(self, i):
        assert vllm_job(self.tier, self.tier.submit_store, [self.keys[i]], [i]).success

    def has(self, i):
        return self.tier.has(self.keys[i])

    def load(self, i):
        self.primary[self.n] = 0
        found = vllm_job(self.tier, self.tier.submit_load, [self.keys[i]], [self.n]).success
        assert not found or np.array_equal(self.primary[i], self.primary[self.n])
        return found

    def close(self):
        self.tier.shutdown()


class Lmcache:
    """An adapter with chunks to store and load."""

    names = {"key_file": "key_file", "ttl": "ttl", "budget": "budget_bytes"}
    files = "l2/**/*.kva"

    def __init__(self, folder, **options):
        engine("lmcache.v1.distributed.l2_adapters.base")
        from kvarc.lmcache import KvarcL2Adapter
        self.adapter = KvarcL2Adapter({"path": str(folder / "l2"), **options})
        bits, self.n = cache(), TOKENS // PAGE
        self.objects = [lmcache_objects(bits[:, :, i * PAGE:][:, :, :PAGE]) for i in range(self.n)]

    def store(self, i):
        assert lmcache_store(self.adapter, [lmcache_key(i)], [self.objects[i]]).is_successful()

    def has(self, i):
        from lmcache.v1.distributed.api import MemoryLayoutDesc
        obj = self.objects[i]
        return lmcache_find(self.adapter, [lmcache_key(i)],
                            {0: MemoryLayoutDesc([obj.get_shape()], [obj.get_dtype()])}) == [0]

    def load(self, i):
        back = lmcache_objects(np.zeros((2, LAYERS, PAGE, 3, 64), np.uint16))
        found = lmcache_load(self.adapter, [lmcache_key(i)], [back]) == [0]
        assert not found or bytes(back.byte_array) == bytes(self.objects[i].byte_array)
        return found

    def close(self):
        self.adapter.close()


class Sglang:
    """A backend over a folder, with pages to store and load."""

    names = {"key_file": "kvarc_key_file", "ttl": "kvarc_ttl", "budget": "max_size"}
    files = "hi/*.bin"
    where = "file_storage_path"

    def __init__(self, folder, **options):
        torch = pytest.importorskip("torch")
        engine("sglang.srt.mem_cache.pool_host.mha")
        if "max_size" in options:  # SGLang itself keeps nine tenths of it
            options["eviction_ratio"] = 1.0
        self.backend, self.pool = make_hicache(
            "page_head", **{self.where: str(folder / "hi")}, **options)
        self.n = TOKENS // PAGE
        self.indices = torch.arange(TOKENS)
        self.want = self.pool.kv_buffer.clone()

    def _of(self, i):
        return [f"k{i}"], self.indices[i * PAGE:(i + 1) * PAGE]

    def store(self, i):
        assert self.backend.batch_set_v1(*self._of(i)) == [True]

    def has(self, i):
        found = self.backend.exists(f"k{i}")
        assert self.backend.batch_exists_v2([f"k{i}"]).kv_hit_pages == found
        return found

    def load(self, i):
        import torch
        self.pool.kv_buffer.zero_()
        [found] = self.backend.batch_get_v1(*self._of(i))
        same = torch.equal(self.pool.kv_buffer[:, i].view(torch.int16),
                           self.want[:, i].view(torch.int16))
        self.pool.kv_buffer.copy_(self.want)
        assert not found or same
        return found

    def close(self):
        pass


class SglangStore(Sglang):
    """The same over a store."""

    names = {**Sglang.names, "budget": "kvarc_budget_bytes"}
    files = "hi/**/*.kva"
    where = "kvarc_store"


ALL = [Vllm, Lmcache, Sglang, SglangStore]


def opened(of, folder, **options):
    return of(folder, **{of.names[name]: value for name, value in options.items()})


def files_of(of, folder):
    return glob.glob(str(folder / of.files), recursive=True)


def make_old(of, folder, seconds):
    for file in files_of(of, folder):
        os.utime(file, (time.time() - seconds,) * 2)


@pytest.mark.parametrize("of", ALL)
def test_key_file(of, tmp_path):
    key_file = write_key(tmp_path / "a.key", HEX.encode())
    a = opened(of, tmp_path, key_file=key_file)
    a.store(0)
    assert a.has(0) and a.load(0)
    [file] = files_of(of, tmp_path)
    with pytest.raises(kvarc.AuthError) as e:
        kvarc.open(file)
    assert "\n" not in str(e.value) and "encrypted" in str(e.value)
    with kvarc.open(file, key=bytes.fromhex(HEX)) as r:
        r.verify()
    for other in {}, {"key_file": write_key(tmp_path / "b.key", bytes(32))}:
        b = opened(of, tmp_path, **other)
        assert not b.has(0) and not b.load(0)
        b.store(0)  # its own, beside the other
        assert b.load(0) and a.load(0)
        b.close()
    # no name of a file shows which block it is
    assert not [f for f in files_of(of, tmp_path) if "k0" in os.path.basename(f)
                and kvarc.open(f, key=bytes.fromhex(HEX)).info["encrypted"]]
    again = opened(of, tmp_path, key_file=key_file)
    assert again.load(0)
    again.close()
    a.close()
    with pytest.raises(ValueError, match="is no key"):
        opened(of, tmp_path, key_file=write_key(tmp_path / "c.key", b"no key"))


@pytest.mark.parametrize("of", ALL)
def test_ttl(of, tmp_path):
    a = opened(of, tmp_path, ttl=50)
    for i in 0, 1, 2:
        a.store(i)
    assert a.has(0) and a.load(0)
    make_old(of, tmp_path, 100)
    assert not a.has(0) and not a.load(1)
    assert len(files_of(of, tmp_path)) == 1  # these two are removed
    a.store(1)
    assert a.load(1) and len(files_of(of, tmp_path)) == 2
    a.close()
    b = opened(of, tmp_path, ttl=50)  # the third one, at the start
    assert len(files_of(of, tmp_path)) == 1 and b.load(1) and not b.has(2)
    b.close()


@pytest.mark.parametrize("of", ALL)
def test_budget_keeps_the_newest(of, tmp_path):
    probe = opened(of, tmp_path / "probe")
    for i in range(probe.n):
        probe.store(i)
    sizes = [os.path.getsize(f) for f in files_of(of, tmp_path / "probe")]
    probe.close()
    budget = int(sum(sizes) / len(sizes) * 2.5)
    a = opened(of, tmp_path, budget=budget)
    for i in range(a.n):
        a.store(i)
        assert disk(str(tmp_path / of.files)) <= budget
    assert [i for i in range(a.n) if a.has(i)] == [a.n - 2, a.n - 1]
    a.close()
    c = opened(of, tmp_path, budget=budget * 2)  # of the process before
    assert [i for i in range(c.n) if c.load(i)] == [c.n - 2, c.n - 1]
    c.close()


def test_lmcache_counts(tmp_path):
    """LMCache counts what is there, also behind records that have expired."""
    a = Lmcache(tmp_path, ttl=50)
    for i in range(3):
        a.store(i)
    used = a.adapter.get_usage().total_bytes_used
    assert used == disk(str(tmp_path / a.files))
    make_old(Lmcache, tmp_path, 100)
    for i in range(3):
        assert not a.load(i)
        a.store(i)
    assert a.adapter.get_usage().total_bytes_used == used == disk(str(tmp_path / a.files))
    make_old(Lmcache, tmp_path, 100)
    assert not a.has(0)
    a.adapter.delete([lmcache_key(i) for i in range(3)])
    assert a.adapter.get_usage().total_bytes_used == 0 and files_of(Lmcache, tmp_path) == []
    a.close()


def test_sglang_pages_of_others_expire_by_their_own(tmp_path):
    """In a folder of several models each removes its own pages."""
    engine("sglang.srt.mem_cache.pool_host.mha")
    Sglang(tmp_path, model="another").store(0)
    Sglang(tmp_path).store(0)
    make_old(Sglang, tmp_path, 100)
    Sglang(tmp_path, kvarc_ttl=50)
    [file] = files_of(Sglang, tmp_path)
    assert "another" in os.path.basename(file)
