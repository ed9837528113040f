# SPDX-License-Identifier: BSD-3-Clause
"""What the tests share: caches with the statistics of real ones, and real files."""
import os

import numpy as np
import pytest

SAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "data",
                      "sample")


def bf16(array):
    """The bits of fp32 numbers, cut to bf16."""
    return (np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def make_pairs(layers=3, heads=3, tokens=300, channels=64, seed=1):
    """(keys, values) for each layer, bits of bf16 [heads, tokens, channels]."""
    rng = np.random.default_rng(seed)
    scale = np.exp(rng.standard_normal((layers, 2, heads, 1, channels)))
    data = bf16(rng.standard_normal((layers, 2, heads, tokens, channels)) * scale)
    return [(data[i, 0], data[i, 1]) for i in range(layers)]


def same(a, b):
    """Whether two arrays have the same shape and the same bits."""
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and np.ascontiguousarray(a).tobytes() == \
        np.ascontiguousarray(b).tobytes()


def same_pairs(a, b):
    return len(a) == len(b) and all(same(x, y) for p, q in zip(a, b) for x, y in zip(p, q))


@pytest.fixture
def pairs():
    return make_pairs()


@pytest.fixture
def sample():
    return lambda name: os.path.join(SAMPLE, name)
