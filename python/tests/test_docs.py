# SPDX-License-Identifier: BSD-3-Clause
"""The Python blocks of docs/python.md run."""
import os
import re

import numpy as np
import pytest
from conftest import make_pairs

import kvarc

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "python.md")


def blocks():
    with open(PAGE, encoding="utf-8") as page:
        return re.findall(r"^```python\n(.*?)^```", page.read(), re.S | re.M)


def has_torch():
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


@pytest.mark.parametrize("text", blocks(), ids=lambda text: text.splitlines()[0])
def test_block(text, tmp_path, monkeypatch):
    if "Device" in text:
        pytest.skip("needs a GPU; tests/test_device.py has these calls")
    monkeypatch.chdir(tmp_path)
    cache = [tuple(x.view(np.float16) for x in pair) for pair in make_pairs(layers=5)]
    ids = list(range(300))
    kvarc.save("session.kva", cache, tokens=ids)
    lines = text.splitlines()
    if not has_torch():
        lines = [line for line in lines if "torch" not in line and "device=" not in line]
    # a file system in memory is opened by fsspec as a bucket is
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://bucket/session.kva", "wb") as f, open("session.kva", "rb") as g:
        f.write(g.read())
    exec("\n".join(lines).replace("s3://", "memory://"), {"kvarc": kvarc, "cache": cache, "ids": ids})


def test_blocks_found():
    assert len(blocks()) >= 4
