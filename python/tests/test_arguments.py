# SPDX-License-Identifier: BSD-3-Clause
"""What arguments mean, and what is said of those that are not taken."""
import errno
import io
import os
import pickle
import stat
import threading

import numpy as np
import pytest
from conftest import same_pairs

import kvarc


@pytest.fixture
def path(tmp_path, pairs):
    kvarc.save(tmp_path / "a.kva", pairs, tokens=np.arange(300), dtype="bf16")
    return tmp_path / "a.kva"


@pytest.mark.parametrize("given, first, end", [
    (None, 0, 3), (1, 1, 2), (np.int64(2), 2, 3), ((0, 2), 0, 2), ((1, 1), 1, 1),
    (range(2), 0, 2), (range(1, 3), 1, 3), (slice(2), 0, 2), (slice(1, None), 1, 3),
    (slice(-1, None), 2, 3), (slice(0, 9), 0, 3)])
def test_ranges_mean_the_same(path, pairs, given, first, end):
    """Layers, and tokens in hundreds, of load, Reader.read and ids."""
    chosen = pairs[first:end]
    assert same_pairs(kvarc.load(path, layers=given, raw=True), chosen)
    with kvarc.open(path) as r:
        read = [a.transpose(1, 0, 2) for a in r.read(layers=given, raw=True).values()]
        if (first, end) == (0, 3):
            read = read[:6]
        assert same_pairs([read], [[a for pair in chosen for a in pair]])
        first, n = first * 100, (end - first) * 100
        if isinstance(given, slice):
            given = slice(first, first + n)
        elif isinstance(given, (tuple, range)):
            given = type(given)((first, first + n)) if isinstance(given, tuple) else \
                range(first, first + n)
        elif given is not None:
            given, first, n = 100 * given, 100 * int(given), 1
        kept = [(k[:, first:first + n], v[:, first:first + n]) for k, v in pairs]
        assert same_pairs(kvarc.load(path, tokens=given, raw=True), kept)
        assert np.array_equal(kvarc.load_cache(path, tokens=given).tokens,
                              np.arange(first, first + n))
        assert np.array_equal(r.ids(0, given), np.arange(first, first + n))
        assert same_pairs([r.read(tensors=[0, 1], tokens=given, raw=True).values()],
                          [[a.transpose(1, 0, 2) for a in kept[0]]])


@pytest.mark.parametrize("bad", [[0, 2], [0, 2, 4], (0, 1, 2), (0,), "1", 1.0, True, (0, 1.5),
                                 (False, 1), slice(0, 3, 2), range(0, 3, 2), np.arange(2)])
def test_other_ranges_are_refused(path, bad):
    for what in ("layers", "tokens"):
        with pytest.raises(TypeError, match=what):
            kvarc.load(path, **{what: bad})
        with kvarc.open(path) as r, pytest.raises(TypeError, match=what):
            r.read(**{what: bad})


@pytest.mark.parametrize("bad", [-1, (2, 1), (-1, 1), 301, (0, 301), range(301)])
def test_ranges_outside(path, bad):
    for what in ("layers", "tokens"):
        with pytest.raises(ValueError, match=what):
            kvarc.load(path, **{what: bad})
        with kvarc.open(path) as r, pytest.raises(ValueError, match=what):
            r.read(**{what: bad})


def test_devices_are_written_to(tmp_path, pairs):
    """A named pipe, as a device, stays what it is, and gets the archive."""
    fifo, got = tmp_path / "fifo", []
    os.mkfifo(fifo)
    thread = threading.Thread(target=lambda: got.append(fifo.read_bytes()), daemon=True)
    thread.start()
    kvarc.save(fifo, pairs, dtype="bf16")
    thread.join(60)
    assert stat.S_ISFIFO(os.stat(fifo).st_mode) and os.listdir(tmp_path) == ["fifo"]
    assert same_pairs(kvarc.load(got[0], raw=True), pairs)
    with pytest.raises(kvarc.UsageError, match="is not a file"):
        kvarc.Session(fifo).append(pairs, dtype="bf16")
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    with pytest.raises(kvarc.InputOutputError, match=f"^{link}: ") as e:
        kvarc.save(link, pairs, dtype="bf16")
    assert e.value.errno == errno.ENOSPC and link.is_symlink()
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    with pytest.raises(IsADirectoryError):
        kvarc.save(tmp_path, pairs, dtype="bf16")


