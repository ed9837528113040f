# SPDX-License-Identifier: BSD-3-Clause
"""Adapters of LMCache, vLLM and SGLang over Redis and S3: hits, and misses when they are away."""
import time

import numpy as np
import pytest

import services
from test_serving import PAGE, TOKENS, engine, lmcache_bench, make_hicache, make_tier


@pytest.fixture(params=["redis", "s3"])
def service(request, tmp_path, monkeypatch):
    service = services.started(request.param, tmp_path)
    for name, variable in ("access_key", "AWS_ACCESS_KEY_ID"), \
            ("secret_key", "AWS_SECRET_ACCESS_KEY"):
        if name in service.s3:
            monkeypatch.setenv(variable, service.s3[name])
    yield service
    service.stop()


def test_lmcache_bench(service):
    lmcache_bench(service.url)


def test_vllm(service):
    engine("vllm.v1.kv_offload.tiering.factory")
    from vllm.v1.kv_offload.base import ReqContext, make_offload_key
    from vllm.v1.kv_offload.tiering.base import TransferJob
    tier, primary, n = make_tier(service.url)
    keys = [make_offload_key(i.to_bytes(8, "big"), 0) for i in range(n)]

    def run(job, submit, rows):
        submit(TransferJob(job, keys, np.asarray(rows), submit == tier.submit_load,
                           ReqContext(req_id="r")))
        tier.drain_jobs()
        [result] = tier.get_finished_jobs()
        return result

    try:
        assert run(1, tier.submit_store, range(n)).success
        assert run(2, tier.submit_load, range(n, 2 * n)).success
        assert np.array_equal(primary[:n], primary[n:])
        service.stop()
        begin = time.monotonic()
        result = run(3, tier.submit_load, range(n, 2 * n))
        assert not result.success and not result.successful_keys
        assert not run(4, tier.submit_store, range(n)).success and not tier.has(keys[0])
        assert time.monotonic() - begin < 10
    finally:
        tier.shutdown()


@pytest.mark.parametrize("layout", ["layer_first", "page_head"])
def test_sglang(service, layout):
    torch = pytest.importorskip("torch")
    engine("sglang.srt.mem_cache.hicache_storage")
    from sglang.srt.mem_cache.hicache_storage import PoolTransfer
    backend, pool = make_hicache(layout, kvarc_store=service.url)
    n = TOKENS // PAGE
    keys, indices = [f"k{i}" for i in range(n)], torch.arange(TOKENS)
    want = pool.kv_buffer.clone()
    moved = [PoolTransfer("kv", host_indices=indices, keys=keys)]

    def equal():
        return torch.equal(pool.kv_buffer.view(torch.int16), want.view(torch.int16))

    assert backend.batch_exists(keys) == 0
    assert backend.batch_set_v1(keys, indices) == [True] * n
    assert backend.batch_exists(keys + ["absent"]) == n
    assert backend.batch_exists_v2(keys + ["absent"]).kv_hit_pages == n
    pool.kv_buffer.zero_()
    assert backend.batch_get_v1(keys, indices) == [True] * n and equal()
    pool.kv_buffer.zero_()
    assert backend.batch_get_v2(moved) == {"kv": [True] * n} and equal()
    assert backend.get("absent", pool.get_dummy_flat_data_page()) is None
    assert backend.clear() and backend.batch_exists(keys) == 0
    assert backend.batch_set_v2(moved) == {"kv": [True] * n} and backend.exists("k0")
    service.stop()
    begin = time.monotonic()
    assert backend.batch_get_v1(keys, indices) == [False] * n
    assert backend.batch_set_v1(keys, indices) == [False] * n
    assert backend.batch_exists(keys) == 0 and not backend.clear()
    assert time.monotonic() - begin < 10
