# SPDX-License-Identifier: BSD-3-Clause
"""What a cache looks like: tracks (token axes), tensors, RoPE."""
from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import Any, List, Optional, Sequence, Tuple

from . import _arrays
from ._native import ffi, lib

__all__ = ["Rope", "Track", "Tensor"]

KINDS = _arrays.Numbers({"key": lib.KVARC_KEY, "value": lib.KVARC_VALUE, "kv_packed": lib.KVARC_KV_PACKED,
                         "mla_latent": lib.KVARC_MLA_LATENT, "indexer_key": lib.KVARC_INDEXER_KEY,
                         "conv_state": lib.KVARC_CONV_STATE, "recurrent_state": lib.KVARC_RECURRENT_STATE,
                         "cross_key": lib.KVARC_CROSS_KEY, "cross_value": lib.KVARC_CROSS_VALUE,
                         "opaque": lib.KVARC_OPAQUE})
KIND_NAMES = _arrays.Names({code: name for name, code in KINDS.items()})
TRACK_KINDS = _arrays.Numbers({"self": lib.KVARC_TRACK_SELF, "window": lib.KVARC_TRACK_WINDOW,
                               "cross": lib.KVARC_TRACK_CROSS, "state": lib.KVARC_TRACK_STATE,
                               "other": lib.KVARC_TRACK_OTHER})
TRACK_KIND_NAMES = _arrays.Names({code: name for name, code in TRACK_KINDS.items()})
_FRACTION = 57  # bits of logarithms


def _log2(theta: float) -> int:
    """As src/numeric/rope_rotations.c, whose bits profiles depend on."""
    bits, = struct.unpack("<Q", struct.pack("<d", theta))
    log, y = (bits >> 52) - 1023, (bits << 11) & (1 << 64) - 1 | 1 << 63
    for _ in range(_FRACTION):
        y = y * y >> 64
        log = log << 1 | y >> 63
        if not y >> 63:
            y <<= 1
    return log


def _exp2(x: int) -> int:
    """2^x of 0 <= x < 1, in 2^-64; in 2^-63."""
    y, one = x * 0xb17217f7d1cf79ac >> 64, 1 << 63
    r = one
    for k in range(20, 0, -1):
        r = one + (r * y >> 64) // k
    return r


def _rotation(log: int, i: int, rotary: int) -> int:
    e = log // rotary * (2 * i) + log % rotary * (2 * i) // rotary + 0x054d90e6931bbeeb
    whole = (e >> _FRACTION) + 1
    rest = (whole << _FRACTION) - e
    f = (1 << 63) >> (whole - 2) if rest >> _FRACTION else \
        _exp2(rest << (64 - _FRACTION)) >> (whole - 1)
    return (f + (1 << 15)) >> 16 << 16


