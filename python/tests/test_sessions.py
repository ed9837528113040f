# SPDX-License-Identifier: BSD-3-Clause
"""Growing sessions, stores, profiles, predictors, measuring."""
import fcntl
import os
import subprocess
import sys
from datetime import datetime, timezone

import numpy as np
import pytest
from conftest import bf16, make_pairs, same, same_pairs

import kvarc
from kvarc import _layout, models


def state(n, window=64, pairs=make_pairs(tokens=900, layers=2)):
    """A cache after n tokens: full attention, a sliding window, a state."""
    low, tag = max(0, n - window), {"key": "bf16", "value": "bf16"}
    (k, v), (wk, wv) = pairs
    return kvarc.Cache([
        kvarc.Layer({"key": k[None, :, :n], "value": v[None, :, :n]},
                    {"recurrent": np.full((1, 40, 8), n, np.float32)}, dtypes=tag),
        kvarc.Layer({"key": wk[None, :, low:n], "value": wv[None, :, low:n]}, dtypes=tag,
                    window=window, positions=np.arange(low, n), metadata={"n": n})],
        tokens=np.arange(n) * 3)


def check_state(a, b):
    for x, y in zip(a.layers, b.layers):
        assert all(same(x.tensors[n], y.tensors[n]) for n in ("key", "value"))
        assert all(same(x.states[n], y.states[n]) for n in x.states)
        assert x.metadata == y.metadata
        assert x.positions is None or np.array_equal(x.positions, y.positions)
    assert np.array_equal(a.tokens, b.tokens)


def test_session(tmp_path):
    session, steps = kvarc.Session(tmp_path / "s.kva"), (300, 340, 310, 310, 900, 5)
    written = []
    for i, n in enumerate(steps):
        done = session.append(state(n), label=f"step {i}")
        written.append(done.written_bytes)
        assert done.checkpoint == i + 1 and done.tokens == n
    assert written[1] < written[0] / 2 and written[2] < 6000
    for i, n in enumerate(steps):
        check_state(state(n), session.load(i + 1, raw=True))
    check_state(state(5), session.load(raw=True))
    assert [c.label for c in session.checkpoints] == [f"step {i}" for i in range(6)]
    assert [c.tokens for c in session.checkpoints][:5] == list(steps[:5])
    with kvarc.Reader(session.path) as r:
        r.verify()


def test_session_saves_nothing_twice(tmp_path):
    session = kvarc.Session(tmp_path / "s.kva")
    session.append(state(300))
    size = os.path.getsize(session.path)
    again = session.append(state(300))
    assert again.written_bytes == 0 and again.checkpoint == 1
    assert os.path.getsize(session.path) == size
    assert session.append(state(300), label="one").checkpoint == 2
    for label in ("one", None):
        again = session.append(state(300), label=label)
        assert (again.checkpoint, again.written_bytes) == (2, 0)


def test_crop_counts(tmp_path, pairs):
    """The tokens of a cache are those that stay and those that are written."""
    session = kvarc.Session(tmp_path / "s.kva")
    for n in (300, 100, 200, 200):
        done = session.append([(k[:, :n], v[:, :n]) for k, v in pairs], dtype="bf16")
        assert done.kept_tokens + done.new_tokens == done.tokens == n
        assert len(session.load(raw=True)[0][0][0]) == n


def test_session_compares_bits(tmp_path):
    session = kvarc.Session(tmp_path / "s.kva")
    session.append(state(300))
    other = state(300)
    key = other.layers[0].tensors["key"].copy()
    key[0, 1, 250, 3] ^= 1
    other.layers[0].tensors["key"] = key
    assert session.append(other, compare=False).written_bytes == 0
    assert session.append(other).new_tokens == 50
    check_state(other, session.load(raw=True))
    check_state(state(300), session.load(1, raw=True))


def test_session_refuses(tmp_path):
    session = kvarc.Session(tmp_path / "s.kva")
    session.append(state(300))
    with pytest.raises(kvarc.GeometryError, match="other layers"):
        session.append(make_pairs(layers=1), dtype="bf16")
    with open(session.path, "rb") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            session.append(state(310))
    assert len(session.checkpoints) == 1