def test_errors_of_the_system(tmp_path, pairs):
    gone = str(tmp_path / "none" / "x.kva")
    session = kvarc.Session(gone)
    for call in (lambda: kvarc.load(gone), lambda: kvarc.save(gone, pairs, dtype="bf16"),
                 lambda: session.append(pairs, dtype="bf16"), session.load,
                 lambda: kvarc.Profile(gone)):
        with pytest.raises(FileNotFoundError) as e:
            call()
        assert isinstance(e.value, kvarc.InputOutputError)
        assert (e.value.errno, e.value.filename) == (errno.ENOENT, gone)
        assert e.value.strerror == os.strerror(errno.ENOENT)
        assert str(e.value).count(gone) == 1 and ".tmp" not in str(e.value)
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(kvarc.InputOutputError, match="exists") as e:
        kvarc.save(tmp_path / "a", pairs, dtype="bf16", overwrite=False)
    assert isinstance(e.value, FileExistsError)
    error = OSError(errno.EDQUOT, "full")

    class Full(io.BytesIO):
        def write(self, data):
            raise error
    with pytest.raises(kvarc.InputOutputError) as e:
        kvarc.save(Full(), pairs, dtype="bf16")
    assert e.value.errno == errno.EDQUOT


def test_cut_files_are_damaged(path, pairs):
    data = path.read_bytes()
    for n in (100, 3000, len(data) // 2, len(data) * 9 // 10):
        with pytest.raises(kvarc.DamagedError, match="the file is cut"):
            kvarc.load(data[:n])


@pytest.mark.parametrize("error, options, words", [
    (ValueError, {"level": -1}, "level: -1"), (ValueError, {"level": 9}, "level: 9"),
    (TypeError, {"level": "1"}, "level"), (TypeError, {"level": True}, "level"),
    (TypeError, {"model": 5}, "model: the name"), (ValueError, {"threads": -1}, "threads: -1"),
    (ValueError, {"memlimit": -1}, "memlimit"), (ValueError, {"key": b"short"}, "32 bytes"),
    (ValueError, {"key": "text"}, "passphrase"), (ValueError, {"passphrase": ""}, "4096"),
    (ValueError, {"passphrase": "x" * 4097}, "4096"), (ValueError, {"segment_tokens": -1}, "seg"),
    (TypeError, {"rope": "x"}, "theta"), (TypeError, {"rope": True}, "theta"),
    (TypeError, {"profile": 7}, "profile: a kvarc.Profile"),
    (TypeError, {"predictor": 7}, "predictor: a kvarc.Predictor")])
def test_options_are_refused(tmp_path, pairs, error, options, words):
    with pytest.raises(error, match=words) as e:
        kvarc.save(tmp_path / "a.kva", pairs, dtype="bf16", **options)
    assert "kvarc_" not in str(e.value) and not os.listdir(tmp_path)


def test_options_of_readers(path):
    with pytest.raises(ValueError, match="checkpoint: -1"):
        kvarc.Session(path).load(-1)
    with pytest.raises(ValueError, match="threads: -1"):
        kvarc.load(path, threads=-1)
    with pytest.raises(TypeError, match="profiles"):
        kvarc.load(path, profiles=3)
    with pytest.raises(ValueError, match="32 bytes"):
        kvarc.load(path, key=b"")
    with pytest.raises(TypeError, match="salvage"):  # a cache with gaps is none
        kvarc.load(path, salvage=True)
    with pytest.raises(TypeError, match="ignore: goes with config="):
        kvarc.load(path, ignore=("rope",))
    with pytest.raises(TypeError, match="config: goes with"):
        kvarc.save(path, [(np.zeros((1, 2, 8), np.float16),) * 2], config=1)


@pytest.mark.parametrize("cache, error, words", [
    ([], ValueError, "no layers"), ({}, ValueError, "no layers"),
    ([1, 2], TypeError, "layer 0: a pair of arrays, keys and values, is needed, not int$"),
    ([(np.zeros((1, 2, 8), np.float16),) * 3], TypeError, "layer 0: .* not tuple of 3$"),
    (5, TypeError, "int is no cache")])
def test_what_is_no_cache(tmp_path, cache, error, words):
    with pytest.raises(error, match=words):
        kvarc.save(tmp_path / "a.kva", cache)
    assert not os.listdir(tmp_path)


def test_options_that_are_too_short(tmp_path, pairs):
    with pytest.raises(ValueError, match="file_id: 16 bytes are needed, not 3"):
        kvarc.save(tmp_path / "a.kva", pairs, dtype="bf16", file_id=b"abc")
    kvarc.save(tmp_path / "a.kva", pairs, dtype="bf16", file_id=b"0123456789abcdef")
    assert kvarc.info(tmp_path / "a.kva")["file_id"] == b"0123456789abcdef".hex()


def test_memory_limits_have_numbers(path):
    """The number that the message names is the one that the exception has."""
    with pytest.raises(kvarc.MemLimitError) as e:
        kvarc.load(path, memlimit=1000)
    assert e.value.bytes_needed > 1000
    assert str(e.value).endswith(f"is needed: memlimit={e.value.bytes_needed} or more")


def test_handles_cannot_be_pickled(path):
    shape = [kvarc.Track()], [kvarc.Tensor(0, "key", "f16", 1, 8)]
    with kvarc.open(path) as r, kvarc.Writer(io.BytesIO(), *shape) as w, \
            kvarc.Store(path.parent / "store") as store:
        for handle in (r, w, store):
            with pytest.raises(TypeError, match=f"a kvarc.{type(handle).__name__} cannot be .*path"):
                pickle.dumps(handle)
    session = pickle.loads(pickle.dumps(kvarc.Session(path)))
    assert len(session.load()) == 3


def test_exceptions_can_be_pickled(path):
    """As processes hand them over."""
    with pytest.raises(FileNotFoundError) as missing:
        kvarc.load(path.parent / "none")
    with pytest.raises(kvarc.DamagedError) as damaged:
        kvarc.load(path.read_bytes()[:3000])
    for error in (missing.value, damaged.value):
        back = pickle.loads(pickle.dumps(error))
        assert str(back) == str(error) and vars(back) == vars(error)
        assert type(back).__mro__[1:] == type(error).__mro__[1:]
    assert pickle.loads(pickle.dumps(missing.value)).filename == missing.value.filename


def test_floats_are_what_they_are(tmp_path):
    """dtype= is for arrays of integers: floats of another dtype are no bits of it."""
    half = np.zeros((2, 70, 32), np.float16)
    with pytest.raises(TypeError, match="float16 are not bf16"):
        kvarc.save(tmp_path / "a.kva", [(half, half)], dtype="bf16")
    kvarc.save(tmp_path / "a.kva", [(half, half)], dtype="f16")
    kvarc.save(tmp_path / "a.kva", [(half.view(np.int16),) * 2], dtype="bf16")


def test_reprs_are_short(path, sample):
    session, store = kvarc.Session(path), kvarc.Store(path.parent / "store")
    assert repr(session) == f"kvarc.Session({str(path)!r})"
    assert repr(store) == f"kvarc.Store({str(path.parent / 'store')!r})"
    reader = kvarc.open(path)
    assert repr(reader) == "<kvarc.Reader of 3 layers, 7 tensors, 300 tokens>"
    reader.close()
    assert repr(reader) == "<kvarc.Reader, closed>"
    cache = kvarc.load_cache(path)
    assert "3 layers" in repr(cache) and "key (1, 3, 300, 64)" in repr(cache)
    writer = kvarc.Writer(io.BytesIO(), reader.tracks, reader.tensors)
    assert repr(writer) == "<kvarc.Writer of 2 tracks, 7 tensors>"
    writer.abort()
    profile = kvarc.Profile(sample("smollm2-135m-level2.kvp"))
    assert repr(profile).startswith("<kvarc.Profile smollm2-135m-level2.kvp, levels [2], ")
    for one in (cache, cache.layers[0], profile.ropes[0], reader.tensors[0]):
        assert len(repr(one)) < 300
