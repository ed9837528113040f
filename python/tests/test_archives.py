# SPDX-License-Identifier: BSD-3-Clause
"""Writers and readers: ranges, plans, damage, checkpoints, files of engines, other options."""
import io
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import make_pairs, same, same_pairs

import kvarc


def write(file, pairs, **options):
    heads, tokens, channels = pairs[0][0].shape
    tensors = [kvarc.Tensor(i, kind, "bf16", heads, channels)
               for i in range(len(pairs)) for kind in ("key", "value")]
    with kvarc.Writer(file, [kvarc.Track()], tensors, **options) as w:
        w.append(0, [a.transpose(1, 0, 2) for p in pairs for a in p], ids=np.arange(tokens))
    return w


def command(*words, **options):
    return subprocess.run([sys.executable, "-m", "kvarc", *map(str, words)], check=False,
                          capture_output=True, text=True, **options)


@pytest.fixture
def archive(pairs):
    file = io.BytesIO()
    write(file, pairs, identity={"model": "m"})
    return file.getvalue()


def test_read(archive, pairs):
    with kvarc.open(archive) as r:
        assert (r.n_layers, r.tokens(), r.identity["model"]) == (3, 300, "m")
        part = r.read(layers=(1, 2), tokens=slice(250, 280), raw=True)
        assert sorted(part) == [2, 3]
        assert same(part[2], pairs[1][0][:, 250:280].transpose(1, 0, 2))
        assert np.array_equal(r.ids(0, (5, 9)), [5, 6, 7, 8])
        assert np.array_equal(r.positions()[-2:], [298, 299])
        out = np.full((3, 300, 64), 9, np.uint16)
        r.read(tensors=[4], out={4: out.transpose(1, 0, 2)})
        assert same(out, pairs[2][0])
        assert r.read(tokens=(3, 3))[0].shape == (0, 3, 64)
        for bad in ({"tokens": (0, 301)}, {"layers": (0, 9)}, {"track": 1}):
            with pytest.raises(kvarc.GeometryError):
                r.read(**bad)
        with pytest.raises(ValueError, match="expected"):
            r.read(out={0: np.zeros((2, 2, 2), np.uint16)})
        r.verify()
        assert r.damage() == []
    with pytest.raises(ValueError, match="closed"):
        r.read()


class Watched(io.BytesIO):
    """A file that remembers what was read of it."""

    def __init__(self, data):
        super().__init__(data)
        self.read_from = []

    def readinto(self, buf):
        at = self.tell()
        n = super().readinto(buf)
        self.read_from.append((at, n))
        return n


def test_plan(archive):
    file = Watched(archive)
    with kvarc.Reader(file, request_cost=1) as r:
        plan = r.plan(layers=(2, 3), tokens=(0, 10))
        assert 0 < sum(n for _, n in plan) < len(archive) / 2
        file.read_from.clear()
        r.read(layers=(2, 3), tokens=(0, 10))
        for at, n in file.read_from:
            assert any(a <= at and at + n <= a + b for a, b in plan), (at, n)
    with kvarc.Reader(archive) as r:
        assert r.plan() == []


