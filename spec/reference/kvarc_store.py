# SPDX-License-Identifier: BSD-3-Clause
"""STOREREF frames of the reference decoder: frames.md 12.3."""

import struct

from kvarc_chain import b128
from kvarc_codecs import ELEMENT_BYTES, Bad, Cursor, demand
from xxh3 import h128


def tensors_of(geometry, track):
    """Numbers of the tensors of a track, in the order of their chunks."""
    return [i for _, _, i in sorted(
        (t.layer, t.kind, i) for i, t in enumerate(geometry.tensors)
        if t.track == track)]


def shapes(geometry, track):
    """What elements of another archive must be of."""
    return [(t.layer, t.kind, t.role, t.dtype, t.heads, t.channels)
            for t in (geometry.tensors[i]
                      for i in tensors_of(geometry, track))]


def elements(archive, segment, tensor):
    """All heads of a tensor for the tokens of a segment, token by token."""
    t = archive.geometry.tensors[tensor]
    n, size = archive.segments[segment].n, t.channels * ELEMENT_BYTES[t.dtype]
    out = bytearray(n * t.heads * size)
    for c in archive.chunks:
        if (c.segment, c.tensor) == (segment, tensor):
            for i in range(n):
                at = (i * t.heads + c.first) * size
                out[at:at + c.heads * size] = \
                    c.raw[i * c.heads * size:(i + 1) * c.heads * size]
    return bytes(out)


def content_digest(geometry, track, s, raws):
    """raws: the elements of the tensors of the track."""
    out = b"kvarc content 10" + struct.pack("<II", s.n, s.ids is not None) \
        + struct.pack("<%di" % s.n, *s.positions)
    if s.ids is not None:
        out += struct.pack("<%di" % s.n, *s.ids)
    for tensor, raw in zip(tensors_of(geometry, track), raws):
        t = geometry.tensors[tensor]
        size = t.channels * ELEMENT_BYTES[t.dtype]
        out += struct.pack("<IBBBBII", t.layer, t.kind, t.role, t.dtype, 0,
                           t.heads, t.channels)
        for head in range(t.heads):
            out += h128(b"".join(
                raw[(i * t.heads + head) * size:][:size]
                for i in range(s.n)))
    return b128(out)


class StoreReader:
    """Of one archive. store: a function of (namespace, key) that gives the
    archives, as they were read, that may have the segment."""

    def __init__(self, archive, superblock, store=None):
        self.archive, self.store = archive, store or (lambda *_: ())
        self.used = superblock.incompat & 2
        self.tokens = {}            # by sequence: track, t0, tokens

    def on_storeref(self, f, record):
        demand(self.used, "a STOREREF frame without its feature")
        archive = self.archive
        demand(archive.open_segment is None, "a STOREREF before a COMMIT")
        cursor = Cursor(f.content)
        number = cursor.varint(len(archive.geometry.tracks) - 1)
        t0 = cursor.varint()
        demand(t0 <= archive.tokens(number), "t0 of a STOREREF")
        count = cursor.varint(4096)
        demand(count >= 1, "a STOREREF of nothing")
        segments = []
        for _ in range(count):
            n, chained = cursor.varint(256), cursor.u8_flags(
                1, "flags of a STOREREF")
            segments.append((n, cursor.varint(), cursor.take(16),
                             cursor.take(16) if chained else None))
        cursor.extensions()
        width = sum(t.heads * t.channels * ELEMENT_BYTES[t.dtype]
                    for t in archive.geometry.tensors if t.track == number)
        for n, size, _, _ in segments:
            demand(n >= 1, "a segment without tokens")
            demand(size == n * width, "the bytes of a segment")
        first = t0
        for i, (n, _, digest, chain) in enumerate(segments):
            s, raws = self.segment(chain or digest, number, n, digest)
            demand(not chain or s.ids is not None,
                   "a chain value without token ids")
            s = record(n=n, track=number, t0=first, ids=s.ids,
                       positions=s.positions, coded=False, chain=chain)
            first += n
            archive.begin_segment((f.sequence, i), s)
            s.due = []
            for tensor, raw in zip(tensors_of(archive.geometry, number),
                                   raws):
                t = archive.geometry.tensors[tensor]
                archive.chunks.append(record(
                    tensor=tensor, first=0, heads=t.heads, t0=s.t0, n=n,
                    codec=0, sequence=None, offset=None, raw=raw, params=0,
                    raw_check=None, segment=archive.open_segment,
                    exact=False))
                archive.predictors.observe(tensor, s, t.heads, raw)
        self.tokens[f.sequence] = [number, t0, first - t0]

    def segment(self, key, track, n, digest):
        """What the store gave, when it has the digest."""
        sources = self.store(self.archive.identity.get(b"namespace", b""), key)
        geometry = self.archive.geometry
        for source, number, s in ((source, number, s) for source in sources
                                  for number, s in source.segments.items()):
            raws = [elements(source, number, i)
                    for i in tensors_of(source.geometry, s.track)]
            if (s.n, shapes(source.geometry, s.track)) == (
                    n, shapes(geometry, track)) \
                    and content_digest(geometry, track, s, raws) == digest:
                return s, raws
        raise Bad("store", "the store does not have %s" % key.hex())


def folder_store(read, folder):
    """The store of the vectors: FOLDER/object-NAMESPACE-KEY.kva, KEY in
    hexadecimal. read(path): an archive, or None."""
    def find(namespace, key):
        found = namespace.isalnum() and read("%s/object-%s-%s.kva" % (
            folder, namespace.decode("ascii", "replace"), key.hex()))
        return [found] if found else []
    return find