def test_store(tmp_path):
    pairs, ids = make_pairs(tokens=900), np.arange(900) + 5

    def first(n):
        return [(k[:, :n], v[:, :n]) for k, v in pairs]
    with kvarc.Store(tmp_path / "store") as store:
        one = store.save("chat/1", first(600), tokens=ids[:600], dtype="bf16", label="one",
                         model="m", time=12.5)
        two = store.save("chat/1", pairs, tokens=ids, dtype="bf16", model="m")
        assert (one.version, two.version, two.kept_tokens) == (1, 2, 600)
        store.fork("chat/1", "chat/2", 1)
        assert [v.session for v in store.list()] == ["chat/1", "chat/2"]
        assert [(v.number, v.label) for v in store.log("chat/1")] == [(1, "one"), (2, "")]
        assert store.log("chat/1")[0].time == 12500
        assert store.log("chat/1")[0].when == datetime(1970, 1, 1, 0, 0, 12, 500000, timezone.utc)
        assert store.identity("chat/2")["model"] == "m"
        assert same_pairs(store.load("chat/1", raw=True), pairs)
        assert same_pairs(store.load("chat/2", raw=True), first(600))
        found = store.find(first(700), tokens=ids[:700], dtype="bf16", model="m")
        assert (found[0].session, found[0].common_tokens) == ("chat/1", 700)
        with pytest.raises(kvarc.NotFoundError):
            store.load("nobody")
        assert store.verify() == []
        assert store.remove("chat/1") == 2 and store.gc(grace=0).removed == 1
        assert same_pairs(store.load("chat/2", raw=True), first(600))
        assert store.sizes()["sessions"] == 1
    with pytest.raises(ValueError, match="closed"):
        store.list()


def test_store_of_a_hybrid_and_of_files(tmp_path, sample):
    with kvarc.Store(tmp_path / "store") as store:
        store.save("h", state(300))
        check_state(state(300), store.load("h", raw=True))
        store.save("f", sample("smollm2-135m-f16-160.slot"))
        data, = store.load_files("f").values()
        assert bytes(data) == open(sample("smollm2-135m-f16-160.slot"), "rb").read()
        with kvarc.Store(tmp_path / "other") as other:
            other.save("text", __file__)
            with pytest.raises(kvarc.FormatError, match="load_files"):
                other.load("text")


def test_store_loads_what_the_command_saves(tmp_path, sample):
    """The cache of a slot is what kvarc.load gives of an archive of the slot."""
    slot, archive = sample("smollm2-135m-f16-160.slot"), str(tmp_path / "a.kva")
    for words in (["session", "save", "s", slot, "--store", tmp_path / "store"],
                  ["pack", slot, "-o", archive]):
        subprocess.run([sys.executable, "-m", "kvarc", *words], check=True, capture_output=True)
    with kvarc.Store(tmp_path / "store") as store:
        pairs = store.load("s")
        assert len(pairs) == 30 and same_pairs(pairs, kvarc.load(archive))
        assert same_pairs(store.load("s", layers=(2, 4), tokens=slice(10)),
                          [(k[:, :10], v[:, :10]) for k, v in pairs[2:4]])


def test_ids_beyond_the_tokens(tmp_path, pairs):
    session = kvarc.Session(tmp_path / "s.kva")
    session.append(pairs, tokens=np.arange(300), dtype="bf16")
    with pytest.raises(ValueError, match="tokens: 320 ids, the layers hold 300 tokens: give") as e:
        session.append(pairs, tokens=np.arange(320), dtype="bf16")
    assert not isinstance(e.value, kvarc.Error)
    with pytest.raises(kvarc.GeometryError, match="other layers"):
        session.append(pairs[:2], tokens=np.arange(320), dtype="bf16")


def test_store_loads_ranges(tmp_path, pairs):
    """What save() kept gives layers and tokens as an archive does."""
    with kvarc.Store(tmp_path / "store") as store:
        store.save("s", pairs, tokens=np.arange(300), dtype="bf16")
        found = store.load("s", layers=(1, 3), tokens=slice(-10, None), raw=True)
        assert same_pairs(found, [(k[:, -10:], v[:, -10:]) for k, v in pairs[1:3]])
        assert np.array_equal(found.tokens, np.arange(290, 300))
        with pytest.raises(kvarc.GeometryError, match="there are 300"):
            store.load("s", tokens=(0, 301))
        with pytest.raises(TypeError, match="tokens: goes with caches"):
            store.save("t", tmp_path / "x", tokens=[1])


def test_store_is_made_by_a_save(tmp_path, pairs):
    with kvarc.Store(tmp_path / "none") as store:
        for call in (store.load, store.log, store.remove, store.identity):
            with pytest.raises(kvarc.NotFoundError, match="save.. makes it"):
                call("a")
        for call in (store.list, store.sizes, store.gc, store.verify,
                     lambda: store.find(pairs, dtype="bf16")):
            with pytest.raises(kvarc.NotFoundError, match="there is no store at .*none yet"):
                call()
        assert not os.listdir(tmp_path)
        store.save("a", pairs, dtype="bf16")
        assert [v.session for v in store.list()] == ["a"]
    with pytest.raises(kvarc.OptionsError):
        kvarc.Store(tmp_path / "other", create=False)
    assert os.listdir(tmp_path) == ["none"]


