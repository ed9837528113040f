# SPDX-License-Identifier: BSD-3-Clause
"""Blocks of engines as records, and a folder of them."""
import logging
import os
import resource
import threading
import time

import numpy as np
import pytest

import kvarc
from kvarc import blocks
from kvarc._options import shown as shown_url
from conftest import bf16

LETTERS = {"2": 2, "L": 3, "T": 40, "H": 2, "D": 32}


def make_block(axes, seed=1, extra=0, tokens=LETTERS["T"]):
    """(layout, bytearray) of a block of bf16, with `extra` bytes behind it."""
    shape = tuple(tokens if a == "T" else LETTERS[a] for a in axes)
    part = blocks.Part("bf16", axes, shape)
    data = bf16(np.random.default_rng(seed).standard_normal(shape)).tobytes()
    return blocks.BlockLayout(part.nbytes + extra, [part]), bytearray(data + b"x" * extra)


@pytest.mark.parametrize("axes", ["2LTHD", "T2LHD", "LHT2D", "TD", "LTD", "2TD", "T", "HLT2D"])
@pytest.mark.parametrize("extra", [0, 1, 64, 1000])
@pytest.mark.parametrize("tokens", [65, 40, 16, 1])
def test_layouts(axes, extra, tokens):
    layout, block = make_block(axes, extra=extra, tokens=tokens)
    for level in 0, 1:
        record = blocks.encode(block, layout, "a key", level=level)
        back = bytearray(len(block))
        blocks.decode(record, back, layout, "a key")
        assert back == block


def test_layout_says_what_is_a_layer():
    layout, block = make_block("T2LHD", tokens=65)
    record = blocks.encode(block, layout, "k")
    with kvarc.open(record) as r:
        value = r.read(layers=1, raw=True)
    bits = np.frombuffer(block, np.uint16).reshape(65, 2, 3, 2, 32)
    kinds = {r.tensors[i].kind: a for i, a in value.items()}
    assert np.array_equal(kinds["key"], bits[:, 0, 1]) and \
        np.array_equal(kinds["value"], bits[:, 1, 1])


def test_array_of_any_strides():
    layout, _ = make_block("2LTHD", tokens=65)
    whole = bf16(np.random.default_rng(2).standard_normal((2, 3, 100, 2, 32)))
    page, back = whole[:, :, 20:85], np.zeros_like(whole)
    record = blocks.encode(page, layout, "k")
    blocks.decode(record, back[:, :, 30:95], layout, "k")
    assert np.array_equal(back[:, :, 30:95], page)
    assert not back[:, :, :30].any() and not back[:, :, 95:].any()


@pytest.mark.parametrize("axes", ["2LTHD", "LTD", "T2LHD"])
def test_short_blocks(axes):
    """Layers of 16 tokens share chunks and parameters; of a record with a tensor for each, too."""
    layout, block = make_block(axes, tokens=16)
    record, back = blocks.encode(block, layout, "k"), bytearray(len(block))
    with kvarc.open(record) as r:
        assert r.tensors == layout.wide and len(r.tensors) == 1
    wide, layout.wide = layout.wide, []
    apart = blocks.encode(block, layout, "k")
    layout.wide = wide
    assert len(record) < len(apart)
    blocks.decode(apart, back, layout, "k")
    assert back == block


def test_short_array_of_any_strides():
    layout, _ = make_block("2LTHD", tokens=16)
    whole = bf16(np.random.default_rng(2).standard_normal((2, 3, 100, 2, 32)))
    page, back = whole[:, :, 20:36], np.zeros_like(whole)
    record = blocks.encode(page, layout, "k")
    with kvarc.open(record) as r:
        assert r.tensors == layout.wide
    blocks.decode(record, back[:, :, 30:46], layout, "k")
    assert np.array_equal(back[:, :, 30:46], page)
    assert not back[:, :, :30].any() and not back[:, :, 46:].any()


