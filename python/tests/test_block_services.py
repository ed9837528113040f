# SPDX-License-Identifier: BSD-3-Clause
"""Blocks in Redis and S3: what comes back, what is a miss, and how soon."""
import logging
import os
import threading
import time

import pytest

import services
from kvarc import blocks
from test_blocks import make_block


@pytest.fixture(params=["redis", "s3"])
def service(request, tmp_path):
    service = services.started(request.param, tmp_path)
    yield service
    service.stop()


def opened(service, **options):
    return blocks.BlockStore(service.url, s3=service.s3, **options)


def change(store, key, record):
    """Another record instead of that of a key."""
    name = store._name(key)
    store._objects.remove(name)
    assert store._objects.put(name, record)


def test_service(service, caplog):
    layout, block = make_block("2LTHD")
    store, other, back = opened(service), opened(service), bytearray(len(block))
    assert not store.exists("k") and not store.get("k", back, layout) and store.delete("k") == 0
    size = store.put("k", block, layout)
    assert 0 < size < len(block) and store.put("k", block, layout) == 0
    assert other.exists("k") and other.put("k", block, layout) == 0
    assert other.get("k", back, layout) and back == block
    whole = bytes(store._objects.get(store._name("k"), 1 << 20))
    damaged = bytearray(whole)
    damaged[size // 2] ^= 0x40
    for record in bytes(damaged), whole[:size // 3], b"", b"not an archive" * 10, \
            whole + bytes(len(block) * 2 + (1 << 20)):
        change(store, "k", record)
        with caplog.at_level(logging.WARNING):
            assert not other.get("k", bytearray(len(block)), layout)
        assert "k: a miss, its record is removed" in caplog.text
        caplog.clear()
        assert not store.exists("k")
    assert store.put("k", block, layout) == size
    change(store, "k2", whole)  # of another block
    assert not store.get("k2", back, layout)
    assert store.delete("k") == size and store.delete("k") == 0 and not store.exists("k")


def test_budget_of_service(service):
    layout, block = make_block("2LTHD")
    store = opened(service)
    size = store.put("k0", block, layout)
    some = opened(service, budget=size * 3 + 500)
    assert some.used == size
    for i in range(1, 3):
        assert some.put(f"k{i}", block, layout) > 0
    assert some.get("k0", bytearray(len(block)), layout)
    some.put("k3", block, layout)  # k1 was used longest ago
    assert [store.exists(f"k{i}") for i in range(4)] == [True, False, True, True]
    store.clear()
    assert not any(store.exists(f"k{i}") for i in range(4))


def test_threads_of_service(service):
    store, wrong = opened(service), []

    def work(seed):
        for i in range(12):
            layout, block = make_block("2LTHD", seed=(seed + i) % 6)
            store.put(f"k{(seed + i) % 6}", block, layout)
            back = bytearray(len(block))
            if not store.get(f"k{(seed + i) % 6}", back, layout) or back != block:
                wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_fork(service):
    """A process that was forked has connections of its own."""
    layout, block = make_block("2LTHD")
    store = opened(service)
    store.put("k", block, layout)
    child = os.fork()
    if child == 0:
        back = bytearray(len(block))
        good = all(store.get("k", back, layout) and back == block for _ in range(20))
        os._exit(0 if good else 1)
    for _ in range(20):
        back = bytearray(len(block))
        assert store.get("k", back, layout) and back == block
    assert os.waitpid(child, 0)[1] == 0


def test_service_that_ends(service, caplog):
    """Misses without waiting while it is away, hits when it is there again."""
    layout, block = make_block("2LTHD")
    store = opened(service, timeout=1.0)
    store.PAUSE = 0.5
    back = bytearray(len(block))
    assert store.put("k", block, layout) > 0
    service.stop()
    begin = time.monotonic()
    assert not store.get("k", back, layout)
    assert "k: a miss" in caplog.text
    caplog.clear()
    assert not store.exists("k") and store.put("k", block, layout) == -1
    assert store.delete("k") == 0 and not store.get("k", back, layout)
    assert caplog.text == "" and time.monotonic() - begin < 3
    service.start()
    if service.kind == "s3":  # moto makes other keys
        store = opened(service)
    time.sleep(0.6)
    assert store.put("k", block, layout) > 0 and store.get("k", back, layout) and back == block


def test_ttl_of_service(service):
    layout, block = make_block("TD")
    plain = opened(service)
    assert plain.put("k", block, layout) > 0
    store = opened(service, ttl=3600)
    assert store.get("k", bytearray(len(block)), layout)
    store.ttl = 1e-9  # it is older than that
    assert not store.exists("k") and not plain.exists("k")
    assert plain.put("k", block, layout) > 0
    opened(service, ttl=1e-9)
    assert not plain.exists("k")
