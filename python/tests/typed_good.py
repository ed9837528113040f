# SPDX-License-Identifier: BSD-3-Clause
"""A program that uses the package as the manual says: `mypy --strict` finds nothing in it."""
from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

import kvarc

Array = np.ndarray[Any, Any]


def pairs(layers: int) -> List[Tuple[Array, Array]]:
    array = np.zeros((2, 16, 8), np.float16)
    return [(array, array)] * layers


def seen(done: int, total: Optional[int]) -> None:
    print(done if total is None else done / total)


def archives(folder: Path) -> int:
    path = folder / "a.kva"
    ids = list(range(16))
    stats = kvarc.save(path, pairs(3), tokens=ids, model="m", level=1, parity=0.0625,
                       progress=seen, key=b"k" * 32, metadata={"turn": 1}, identity={"host": "h"})
    cache = kvarc.load(path, layers=(0, 2), tokens=slice(8), key=b"k" * 32)
    if isinstance(cache, list):
        for keys, values in cache:
            print(keys.shape, values.shape, cache.tokens)
    elif isinstance(cache, kvarc.Cache):
        print(cache.layers[0].tensors["key"])
    whole: kvarc.Cache = kvarc.load_cache(path, raw=True, key=b"k" * 32)
    info = kvarc.info(path, key=b"k" * 32)
    names: List[str] = [t["name"] for t in info["tensors"]]
    codecs: Tuple[str, ...] = info["codecs"]
    kvarc.verify(path, key=b"k" * 32)
    data: bytes = kvarc.dumps(pairs(1), level=0)
    print(codecs, kvarc.loads(data, like="numpy", device="cpu").tokens)
    return stats["file_bytes"] + len(whole.layers) + len(names) + info["file_bytes"]


def readers(file: io.BytesIO) -> Dict[int, Array]:
    with kvarc.Writer(file, [kvarc.Track()], [kvarc.Tensor(0, "key", "f16", 2, 8)]) as w:
        w.append(0, [np.zeros((16, 2, 8), np.float16)], ids=range(16))
        number: int = w.checkpoint("one")
    with kvarc.open(file.getvalue(), checkpoint=number, threads=1) as r:
        ids = r.ids()
        if ids is not None:
            print(ids.max())
        for damage in r.damage():
            print(damage.tensor, damage.t0)
        names: List[str] = [name for layer in r.keys() for name in r[layer]]
        print(names)
        return r.read(layers=range(1), tokens=-1 if r.tokens() == 0 else None)


def sessions(folder: Path) -> int:
    session = kvarc.Session(folder / "s.kva", rope=10000.0, level=0, sync=False)
    done = session.append(pairs(2), tokens=np.arange(16), label="turn 1")
    latest = session.load(1)
    with kvarc.Store(folder / "store") as store:
        saved = store.save("chat/1", latest, tokens=np.arange(16))
        found: List[kvarc.Version] = store.list()
        files: Dict[str, bytearray] = store.load_files("chat/1", saved.version)
    return done.written_bytes + len(found) + len(files)


def errors(path: str) -> Optional[Tuple[int, int]]:
    try:
        kvarc.load(path)
    except kvarc.DamagedError as e:
        if e.offset is not None and e.layer is not None:
            return e.offset, e.layer
    except kvarc.MemLimitError as e:
        return e.bytes_needed, 0
    return None


def profiles(path: str) -> List[kvarc.Measured]:
    profile = kvarc.train([path], "model.kvp", rope=False, levels=(2,))
    print(profile.info["digest"], profile.ropes)
    return kvarc.bench(pairs(1), levels=(0, 2), profile=profile, repeats=1)
