# SPDX-License-Identifier: BSD-3-Clause
"""Descriptions of caches that do not fit their archive: an exception, never wrong shapes."""
import copy
import io
import json

import numpy as np
import pytest
from conftest import make_pairs
from test_save_load import check_hybrid, hybrid

import kvarc
from kvarc import _layout, _safetensors

VALUES = (None, -1, 0, 1, 7, 1 << 40, 1 << 70, "x", "bf16", "f32", [], [0], [1, 2, 3, 4], {}, True,
          1.5)


def places(value, path=()):
    """Paths of all values in JSON."""
    yield path
    if isinstance(value, dict):
        for k in value:
            yield from places(value[k], path + (k,))
    elif isinstance(value, list):
        for k in range(len(value)):
            yield from places(value[k], path + (k,))


def changed(value, path, to):
    if not path:
        return to
    value = copy.deepcopy(value)
    inside = value
    for k in path[:-1]:
        inside = inside[k]
    inside[path[-1]] = to
    return value


def test_descriptions(monkeypatch):
    given = hybrid()
    file = io.BytesIO()
    kvarc.save(file, given)
    data = file.getvalue()
    with kvarc.Reader(data) as r:
        found = _layout.find_json(r)
    rng = np.random.default_rng(5)
    refused = 0
    for path in list(places(found))[1:]:
        for to in rng.choice(len(VALUES), 4, replace=False):
            bad = changed(found, path, VALUES[to])
            monkeypatch.setattr(_layout, "find_json", lambda r, bad=bad: bad)
            try:
                kvarc.load_cache(data, raw=True)
            except (kvarc.Error, ValueError):
                refused += 1
    assert refused > 150
    twice = changed(found, ("layers", 1, "tensors", "value"),
                    found["layers"][1]["tensors"]["key"])
    monkeypatch.setattr(_layout, "find_json", lambda r: twice)
    with pytest.raises(kvarc.FormatError):
        kvarc.load_cache(data)
    monkeypatch.undo()
    check_hybrid(given, kvarc.load_cache(data, raw=True))


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"null", b'{"version":2}', b'{"a":1}',
                                  b"[" * 100000])
def test_texts(text):
    text += b" " * (-len(text) % 64) or b" " * 64
    file = io.BytesIO()
    with kvarc.Writer(file, [kvarc.Track("other")],
                      [kvarc.Tensor(0, "opaque", "bytes", 1, 64, 0, _layout.LABEL)]) as w:
        w.append(0, [np.frombuffer(text, np.uint8).reshape(-1, 1, 64)])
    with pytest.raises(kvarc.FormatError):
        kvarc.load(file.getvalue())


def test_safetensors_of_stores():
    given = kvarc.to_cache(make_pairs(layers=1, tokens=20), dtype="bf16", tokens=range(20))
    data = _safetensors.dump(given)
    assert np.array_equal(_safetensors.parse(data).tokens, range(20))
    header = json.loads(bytes(data[8:8 + int.from_bytes(data[:8], "little")]))
    rng = np.random.default_rng(6)
    for path in list(places(header)):
        for to in rng.choice(len(VALUES), 4, replace=False):
            text = json.dumps(changed(header, path, VALUES[to])).encode()
            bad = len(text).to_bytes(8, "little") + text + bytes(data[8:])
            try:
                _safetensors.parse(bad)
            except kvarc.FormatError:
                pass
    for cut in (0, 7, 20, len(data) - 1):
        with pytest.raises(kvarc.FormatError):
            _safetensors.parse(data[:cut])