@dataclass(frozen=True)
class Rope:
    """A rotary embedding: freq[i] is the angle per position of pair i, as a fraction of a full
    turn times 2^64; twice as many channels of a head are rotated. interleaved: channel 2i turns
    with 2i + 1, otherwise i with i + len(freq)."""

    freq: Tuple[int, ...]
    interleaved: bool = False

    @classmethod
    def of_theta(cls, theta: float, rotary: int, interleaved: bool = False) -> "Rope":
        """theta^(-2i/rotary) radians per position for pair i, without scaling."""
        log = _log2(float(theta))
        return cls(tuple(_rotation(log, i, rotary) for i in range(rotary // 2)), interleaved)


    def __repr__(self) -> str:
        return f"<kvarc.Rope of {2 * len(self.freq)} channels" \
               f"{', interleaved' if self.interleaved else ''}>"


@functools.lru_cache(maxsize=64)
def _of_theta(theta: float, channels: int) -> Rope:
    return Rope.of_theta(theta, channels)


def rope_of(given: Any, channels: int) -> Optional[Rope]:
    """The RoPE of keys with this many channels: a Rope, or theta (10000.0, for instance) where
    all channels are rotated in halves; None and False: none."""
    if given is None or given is False or isinstance(given, Rope):
        return given or None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or \
            not 1 < given < float("inf"):
        raise TypeError("rope: a kvarc.Rope, or the theta of one such as 10000.0, is needed, not "
                        f"{given!r}")
    return _of_theta(float(given), channels)


@dataclass(frozen=True)
class Track:
    """One token axis: its tensors have the same tokens. kind: "self", "window" (of `window`
    tokens), "cross", "state", "other"."""

    kind: str = "self"
    window: int = 0
    label: str = ""


@dataclass(frozen=True)
class Tensor:
    """One tensor: [tokens of its track, heads, channels]. kind: "key", "value", "mla_latent",
    "recurrent_state", "conv_state", "opaque", ...; dtype: "bf16", "f16", "f32", "e4m3", "e5m2",
    "i8", "u8", "bytes". post_rope: keys are as they are after RoPE. total_heads: of the whole
    model where this is a shard that begins at first_head; 0: heads. role, source_type: of planes
    of quantised blocks, as in kvarc/geometry.h; 0: the tensor itself. belongs_to: number of the
    tensor whose scales, say, these are: column c of it (head * channels + channel) goes with
    column c // group of this one. Kinds and dtypes of later versions of the format are
    "unknown-70" and so on."""

    layer: int
    kind: str
    dtype: str
    heads: int
    channels: int
    track: int = 0
    name: str = ""
    rope: Optional[Rope] = None
    post_rope: bool = True
    first_head: int = 0
    total_heads: int = 0
    role: int = 0
    source_type: int = 0
    belongs_to: Optional[int] = None
    group: int = 0

    @property
    def token_bytes(self) -> int:
        """Bytes of one token."""
        return self.heads * self.channels * lib.kvarc_dtype_bytes(_arrays.CODES[self.dtype])


def to_c(tracks: Sequence[Track], tensors: Sequence[Tensor]) -> Tuple[Any, List[Any]]:
    """A kvarc_geometry, and what must stay as long as it is used."""
    keep: List[Any] = []

    def array(kind: str, n: int) -> Any:
        keep.append(ffi.new(kind + "[]", max(n, 1)))
        return keep[-1]

    def text(s: str) -> Any:
        keep.append(ffi.new("char[]", s.encode("utf-8")))
        return keep[-1]

    ropes = list(dict.fromkeys(t.rope for t in tensors if t.rope is not None))
    g = ffi.new("kvarc_geometry *")
    g.n_ropes, g.n_tracks, g.n_tensors = len(ropes), len(tracks), len(tensors)
    g.ropes = c_ropes = array("kvarc_rope", len(ropes))
    g.tracks = c_tracks = array("kvarc_track", len(tracks))
    g.tensors = c_tensors = array("kvarc_tensor", len(tensors))
    for c, rope in zip(c_ropes, ropes):
        c.pairing = rope.interleaved
        c.rotary = 2 * len(rope.freq)
        c.freq = array("uint64_t", len(rope.freq))
        c.freq[0:len(rope.freq)] = rope.freq
    for c, track in zip(c_tracks, tracks):
        c.kind = TRACK_KINDS[track.kind]
        c.window = track.window
        if track.label:
            c.label = text(track.label)
    for c, t in zip(c_tensors, tensors):
        c.layer, c.kind, c.dtype = t.layer, KINDS[t.kind], _arrays.CODES[t.dtype]
        c.heads, c.channels, c.track = t.heads, t.channels, t.track
        c.flags = lib.KVARC_TENSOR_POST_ROPE if t.post_rope and t.rope else 0
        c.rope = 1 + ropes.index(t.rope) if t.rope else 0
        c.first_head, c.total_heads = t.first_head, t.total_heads
        c.role, c.source_type, c.group = t.role, t.source_type, t.group
        c.belongs_to = 0 if t.belongs_to is None else 1 + t.belongs_to
        if t.name:
            c.name = text(t.name)
    return g, keep


def _text(c: Any) -> str:
    return "" if c == ffi.NULL else ffi.string(c).decode("utf-8", "replace")


def from_c(g: Any) -> Tuple[List[Track], List[Tensor]]:
    """Tracks and tensors of a kvarc_geometry."""
    ropes = [Rope(tuple(g.ropes[i].freq[0:g.ropes[i].rotary // 2]), bool(g.ropes[i].pairing))
             for i in range(g.n_ropes)]
    tracks = [Track(TRACK_KIND_NAMES[g.tracks[i].kind], g.tracks[i].window,
                    _text(g.tracks[i].label)) for i in range(g.n_tracks)]
    tensors = []
    for i in range(g.n_tensors):
        t = g.tensors[i]
        tensors.append(Tensor(
            t.layer, KIND_NAMES[t.kind], _arrays.NAMES[t.dtype],
            t.heads, t.channels, t.track, _text(t.name), ropes[t.rope - 1] if t.rope else None,
            bool(t.flags & lib.KVARC_TENSOR_POST_ROPE) or not t.rope, t.first_head,
            0 if t.first_head == 0 and t.total_heads == t.heads else t.total_heads,
            t.role, t.source_type, t.belongs_to - 1 if t.belongs_to else None, t.group))
    return tracks, tensors