def test_default_store(tmp_path, pairs, monkeypatch):
    monkeypatch.delenv("KVARC_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with kvarc.Store() as store:
        store.save("a", pairs, dtype="bf16")
    assert os.listdir(tmp_path / "kvarc") == ["store"]
    listed = subprocess.run([sys.executable, "-m", "kvarc", "session", "list"], check=True,
                            capture_output=True, text=True).stdout
    assert "a" in listed.split()
    monkeypatch.setenv("KVARC_STORE", str(tmp_path / "kvarc/store"))
    monkeypatch.delenv("XDG_DATA_HOME")
    assert [v.session for v in kvarc.Store().list()] == ["a"]


def test_versions_by_name(tmp_path, pairs):
    with kvarc.Store(tmp_path / "s") as store:
        store.save("a", pairs[:1], dtype="bf16", model="one")
        store.save("a", pairs, dtype="bf16")
        assert same_pairs(store.load("a@1", raw=True), pairs[:1])
        assert list(store.load_files("a@1")) and store.identity("a@1")["model"] == "one"
        store.fork("a@1", "b")
        assert same_pairs(store.load("b", raw=True), pairs[:1])
        with pytest.raises(kvarc.NotFoundError, match="a@3"):
            store.load("a@3")
        with pytest.raises(ValueError, match="version: -1"):
            store.load("a", -1)
        with pytest.raises(kvarc.UsageError, match="one by one"):
            store.remove("a@1")
        with pytest.raises(kvarc.UsageError) as e:
            store.save("../x", pairs, dtype="bf16")
        assert "kvarc_" not in str(e.value)


def test_train(tmp_path, sample):
    rope = kvarc.Rope.of_theta(100000.0, 64)
    given = kvarc.Profile(sample("smollm2-135m-level2.kvp"))
    assert given.ropes == [rope]
    profile = kvarc.train([sample("smollm2-135m-bf16-160.safetensors")], tmp_path / "p.kvp",
                          levels=(2,), identity={"model": "x"})
    assert profile.info["levels"] == [2] and profile.identity["model"] == "x"
    assert kvarc.Profile(tmp_path / "p.kvp").info["digest"] == profile.info["digest"]
    pairs = make_pairs()
    own = kvarc.train([kvarc.to_cache(pairs, dtype="bf16")], rope=rope, levels=(2,))
    path = tmp_path / "a.kva"
    kvarc.save(path, pairs, dtype="bf16", rope=rope, level=2, profile=own)
    assert same_pairs(kvarc.load(path, profiles=[own], raw=True), pairs)
    with pytest.raises(kvarc.PredictorError) as e:
        kvarc.load(path)
    assert e.value.digest.hex() == own.info["digest"]


class Knows(kvarc.External):
    """Predicts what it was given, but for one element."""

    pairs = make_pairs()
    fails = False

    def segment(self, ids, positions):
        self.positions = positions.copy()

    def predict(self, layer, k, v):
        if self.fails:
            raise RuntimeError("no model")
        for out, bits in zip((k, v), self.pairs[layer]):
            rows = bits.transpose(1, 0, 2)[self.positions].astype(np.uint32)
            out[:] = (rows << 16).view(np.float32)
        if layer == 1:
            k[0, 0, 0] += 1

    def restart(self):
        pass


def test_external_predictor(tmp_path):
    made = kvarc.to_cache(Knows.pairs, tokens=np.arange(300), dtype="bf16")
    layout = _layout.make(made)
    profile = models.sizes_profile(8, layout.tracks, layout.tensors, layout.arrays[0])
    predictor = kvarc.Predictor.external(b"0123456789abcdef", Knows, layers=3, heads=3,
                                         channels=64, name="knows")
    path = tmp_path / "a.kva"
    kvarc.save(path, made, level=8, predictor=predictor, profile=profile, embed_profile=True)
    assert os.path.getsize(path) < 300 * 3 * 2 * 3 * 64 * 2 / 50
    assert same_pairs(kvarc.load(path, predictor=predictor, raw=True), Knows.pairs)
    with pytest.raises(kvarc.PredictorError):
        kvarc.load(path)
    Knows.fails = True
    try:
        with pytest.raises(kvarc.PredictorError) as e:
            kvarc.load(path, predictor=predictor)
        assert isinstance(predictor.raised, RuntimeError)
    finally:
        Knows.fails = False


def test_bench(sample):
    rows = kvarc.bench(make_pairs(), dtype="bf16", repeats=1)
    assert [r.level for r in rows] == [0, 1] and all(r.ratio > 1 and r.save_mb_s > 0
                                                     for r in rows)
