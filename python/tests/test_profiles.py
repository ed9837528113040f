# SPDX-License-Identifier: BSD-3-Clause
"""Profiles: paths of them, installed ones, and the RoPE that they are for."""
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import make_pairs, same_pairs

import kvarc


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Archives a.kva and b.kva without RoPE, a profile m.kvp of them, and c.kva made with it."""
    folder, pairs = tmp_path_factory.mktemp("profiles"), make_pairs()
    kvarc.save(folder / "a.kva", pairs, dtype="bf16")
    kvarc.save(folder / "b.kva", make_pairs(seed=2), dtype="bf16")
    kvarc.train([folder / "a.kva"], folder / "m.kvp", rope=10000.0, levels=(2,))
    kvarc.save(folder / "c.kva", pairs, dtype="bf16", level=2, profile=folder / "m.kvp",
               rope=10000.0)
    return folder


def test_paths(folder, pairs):
    path = str(folder / "m.kvp")
    for given in (path, [path], folder / "m.kvp", kvarc.Profile(path), [kvarc.Profile(path)],
                  open(path, "rb").read()):
        assert same_pairs(kvarc.load(folder / "c.kva", profiles=given, raw=True), pairs)
    assert kvarc.bench(pairs, dtype="bf16", levels=(2,), repeats=1, profile=path, rope=10000.0)
    with kvarc.Store(folder / "store", profiles=path) as store:
        store.save("a", pairs, dtype="bf16", level=2, profile=path)
        assert same_pairs(store.load("a", raw=True), pairs)
        assert store.save("b", pairs, dtype="bf16", level=2, profile=path, rope=10000.0).version
        with pytest.raises(kvarc.PredictorError, match="RoPE"):
            store.save("c", pairs, dtype="bf16", level=2, profile=path, rope=False)
    with pytest.raises(FileNotFoundError, match="none.kvp") as e:
        kvarc.save(folder / "d.kva", pairs, dtype="bf16", level=2, profile="none.kvp")
    assert e.value.filename == "none.kvp"


def test_theta_is_a_rope(folder):
    assert kvarc.Profile(folder / "m.kvp").ropes == [kvarc.Rope.of_theta(10000.0, 64)]
    with kvarc.open(folder / "c.kva") as r:
        assert r.tensors[0].rope == kvarc.Rope.of_theta(10000.0, 64)


def test_installed_profiles(folder, pairs, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KVARC_PROFILE_PATH", str(tmp_path / "installed"))
    with pytest.raises(kvarc.PredictorError, match="profiles=") as e:
        kvarc.load(folder / "c.kva")
    subprocess.run([sys.executable, "-m", "kvarc", "profiles", "install", folder / "m.kvp"],
                   check=True, capture_output=True)
    name = e.value.digest.hex() + ".kvp"
    assert os.listdir(tmp_path / "installed") == [name]
    assert same_pairs(kvarc.load(folder / "c.kva", raw=True), pairs)
    monkeypatch.delenv("KVARC_PROFILE_PATH")
    with pytest.raises(kvarc.PredictorError):
        kvarc.load(folder / "c.kva")
    home = tmp_path / ".local/share/kvarc/profiles"
    home.mkdir(parents=True)
    shutil.copy(tmp_path / "installed" / name, home)
    assert same_pairs(kvarc.load(folder / "c.kva", raw=True), pairs)


def test_installed_profiles_that_are_not_right(folder, tmp_path, monkeypatch, sample):
    """One that is damaged, or another than its name says, is not there."""
    digest = kvarc.Profile(folder / "m.kvp").info["digest"]
    monkeypatch.setenv("KVARC_PROFILE_PATH", str(tmp_path))
    data = (folder / "m.kvp").read_bytes()
    for bad in (data[:100], open(sample("smollm2-135m-level2.kvp"), "rb").read()):
        (tmp_path / f"{digest}.kvp").write_bytes(bad)
        with pytest.raises(kvarc.PredictorError):
            kvarc.load(folder / "c.kva")
    other = tmp_path / "other"  # the next folder has the right one
    other.mkdir()
    (other / f"{digest}.kvp").write_bytes(data)
    monkeypatch.setenv("KVARC_PROFILE_PATH", f"{tmp_path}:{other}")
    assert len(kvarc.load(folder / "c.kva")) == 3


def test_train_needs_the_rope(folder, pairs):
    files = [folder / "a.kva", folder / "b.kva"]
    with pytest.raises(ValueError, match="a.kva: does not say the RoPE"):
        kvarc.train(files)
    with pytest.raises(ValueError, match="a cache: does not say the RoPE"):
        kvarc.train([kvarc.to_cache(pairs, dtype="bf16")])
    assert kvarc.train(files, rope=False, levels=(2,)).ropes == []
    given = kvarc.Rope.of_theta(5000.0, 32)
    assert kvarc.train(files, rope=given, levels=(2,)).ropes == [given]
    kvarc.save(folder / "said.kva", pairs, dtype="bf16", rope=given)
    assert kvarc.train([folder / "said.kva"], levels=(2,)).ropes == [given]


def test_a_profile_for_another_rope(folder, pairs):
    without = kvarc.train([folder / "a.kva"], rope=False, levels=(2,))
    for profile, rope, words in ((folder / "m.kvp", None, "give it with rope=profile.ropes"),
                                 (without, 10000.0, "keys without RoPE")):
        with pytest.raises(kvarc.PredictorError, match=words):
            kvarc.save(folder / "x.kva", pairs, dtype="bf16", level=2, profile=profile, rope=rope)
    assert not os.path.exists(folder / "x.kva")


@pytest.fixture
def installed(folder, tmp_path, monkeypatch):
    """A folder of installed profiles: m.kvp, by its digest, and before it one of fewer layers."""
    path = tmp_path / "installed"
    path.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KVARC_PROFILE_PATH", str(path))
    kvarc.save(tmp_path / "some.kva", make_pairs()[:2], dtype="bf16", rope=10000.0)
    kvarc.train([tmp_path / "some.kva"], path / "0.kvp", levels=(2,))
    (path / "1.kvp").write_bytes(b"no profile")
    shutil.copy(folder / "m.kvp", path / f"{kvarc.Profile(folder / 'm.kvp').info['digest']}.kvp")
    return path


def _save(folder, pairs, **options):
    """Saves pairs in all the ways that choose a profile; returns what loads each."""
    session = kvarc.Session(folder / "s.kva", rope=10000.0, **options)
    for n in (290, 300):
        session.append([(k[:, :n], v[:, :n]) for k, v in pairs], tokens=np.arange(n), dtype="bf16")
    store = kvarc.Store(folder / "s")
    store.save("a", pairs, dtype="bf16", **options)
    kvarc.save(folder / "a.kva", pairs, dtype="bf16", rope=10000.0, **options)
    return (lambda: session.load(raw=True), lambda: store.load("a", raw=True),
            lambda: kvarc.load(folder / "a.kva", raw=True))


def test_level_2_takes_the_installed_profile(folder, installed, pairs, tmp_path, monkeypatch):
    """The one that predicts most."""
    loads = _save(tmp_path, pairs, level=2)
    for load in loads:
        assert same_pairs(load(), pairs)
    monkeypatch.delenv("KVARC_PROFILE_PATH")
    for load in loads:
        with pytest.raises(kvarc.PredictorError,
                           match=kvarc.Profile(folder / "m.kvp").info["digest"]):
            load()


def test_level_3_of_installed_profiles_of_level_2(folder, installed, pairs):
    options = {"dtype": "bf16", "rope": 10000.0, "file_id": b"0" * 16}
    with pytest.warns(UserWarning, match="level 2: no installed profile that fits has level 3"):
        data = kvarc.dumps(pairs, level=3, **options)
    given = installed / f"{kvarc.Profile(folder / 'm.kvp').info['digest']}.kvp"
    assert data == kvarc.dumps(pairs, level=2, profile=given, **options)
    assert data == kvarc.dumps(pairs, level=2, **options)


def test_no_installed_profile_fits(tmp_path, pairs, monkeypatch, installed):
    """Level 1, and a line that says so."""
    options = {"dtype": "bf16", "file_id": b"0" * 16}
    with pytest.warns(UserWarning, match="level 1: .*keys do not say their RoPE"):
        assert kvarc.dumps(pairs, level=2, **options) == kvarc.dumps(pairs, **options)
    with pytest.raises(kvarc.PredictorError, match="profile="):
        kvarc.bench(pairs, dtype="bf16", levels=(1, 2))
    monkeypatch.setenv("KVARC_PROFILE_PATH", str(tmp_path / "none"))
    with pytest.warns(UserWarning, match="level 1: no installed profile fits; kvarc.train") as w:
        loads = _save(tmp_path, pairs, level=3)
    assert len(w) == 4
    for load in loads:
        assert same_pairs(load(), pairs)