def test_what_is_not_its_record():
    layout, block = make_block("2LTHD")
    record = blocks.encode(block, layout, "k")
    other, _ = make_block("LTD")
    with pytest.raises(kvarc.GeometryError, match="of the block 'k', not of 'j'"):
        blocks.decode(record, bytearray(len(block)), layout, "j")
    with pytest.raises(kvarc.GeometryError, match="layout"):
        blocks.decode(record, bytearray(other.size), other, "k")
    with pytest.raises(ValueError, match="bytes"):
        blocks.decode(record, bytearray(7), layout, "k")
    with pytest.raises(ValueError, match="read-only"):
        blocks.decode(record, bytes(len(block)), layout, "k")


def test_every_byte_of_a_record():
    """A changed byte is noticed, or changes nothing."""
    layout, block = make_block("TD")
    record = blocks.encode(block, layout, "k")
    noticed = 0
    for at in range(len(record)):
        changed = bytearray(record)
        changed[at] ^= 0x10
        back = bytearray(len(block))
        try:
            blocks.decode(changed, back, layout, "k")
        except kvarc.Error:
            noticed += 1
        else:
            assert back == block, at
    assert noticed > len(record) * 0.9


def test_folder(tmp_path, caplog):
    layout, block = make_block("2LTHD")
    folder = blocks.BlockStore(tmp_path / "f", sync=True)
    back = bytearray(len(block))
    assert not folder.exists("k") and not folder.get("k", back, layout)
    size = folder.put("k", block, layout)
    assert 0 < size < len(block) and folder.put("k", block, layout) == 0
    assert folder.exists("k") and folder.get("k", back, layout) and back == block
    assert folder.used == size
    [file] = [os.path.join(at, name) for at, _, names in os.walk(folder.url) for name in names]
    assert os.stat(file).st_mode & 0o777 == 0o600 and os.path.getsize(file) == size
    # found again by another process
    assert blocks.BlockStore(tmp_path / "f").used == size

    with open(file, "r+b") as f:
        f.seek(size // 2)
        f.write(b"damage")
    with caplog.at_level(logging.WARNING):
        assert not folder.get("k", back, layout)
    assert "k: a miss" in caplog.text
    assert not folder.exists("k") and folder.used == 0
    assert folder.put("k", block, layout) == size
    assert folder.delete("k") == size and folder.delete("k") == 0 and folder.used == 0


def test_records_of_another_layout_are_replaced(tmp_path):
    """The engine runs with other settings: a miss, and the next put() of the key stores its."""
    store = blocks.BlockStore(tmp_path)
    layout, block = make_block("2LTHD")
    store.put("k", block, layout)
    other = blocks.BlockLayout(len(block), [blocks.Part("u8", "TD", (len(block) // 64, 64))])
    back = bytearray(len(block))
    assert not store.get("k", back, other) and not store.exists("k")
    assert store.put("k", block, other) > 0 and store.get("k", back, other) and back == block


def test_cut_files_are_misses(tmp_path):
    layout, block = make_block("TD")
    folder = blocks.BlockStore(tmp_path)
    folder.put("k", block, layout)
    [file] = [os.path.join(at, name) for at, _, names in os.walk(folder.url) for name in names]
    whole = open(file, "rb").read()
    misses = 0
    for n in range(0, len(whole), 97):
        with open(file, "wb") as f:
            f.write(whole[:n])
        back = bytearray(len(block))
        if folder.get("k", back, layout):  # only the end, which repeats, is cut
            assert back == block, n
        else:
            misses += 1
    assert misses * 97 > len(whole) * 0.8


def test_budget(tmp_path):
    layout, block = make_block("2LTHD")
    size = blocks.BlockStore(tmp_path / "one").put("k", block, layout)
    folder = blocks.BlockStore(tmp_path / "some", budget=size * 3 + 500)
    for i in range(3):
        assert folder.put(f"k{i}", block, layout) > 0
    back = bytearray(len(block))
    assert folder.get("k0", back, layout)
    folder.put("k3", block, layout)  # k1 was used longest ago
    assert [folder.exists(f"k{i}") for i in range(4)] == [True, False, True, True]
    assert folder.used <= folder.budget


def disk(folder):
    return sum(os.path.getsize(os.path.join(at, name))
               for at, _, names in os.walk(folder) for name in names)


def test_budget_of_what_was_there(tmp_path):
    """Records of other processes, and of a store that had no budget, do not outgrow it."""
    layout, block = make_block("2LTHD")
    free = blocks.BlockStore(tmp_path)
    size = max(free.put(f"k{i}", block, layout) for i in range(20))
    budget = size * 5
    a = blocks.BlockStore(tmp_path, budget=budget)
    assert a.used <= budget and disk(tmp_path) == a.used
    assert sum(a.exists(f"k{i}") for i in range(20)) == 5
    b = blocks.BlockStore(tmp_path, budget=size * 1000)
    back = bytearray(len(block))
    for i in range(20):
        assert b.put(f"b{i}", block, layout) > 0
        assert a.get(f"b{i}", back, layout)  # a counts it now
    assert a.used <= budget and disk(tmp_path) == a.used


def test_stale_files_are_removed(tmp_path):
    """What a killed process was writing."""
    blocks.BlockStore(tmp_path)
    for name, age in ("1-old", 25 * 3600), ("2-new", 3600):
        file = tmp_path / ".tmp" / name
        file.write_bytes(b"x" * 1000)
        os.utime(file, (file.stat().st_mtime - age,) * 2)
    blocks.BlockStore(tmp_path, budget=1)
    assert os.listdir(tmp_path / ".tmp") == ["2-new"]


def test_full_disk(tmp_path, caplog):
    layout, block = make_block("TD")
    folder = blocks.BlockStore(tmp_path)

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        assert folder.put("k", block, layout) == -1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "not stored" in caplog.text and not folder.exists("k")
    assert [names for _, _, names in os.walk(folder.url) if names] == []
    assert folder.put("k", block, layout) > 0


def files_of(folder):
    return [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names
            if name.endswith(".kva")]


def test_encrypted(tmp_path):
    layout, block = make_block("TD")
    back = bytearray(len(block))
    assert blocks.BlockStore(tmp_path, key=b"k" * 32).put("k", block, layout) > 0
    assert blocks.BlockStore(tmp_path, key=b"k" * 32).get("k", back, layout) and back == block
    [file] = files_of(tmp_path)
    for key in None, b"j" * 32:
        with pytest.raises(kvarc.AuthError) as e:
            blocks.decode(open(file, "rb").read(), back, layout, "k", key=key)
        assert str(e.value) and "\n" not in str(e.value)
    assert bytes(block[:16]) not in open(file, "rb").read()


def test_keys_do_not_meet(tmp_path):
    """Two tenants of one store: neither sees, replaces or removes what the other has, and names of
    objects do not show whose tokens they are of."""
    layout, block = make_block("TD")
    stores = [blocks.BlockStore(tmp_path, key=key) for key in (b"k" * 32, b"j" * 32, None)]
    for i, store in enumerate(stores):
        assert not store.exists("k") and not store.get("k", bytearray(len(block)), layout)
        assert store.put("k", block, layout) > 0 and len(files_of(tmp_path)) == i + 1
    for store in stores:
        back = bytearray(len(block))
        assert store.get("k", back, layout) and back == block
    assert stores[0].delete("k") > 0
    assert [store.exists("k") for store in stores] == [False, True, True]
    with pytest.raises(ValueError, match="32 bytes"):
        blocks.BlockStore(tmp_path, key=b"short")


def test_records_of_another_passphrase_are_replaced(tmp_path):
    layout, block = make_block("TD")
    assert blocks.BlockStore(tmp_path, passphrase="a").put("k", block, layout) > 0
    other, back = blocks.BlockStore(tmp_path, passphrase="b"), bytearray(len(block))
    assert other.put("k", block, layout) == 0 and not other.get("k", back, layout)
    size = other.put("k", block, layout)  # instead of what it cannot read
    assert size > 0 and other.used == size and other.put("k", block, layout) == 0
    assert other.get("k", back, layout) and back == block


def age(folder, seconds):
    for file in files_of(folder):
        os.utime(file, (time.time() - seconds,) * 2)


def test_ttl(tmp_path):
    layout, block = make_block("TD")
    back = bytearray(len(block))
    free = blocks.BlockStore(tmp_path)
    free.put("old", block, layout)
    age(tmp_path, 100)
    free.put("new", block, layout)
    store = blocks.BlockStore(tmp_path, ttl=50)  # found at its start: removed
    assert len(files_of(tmp_path)) == 1 and store.used == disk(tmp_path)
    assert store.get("new", back, layout) and back == block and not store.exists("old")

    age(tmp_path, 100)  # while it is open: a miss, which is removed, and put again
    assert not store.get("new", back, layout) and files_of(tmp_path) == [] and store.used == 0
    size = store.put("new", block, layout)
    assert size > 0 and store.put("new", block, layout) == 0
    age(tmp_path, 100)
    assert not store.exists("new") and files_of(tmp_path) == []
    assert store.put("new", block, layout) == size
    age(tmp_path, 100)
    assert store.put("new", block, layout) == size == store.used  # instead of the expired one

    free.put("other", block, layout)  # of another process: removed by a put when it is time
    age(tmp_path, 100)
    store._next_sweep = 0
    store.put("third", block, layout)
    assert len(files_of(tmp_path)) == 1 and store.used == disk(tmp_path)
    with pytest.raises(ValueError, match="ttl"):
        blocks.BlockStore(tmp_path, ttl=-1)


def test_use_does_not_lengthen_ttl(tmp_path):
    layout, block = make_block("TD")
    store = blocks.BlockStore(tmp_path, ttl=50, budget=1 << 20)
    store.put("k", block, layout)
    age(tmp_path, 49)
    for _ in range(3):
        assert store.get("k", bytearray(len(block)), layout)
    assert time.time() - os.stat(files_of(tmp_path)[0]).st_mtime > 48


def test_threads(tmp_path):
    layout, _ = make_block("2LTHD")
    folder = blocks.BlockStore(tmp_path, budget=400000)
    wrong = []

    def work(seed):
        for i in range(20):
            name = (seed + i) % 10
            _, block = make_block("2LTHD", seed=name)
            folder.put(f"k{name}", block, layout)
            back = bytearray(len(block))
            if folder.get(f"k{name}", back, layout) and back != block:
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == [] and folder.used <= 400000


def test_wrong_axes():
    for axes, shape in ("LT", (2,)), ("LD", (2, 3)), ("TT", (2, 2)), ("2T", (3, 4)), ("XT", (1, 1)):
        with pytest.raises(ValueError):
            blocks.Part("bf16", axes, shape)
    with pytest.raises(ValueError):
        blocks.BlockLayout(10, [blocks.Part("bf16", "TD", (4, 4))])


SECRET = "Hk7pZq3w"


@pytest.mark.parametrize("url, place", [
    ("redis://:{}@127.0.0.1:1", "redis://127.0.0.1:1"),
    ("redis://:{}/x@127.0.0.1:1", "redis://127.0.0.1:1"),
    ("s3://bucket?endpoint=http://user:{}@127.0.0.1:1", "s3://bucket?endpoint=http://127.0.0.1:1"),
    ("s3://bucket?endpoint=http://user:{}/x@127.0.0.1:1",
     "s3://bucket?endpoint=http://127.0.0.1:1"),
    ("rediss://:{}@127.0.0.1", "rediss://127.0.0.1")])
def test_passwords_do_not_show(url, place, caplog):
    """Not in exceptions, the log, or what objects say of themselves."""
    url = url.format(SECRET)
    caplog.set_level(logging.DEBUG)
    shown = []
    with pytest.raises(kvarc.Error) as e:
        list(kvarc.Store(url).list())
    shown += [str(e.value), repr(e.value), str(e.value.__cause__), str(vars(e.value))]
    assert shown_url(url) == place
    layout, block = make_block("2LTHD")
    for budget in 0, 1 << 20:
        try:
            store = blocks.BlockStore(url, timeout=1.0, budget=budget)
            assert store.put("k", memoryview(block), layout) == -1
            shown += [repr(store), store.place]
            assert store.place == place and caplog.text
        except kvarc.Error as error:
            shown += [str(error), repr(error)]
    shown.append(caplog.text)
    assert len(shown) >= 7 and not [text for text in shown if SECRET in text]


def test_a_store_says_what_it_is(tmp_path):
    assert repr(kvarc.Store(tmp_path / "a:b@c")) == f"kvarc.Store('{tmp_path}/a:b@c')"
