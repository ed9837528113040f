# SPDX-License-Identifier: BSD-3-Clause
"""FORK frames of the reference decoder: kvarc-format.md 6.3."""

from kvarc_codecs import Cursor, demand
from kvarc_store import tensors_of


def pair(geometry, x, y):
    """Whether two tensors are one, but for what they belong to."""
    x, y = geometry.tensors[x], geometry.tensors[y]
    return all(getattr(x, name) == getattr(y, name) for name in (
        "layer", "kind", "role", "dtype", "heads", "channels", "first_head",
        "total_heads", "flags", "source_type", "group")) and x.rope is y.rope


def mates(geometry, track, source):
    """{tensor of the source: that of the track}"""
    mine, theirs = tensors_of(geometry, track), tensors_of(geometry, source)
    demand(len(mine) == len(theirs)
           and all(pair(geometry, x, y) for x, y in zip(mine, theirs)),
           "the tensors of a FORK are no pairs")
    mate = dict(zip(theirs, mine))
    for y, x in mate.items():
        x, y = geometry.tensors[x], geometry.tensors[y]
        demand((mate[y.of - 1] if y.of else -1) == x.of - 1,
               "the tensors of a FORK belong to others")
    return mate


def take_chunks(archive, record, key, s, mate):
    """Chunks of the segment `key`, as those of the segment in hand, s."""
    for c in [c for c in archive.chunks if c.segment == key]:
        tensor = mate[c.tensor]
        archive.chunks.append(record(**{
            **vars(c), "tensor": tensor, "segment": archive.open_segment,
            "sequence": None, "offset": None}))
        if c.exact:
            archive.predictors.exact.add(tensor)
        archive.predictors.observe(tensor, s, c.heads, c.raw)


def on_fork(archive, f, record):
    demand(archive.open_segment is None, "a FORK before a COMMIT")
    tracks, cursor = archive.geometry.tracks, Cursor(f.content)
    number, source = (cursor.varint(len(tracks) - 1) for _ in range(2))
    n = cursor.varint(archive.tokens(source))
    cursor.extensions()
    demand(number != source, "a FORK of the track itself")
    demand(n >= 1, "a FORK of no tokens")
    mate = mates(archive.geometry, number, source)
    f.fork = [number, source, n]
    taken = [(key, s) for key, s in archive.segments.items()
             if s in tracks[source].segments and s.t0 < n]
    now = archive.predictors.last
    for i, (key, s) in enumerate(sorted(taken, key=lambda x: x[1].t0)):
        left = min(s.left, n - s.t0)
        s = record(**{**vars(s), "track": number})
        # what predicts it is what stood before its SEGMENT
        archive.predictors.last = s.predictor
        archive.begin_segment((f.sequence, i), s)
        take_chunks(archive, record, key, s, mate)
        archive.predictors.features = {}
        s.left = left
    archive.predictors.last = now
    archive.open_segment = None