def test_damage(archive, pairs):
    bad = bytearray(archive)
    bad[len(bad) // 2] ^= 4
    with kvarc.Reader(bad) as r:
        with pytest.raises(kvarc.DamagedError) as e:
            r.read()
    assert e.value.code == 6 and 0 < e.value.offset < len(bad) and e.value.frame
    with kvarc.Reader(bad) as r:
        place, = [d for d in r.damage() if d.n]
        assert place.tensor is not None and place.track == 0
    with kvarc.Reader(bad, salvage=True) as r:
        data = r.read(raw=True)
        assert r.lost()
    good = [i for i in data if i != place.tensor]
    assert all(same(data[i], pairs[i // 2][i % 2].transpose(1, 0, 2)) for i in good)
    for cut in (0, 5, 100, len(archive) - 40):
        with pytest.raises((kvarc.FormatError, kvarc.DamagedError)):
            with kvarc.Reader(archive[:cut]) as r:
                r.verify()
                assert r.info["state"] != "closed"
                raise kvarc.DamagedError("cut, and known to be")


def test_where_the_damage_is(archive, pairs, tmp_path):
    """The error names layer and tokens; the same Reader reads on what is undamaged."""
    bad = bytearray(archive)
    bad[len(bad) // 2] ^= 4
    with kvarc.Reader(archive) as r:
        tensors = r.tensors
    for options in ({}, {"salvage": True}):
        with kvarc.Reader(bad, **options) as r:
            with pytest.raises(kvarc.DamagedError) as e:
                r.verify()
                r.read()
            e = e.value
            place, = [d for d in r.damage() if d.n]
            if not options:
                with pytest.raises(kvarc.DamagedError) as again:
                    r.read()
                e = again.value
            assert (e.tensor, e.track, e.layer) == \
                (place.tensor, 0, tensors[place.tensor].layer)
            assert e.tokens == range(place.t0, place.t0 + place.n)
            assert f"layer {e.layer} {tensors[e.tensor].kind}, tokens {place.t0} to " in str(e)
            good = next(i for i in range(3) if i != e.layer)
            assert same(r.read(layers=good, raw=True)[2 * good],
                        pairs[good][0].transpose(1, 0, 2))
    (tmp_path / "a.kva").write_bytes(bad)
    with pytest.raises(kvarc.DamagedError) as e:
        kvarc.load(tmp_path / "a.kva")
    assert e.value.tensor == place.tensor


def test_the_rest_of_a_damaged_archive(archive, pairs):
    """With salvage a read gives what is left, and zeros for what lost() names."""
    bad = bytearray(archive)
    bad[len(bad) // 2] ^= 4
    with kvarc.Reader(bad, salvage=True) as r:
        for checked in (False, True):
            if checked:
                assert r.damage()
            data = r.read(raw=True)
            lost = [d for d in r.lost() if d.tensor is not None]
            assert len(lost) == 1
            for i in range(6):
                expected = pairs[i // 2][i % 2].transpose(1, 0, 2).copy()
                for d in lost:
                    if d.tensor == i:
                        assert expected[d.t0:d.t0 + d.n].any()
                        expected[d.t0:d.t0 + d.n] = 0
                assert same(data[i], expected)


def test_no_bit_is_wrong_in_silence(pairs):
    file = io.BytesIO()
    kvarc.save(file, pairs[:1], dtype="bf16")
    data = file.getvalue()
    rng = np.random.default_rng(4)
    for at in rng.integers(0, len(data) * 8, 300):
        bad = bytearray(data)
        bad[at // 8] ^= 1 << at % 8
        try:
            back = kvarc.load(bytes(bad), raw=True)
        except kvarc.Error:
            continue
        assert same_pairs(back, pairs[:1]), at


def test_append(tmp_path, pairs):
    path = tmp_path / "a.kva"
    write(path, pairs)
    rows = [a.transpose(1, 0, 2)[:10] for p in pairs for a in p]
    with kvarc.Writer(path, append=True) as w:
        assert w.tokens() == 300 and len(w.tensors) == 6
        w.append(0, rows, ids=range(10))
        assert w.checkpoint("one", 1000) == 1
        w.rewind(0, 100)
        w.append(0, dict(enumerate(rows)), ids=range(10))
        assert w.checkpoint("zwei") == 2
    with kvarc.Reader(path) as r:
        assert [(c.number, c.label, c.time, c.tokens) for c in r.checkpoints] == \
            [(1, "one", 1000, 310), (2, "zwei", 0, 110)]
        assert same(r.read(tokens=(100, 110), raw=True)[3], rows[3])
    with kvarc.Reader(path, checkpoint=1) as r:
        assert r.tokens() == 310
    with pytest.raises(kvarc.OptionsError):
        kvarc.Reader(path, checkpoint=9)


def test_fork(tmp_path, pairs):
    path = tmp_path / "a.kva"
    tensors = [kvarc.Tensor(0, "key", "bf16", 3, 64, track=i) for i in range(2)]
    key = pairs[0][0].transpose(1, 0, 2)
    with kvarc.Writer(path, [kvarc.Track(), kvarc.Track()], tensors) as w:
        w.append(0, {0: key})
        w.fork(1, 0, 280)
        w.append(1, {1: key[:5]})
        assert w.tokens(1) == 285
        with pytest.raises(kvarc.GeometryError):
            w.fork(1, 0, 1000)
    with kvarc.Reader(path) as r:
        assert same(r.read(tokens=(200, 280), track=1, raw=True)[1], key[200:280])
        assert same(r.read(tokens=(280, 285), track=1, raw=True)[1], key[:5])


def test_crash_keeps_the_commit(tmp_path, pairs):
    path = tmp_path / "a.kva"
    tensors = [kvarc.Tensor(0, "key", "bf16", 3, 64)]
    key = pairs[0][0].transpose(1, 0, 2)
    with pytest.raises(RuntimeError):
        with kvarc.Writer(path, [kvarc.Track()], tensors) as w:
            w.append(0, [key[:200]])
            w.commit()
            w.append(0, [key[200:]])
            raise RuntimeError
    with kvarc.Reader(path) as r:
        assert r.info["state"] in ("open", "cut") and same(r.read(raw=True)[0], key[:200])


def test_writer_refuses(tmp_path, pairs):
    with pytest.raises(kvarc.GeometryError):
        kvarc.Writer(tmp_path / "b", [kvarc.Track()], [kvarc.Tensor(0, "key", "f16", 0, 4)])
    tensors = [kvarc.Tensor(0, "key", "bf16", 3, 64)]
    w = kvarc.Writer(io.BytesIO(), [kvarc.Track()], tensors)
    for arrays in ([], [np.zeros((4, 3, 63), np.uint16)], {1: pairs[0][0]}):
        with pytest.raises(ValueError):
            w.append(0, arrays)
    with pytest.raises(ValueError, match="int32"):
        w.append(0, [np.zeros((1, 3, 64), np.uint16)], ids=[1 << 40])
    w.abort()
    with pytest.raises(ValueError, match="closed"):
        w.commit()


def test_encrypted(archive, pairs):
    file, key = io.BytesIO(), bytes(range(32))
    kvarc.save(file, pairs, dtype="bf16", key=key, passphrase="secret")
    data = file.getvalue()
    assert same_pairs(kvarc.load(data, key=key, raw=True), pairs)
    assert same_pairs(kvarc.load(data, passphrase="secret", raw=True), pairs)
    with pytest.raises(kvarc.AuthError):
        kvarc.load(data)
    with pytest.raises(kvarc.AuthError):
        kvarc.load(data, key=bytes(32))


def test_memlimit(archive):
    with pytest.raises(kvarc.MemLimitError) as e:
        kvarc.Reader(archive, memlimit=1000)
    assert isinstance(e.value, MemoryError)


def test_parity_and_tier(tmp_path, pairs):
    path = tmp_path / "a.kva"
    kvarc.save(path, pairs, dtype="bf16", parity=0.25)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(kvarc.DamagedError):
        kvarc.load(path)
    assert command("repair", "-o", tmp_path / "b.kva", path).returncode == 0
    assert same_pairs(kvarc.load(tmp_path / "b.kva", raw=True), pairs)
    kvarc.save(path, pairs, dtype="bf16", tier="had:4")
    with pytest.raises(kvarc.LossyError):
        kvarc.load(path)
    assert not same_pairs(kvarc.load(path, allow_lossy=True, raw=True), pairs)


def test_progress(archive):
    seen = []
    with kvarc.Reader(archive, progress=lambda done, total: seen.append((done, total))) as r:
        r.read()
    assert seen and seen[-1][0] > 0
    with kvarc.Reader(archive, progress=lambda done, total: True) as r:
        with pytest.raises(kvarc.InputOutputError):
            r.read()

    def interrupt(done, total):
        raise KeyboardInterrupt
    with kvarc.Reader(archive, progress=interrupt) as r:
        with pytest.raises(KeyboardInterrupt):
            r.read()


def test_file_that_is_kept_whole(tmp_path):
    name, path = tmp_path / "text", tmp_path / "a.kva"
    name.write_bytes(b"no cache")
    assert command("pack", "-q", "--opaque", "-o", path, name).returncode == 0
    with kvarc.Reader(path) as r:
        assert bytes(r.unpack()["text"]) == b"no cache" and not r.tensors
    with pytest.raises(kvarc.FormatError, match="as-cache"):
        kvarc.load(path)


@pytest.mark.parametrize("name", ["smollm2-135m-bf16-160.safetensors", "smollm2-135m-f16-160.slot"])
def test_files_of_engines(tmp_path, sample, name):
    path = tmp_path / "a.kva"
    assert command("pack", "-o", path, sample(name)).returncode == 0
    with kvarc.Reader(path) as r:
        assert bytes(r.unpack()[name]) == open(sample(name), "rb").read()
    pairs = kvarc.load(path, raw=True)
    assert len(pairs) == 30 and pairs[0][0].shape == (3, 160, 64)
    found = kvarc.info(path)
    assert found["layers"] == 30 and found["items"][0][0] == name
    if name.endswith(".slot"):
        return
    out = tmp_path / "b.kva"
    kvarc.save(out, pairs, dtype="bf16", level=1)
    assert 160 * 30 * 2 * 3 * 64 * 2 / os.path.getsize(out) > 1.45


def test_command():
    assert command("--version").stdout.startswith("kvarc " + kvarc.__version__)
    assert command("nonsense").returncode != 0


def batch_of(shared, tokens=300, heads=3):
    """A batch whose sequence b has the first shared[b] tokens of sequence 0, and their ids."""
    ids = np.random.default_rng(3).integers(1000, 30000, (len(shared), tokens), np.int32)
    rows = [make_pairs(seed=b, tokens=tokens, heads=heads) for b in range(len(shared))]
    pairs = [tuple(np.stack([row[i][j] for row in rows]) for j in (0, 1)) for i in range(3)]
    for b, n in enumerate(shared):
        ids[b, :n] = ids[0, :n]
        for pair in pairs:
            for array in pair:
                array[b, :, :n] = array[0, :, :n]
    return pairs, ids


def test_first_tokens_of_a_batch_are_there_once(tmp_path):
    shared = (300, 200, 200, 15, 300, 120, 0)
    pairs, ids = batch_of(shared)
    options = {"dtype": "bf16", "tokens": ids}
    path = tmp_path / "a.kva"
    stats = kvarc.save(path, pairs, **options)
    once = 300 + sum(300 - n if n > 15 else 300 for n in shared[1:])
    row = 3 * 2 * 3 * 64
    assert once * row <= stats["elements"] < (once + 2) * row
    back = kvarc.load(path, raw=True)
    assert same_pairs(back, pairs) and same(back.tokens, ids)
    part = kvarc.load(path, raw=True, layers=(1, 3), tokens=(190, 210))
    assert same_pairs(part, [(k[:, :, 190:210], v[:, :, 190:210]) for k, v in pairs[1:]])
    kvarc.verify(path)
    assert same_pairs(kvarc.loads(kvarc.dumps(pairs, level=0, **options), raw=True), pairs)
    session = kvarc.Session(path)
    assert session.append(pairs, dtype="bf16", tokens=ids).kept_tokens == 7 * 300
    other = [(k[:, :, :250], v[:, :, :250]) for k, v in pairs]
    session.append(other, dtype="bf16", tokens=ids[:, :250])
    assert same_pairs(session.load(raw=True), other)


def test_first_tokens_with_other_ids_are_others(tmp_path):
    pairs, ids = batch_of((300, 300, 300))
    ids[1, 100], ids[2, 3] = 1, 1
    stats = kvarc.save(tmp_path / "a.kva", pairs, dtype="bf16", tokens=ids)
    assert stats["elements"] // (3 * 2 * 3 * 64) == 300 + 200 + 300
    assert same(kvarc.load_tokens(tmp_path / "a.kva"), ids)


def test_what_is_read_forward_has_all_tokens(tmp_path):
    class Forward(io.RawIOBase):
        data = b""

        def writable(self):
            return True

        def write(self, data):
            self.data += bytes(data)
            return len(data)
    pairs, ids = batch_of((300, 300))
    options = {"dtype": "bf16", "tokens": ids}
    elements = 2 * 300 * 3 * 2 * 3 * 64
    file = Forward()
    for stats in (kvarc.save(tmp_path / "a.kva", pairs, streamable=True, **options),
                  kvarc.save(file, pairs, **options)):
        assert stats["elements"] >= elements
    assert same_pairs(kvarc.loads(file.data, raw=True), pairs)
    assert kvarc.save(tmp_path / "b.kva", pairs, **options)["elements"] < elements
