# SPDX-License-Identifier: BSD-3-Clause
"""Restored files of the reference decoder: kvarc-format.md 10."""

from kvarc_codecs import ELEMENT_BYTES, Cursor, demand


class Item:
    """RESTORE; its bytes are complete once all chunks and BLOBs are read."""

    def __init__(self, content, geometry):
        cursor = Cursor(content)
        self.kind, self.name = cursor.u16(), cursor.string()
        self.bytes, self.blob = cursor.varint(), b""
        self.pieces = [Piece(cursor, geometry)
                       for _ in range(cursor.varint())]
        cursor.extensions()
        demand(sum(p.bytes for p in self.pieces) == self.bytes,
               "the pieces of an item do not add up")
        self.literals = sum(p.bytes for p in self.pieces if p.type == 0)

    def refer(self, items):
        """items: those before it."""
        for p in self.pieces:
            if p.type == 2:
                demand(p.item < len(items) and p.offset + p.bytes
                       <= items[p.item].literals, "a reference of an item")

    def finish(self, archive):
        demand(self.literals == len(self.blob), "the BLOBs of an item")
        taken, self.content = 0, b""
        for p in self.pieces:
            if p.type == 1:
                self.content += p.area(archive)
            elif p.type == 2:
                self.content += archive.all_items[p.item].blob[
                    p.offset:][:p.bytes]
            else:
                self.content += self.blob[taken:taken + p.bytes]
                taken += p.bytes


class Piece:
    def __init__(self, cursor, geometry):
        self.type, self.bytes = cursor.u8(), cursor.varint()
        demand(self.type <= 2, "piece type %d" % self.type, "unsupported")
        demand(self.bytes >= 1, "a piece without bytes")
        if self.type == 2:
            self.item, self.offset = cursor.varint(), cursor.varint()
        if self.type == 1:
            self.track = cursor.varint(len(geometry.tracks) - 1)
            self.t0, self.n = cursor.varint(), cursor.varint()
            self.views = [View(cursor, self, geometry.tensors)
                          for _ in range(cursor.varint())]
            demand(sum(v.bytes for v in self.views) == self.bytes,
                   "the views of an area do not fill it")

    def area(self, archive):
        demand(self.t0 + self.n <= archive.tokens(self.track),
               "an item needs more tokens than there are")
        out = bytearray(self.bytes)
        for v in self.views:
            t = archive.geometry.tensors[v.tensor]
            size = ELEMENT_BYTES[t.dtype]
            width = t.heads * t.channels
            source = element_bytes_of(archive, v.tensor)
            for i in range(self.n):
                for c in range(width):
                    at = ((self.t0 + i) * width + c) * size
                    to = v.place(i, c)
                    out[to:to + size] = source[at:at + size]
        return bytes(out)


class View:
    def __init__(self, cursor, area, tensors):
        self.tensor = cursor.varint(len(tensors) - 1)
        (self.offset, self.token_stride, self.block_elems, self.block_stride,
         self.elem_stride) = (cursor.varint() for _ in range(5))
        tensor = tensors[self.tensor]
        demand(tensor.track == area.track, "a view of another track")
        demand(1 <= self.block_elems < 2 ** 32, "block_elems of a view")
        size = ELEMENT_BYTES[tensor.dtype]
        width = tensor.heads * tensor.channels
        self.bytes = area.n * width * size
        # "Every element MUST lie inside the area". Strides are not negative,
        # so the last element of the last or of the longest block is the
        # farthest.
        if area.n:
            ends = [width - 1]
            if width > self.block_elems:
                ends.append(width // self.block_elems * self.block_elems - 1)
            for c in ends:
                demand(self.place(area.n - 1, c) + size <= area.bytes,
                       "a view reaches past its area")

    def place(self, t, c):
        """Byte of element (token t0 + t, channel c) in the area."""
        return (self.offset + t * self.token_stride
                + c // self.block_elems * self.block_stride
                + c % self.block_elems * self.elem_stride)


def element_bytes_of(archive, tensor):
    """All tokens of a tensor, token-major, from its chunks."""
    t = archive.geometry.tensors[tensor]
    size = t.channels * ELEMENT_BYTES[t.dtype]
    out = bytearray(archive.tokens(t.track) * t.heads * size)
    for c in archive.chunks:
        left = archive.segments[c.segment].left
        for i in range(left if c.tensor == tensor else 0):
            at = ((c.t0 + i) * t.heads + c.first) * size
            n = c.heads * size
            out[at:at + n] = c.raw[i * n:i * n + n]
    return out
