#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reference decoder of kvarc archives, written from spec/kvarc-format.md.

    kvarc_ref.py info FILE             what is inside, as one JSON object
    kvarc_ref.py unpack FILE -o DIR    restores item i as DIR/item-i
    kvarc_ref.py digest FILE           a line a chunk, then a line an item
    kvarc_ref.py repair FILE -o OUT    by PARITY frames; nothing else is read

--checkpoint N: the file as of that checkpoint.
--profile FILE.kvp and --model FILE.gguf, as often as needed, give profiles and
models that archives name; --key FILE a line `key HEX` or `passphrase TEXT`,
--store FOLDER the objects of a store (vectors/README.md). Lossy chunks are
welcome.
Exit 0: done; 1: "format: ..." or "data: ..."; 3: "unsupported: ..."; 4:
"predictor: ..."; 6: "key: ..."; 7: "store: ...". Nothing
is printed or written before the whole file was read and checked. Python 3.9
or newer; Zstandard content goes through the `zstd` command. It reads whole
files into memory and is slow: it is here to be read and compared with.
"""

import argparse
import json
import os
import struct
import sys

sys.dont_write_bytecode = True

import kvarc_cells as cells  # noqa: E402
import kvarc_codecs as codecs  # noqa: E402
import kvarc_had  # noqa: E402,F401 (adds itself to kvarc_lossy.CODECS)
import kvarc_klt  # noqa: E402,F401
import kvarc_layers as layers  # noqa: E402
import kvarc_lossy as lossy  # noqa: E402
import kvarc_near  # noqa: E402,F401
import kvarc_state as state  # noqa: E402
import kvarc_tsc  # noqa: E402,F401
import kvarc_vq  # noqa: E402,F401
from kvarc_chain import Chains  # noqa: E402
from kvarc_codecs import Bad, Cursor, demand, packed_content  # noqa: E402
from kvarc_crypt import Keys, read_secret  # noqa: E402
from kvarc_fork import on_fork  # noqa: E402
from kvarc_items import Item  # noqa: E402
from kvarc_model import Model  # noqa: E402
from kvarc_parity import repair  # noqa: E402
from kvarc_predict import Predictors  # noqa: E402
from kvarc_profile import read_profile  # noqa: E402
from kvarc_store import StoreReader, folder_store  # noqa: E402
from xxh3 import frame_check, h64, h128_hex, xxh3_64  # noqa: E402

MAGIC = bytes([0x89]) + b"KVA\r\n\x1a\n"
LIMIT = 1 << 28

# 3.3: number, name, critical, packed (1.5).
TYPES = {1: ("GEOMETRY", 1, 1), 2: ("IDENTITY", 0, 1), 3: ("RESTORE", 0, 1),
         4: ("BLOB", 0, 1), 5: ("PARAMS", 1, 1), 6: ("SEGMENT", 1, 1),
         7: ("CHUNK", 1, 0), 8: ("COMMIT", 1, 0), 9: ("INDEX", 0, 1),
         10: ("FOOTER", 0, 0), 11: ("PREDICTOR", 1, 1), 12: ("PROFILE", 0, 1),
         15: ("STOREREF", 1, 1), 18: ("LIST", 0, 1), 19: ("FORK", 1, 0)}
# PARITY, ENCRYPTED, KEY (frames.md) and PAD, and whether they are critical.
AROUND = {13: 0, 14: 1, 16: 0, 17: 0}
(GEOMETRY, IDENTITY, RESTORE, BLOB, PARAMS, SEGMENT, CHUNK, COMMIT, INDEX,
 FOOTER, PREDICTOR, PROFILE) = range(1, 13)
STOREREF, KEY, LIST, FORK = 15, 16, 18, 19


# Codecs (7) whose chunks name a PREDICTOR frame.
PREDICTED = (7, 8, 9, 14)


def known(codec):
    return codec <= 9 or codec in (15, 16) or codec in lossy.CODECS


def has_params(codec):
    return codec in (5, 6) or (codec in lossy.CODECS
                                  and lossy.CODECS[codec].params is not None)


def params_codec(codec):
    """8: the codec of the PARAMS of a chunk."""
    return 5 if codec == 16 else codec


def counts(frame):
    """3.4: whether a frame counts for the order of frames."""
    return frame.type in TYPES and frame.type not in (INDEX, LIST)


class Record:
    """Named values, nothing more."""

    def __init__(self, **values):
        self.__dict__.update(values)


# --------------------------------------------------- 2. Superblock, 3. Frames

def read_superblock(data):
    demand(data[:8] == MAGIC, "this is not a kvarc file", "format")
    demand(len(data) >= 64, "the file ends inside the superblock")
    (major, minor, _compat, _ro, incompat, file_id, reserved,
     check) = struct.unpack("<8xHHIII16s16sQ", data[:64])
    # 2. "Order of tests: magic (else "format"), check (else "data"),
    # version_major and feature_incompat ("unsupported"), reserved ("data")."
    demand(xxh3_64(data[:56]) != check,
           "the archive was made by a pre-release", "unsupported")
    demand(h64(data[:56]) == check, "the superblock is damaged")
    demand(major == 1, "format version %d" % major, "unsupported")
    # frames.md: encrypted frames, references into a store
    demand(incompat < 4, "feature_incompat 0x%x" % incompat, "unsupported")
    demand(not any(reserved), "reserved bytes of the superblock")
    return Record(major=major, minor=minor, incompat=incompat,
                  file_id=file_id)


def read_frames(data, file_id):
    """3.1 and 3.2: every frame of the file, all checks verified."""
    # "sync: H64 of the 16 bytes `kvarc frame sync` followed by file_id"
    sync = h64(b"kvarc frame sync" + file_id)
    at, sequence = 64, 0
    while at < len(data):
        demand(at + 48 <= len(data), "the file ends inside a frame")
        header = data[at:at + 32]
        place = struct.pack("<Q", at)
        (found, kind, flags, payload_bytes, number, decoded_bytes,
         header_check) = struct.unpack("<QHHIQII", header)
        demand(found == sync, "no frame at offset %d" % at)
        demand(h64(header[:28] + place) & 0xFFFFFFFF == header_check,
               "damaged frame header at offset %d" % at)
        demand(number == sequence, "a frame has another sequence number")
        demand(flags < 2, "reserved flags of a frame")
        demand(payload_bytes <= LIMIT and decoded_bytes <= LIMIT,
               "a frame is too large")
        padded = (payload_bytes + 15) // 16 * 16
        end = at + 32 + padded + 16
        demand(end <= len(data), "the file ends inside a frame")
        body = data[at + 32:end - 16]
        check = data[end - 16:end]
        demand(frame_check(header, place, body) == check,
               "damaged frame at offset %d" % at)
        demand(not any(body[payload_bytes:]), "padding of a frame")
        yield Record(offset=at, end=end, type=kind, flags=flags, sequence=number,
                     check=check, header=header,
                     payload=body[:payload_bytes], decoded=decoded_bytes)
        at, sequence = end, sequence + 1


def check_type(f):
    """3.3, of a frame as it is in the file and of one that was encrypted."""
    demand(f.type != 0, "frame type 0")
    if f.type in TYPES:
        demand(f.flags == TYPES[f.type][1], "the critical flag of a frame")
    else:
        demand(f.flags == AROUND.get(f.type, f.flags),
               "the critical flag of a frame")
        demand(not f.flags or f.type in AROUND,
               "critical frame of type %d" % f.type, "unsupported")


# --------------------------------------------------------------- 4. GEOMETRY

def read_ropes(cursor):
    ropes = []
    for _ in range(cursor.varint(64)):
        pairing = cursor.u8()
        demand(pairing <= 1, "rope pairing %d" % pairing, "unsupported")
        rotary = cursor.varint(65534)
        demand(rotary >= 2 and rotary % 2 == 0, "rotary of a rope")
        ropes.append(Record(pairing=pairing, rotary=rotary,
                            freq=cursor.numbers("Q", rotary // 2)))
    return ropes


def read_tracks(cursor):
    tracks = []
    n = cursor.varint(4096)
    demand(n >= 1, "there is no track")
    for _ in range(n):
        kind = cursor.u8()
        tracks.append(Record(kind=kind, window=cursor.varint(2 ** 32 - 1),
                             label=cursor.string(), segments=[]))
    return tracks


def read_tensor(cursor, tracks, ropes):
    t = Record(layer=cursor.varint(65535), kind=cursor.u8(),
               role=cursor.u8(), dtype=cursor.u8())
    demand(t.dtype < len(codecs.ELEMENT_BYTES), "dtype %d" % t.dtype,
           "unsupported")
    n_axes = cursor.u8()
    demand(1 <= n_axes <= 8, "number of axes")
    axes = [(cursor.u8(), cursor.varint()) for _ in range(n_axes)]
    # 4.2 "exactly three axes, token (extent 0: open), head, channel, in this
    # order; anything else is "unsupported"."
    demand([label for label, _ in axes] == [0, 1, 2] and axes[0][1] == 0,
           "these axes", "unsupported")
    t.heads, t.channels = axes[1][1], axes[2][1]
    demand(1 <= t.heads <= 65535 and 1 <= t.channels <= 65535
           and t.heads * t.channels <= 1 << 20, "width of a tensor")
    t.track = cursor.varint(len(tracks) - 1)
    rope = cursor.varint(len(ropes))
    t.rope = ropes[rope - 1] if rope else None
    demand(not rope or t.rope.rotary <= t.channels, "rotary of a tensor")
    t.first_head = cursor.varint(2 ** 32 - 1)
    t.total_heads = cursor.varint(2 ** 32 - 1)
    demand(t.first_head + t.heads <= t.total_heads, "the heads of a shard")
    t.flags = cursor.u8()
    demand(t.flags < 4, "reserved flags of a tensor")
    t.source_type = cursor.u16()
    demand(t.source_type == 0 or t.source_type >= 256, "a source type")
    t.of = cursor.varint()      # what it belongs to
    t.group = cursor.varint() if t.of else None
    t.name = cursor.string()
    return t


def read_geometry(content):
    cursor = Cursor(content)
    ropes = read_ropes(cursor)
    tracks = read_tracks(cursor)
    tensors = [read_tensor(cursor, tracks, ropes)
               for _ in range(cursor.varint(65536))]
    for t in tensors:
        if t.of:
            demand(t.of <= len(tensors), "what a tensor belongs to")
            of = tensors[t.of - 1]
            demand(of is not t and not of.of and of.track == t.track,
                   "what a tensor belongs to")
            demand(1 <= t.group <= 1 << 20, "the group of a tensor")
            width = of.heads * of.channels
            demand(t.heads * t.channels == -(-width // t.group),
                   "the groups of a tensor")
    cursor.extensions()
    return Record(ropes=ropes, tracks=tracks, tensors=tensors,
                  content=content)


# ---------------------------------------------------------------- 6. SEGMENT

def tokens(track):
    """6.2: how many it has in the state in hand."""
    return track.segments[-1].t0 + track.segments[-1].left \
        if track.segments else 0


def take(track, s):
    """6.2: into the state; -> the segment that holds the token before."""
    while track.segments and track.segments[-1].t0 >= s.t0:
        track.segments.pop().left = 0
    last = track.segments[-1] if track.segments else None
    if last:
        last.left = s.t0 - last.t0
    track.segments.append(s)
    s.left = s.n
    return last


def read_segment(content, tracks):
    cursor = Cursor(content)
    s = Record(track=cursor.varint(len(tracks) - 1), t0=cursor.varint())
    demand(s.t0 <= tokens(tracks[s.track]), "t0 of a segment")
    s.n = cursor.varint(256)
    demand(s.n >= 1, "a segment without tokens")
    flags = cursor.u8()
    demand(flags in (0, 1, 3, 5, 7), "flags of a segment")
    s.positions = []
    for i in range(cursor.varint()):
        first, count = cursor.zigzag(), cursor.varint()
        demand(1 <= count <= s.n - len(s.positions), "positions")
        demand(-2 ** 31 <= first and first + count <= 2 ** 31, "positions")
        # "a run MUST NOT start one after the end of the previous run"
        demand(not i or first != s.positions[-1] + 1, "positions")
        s.positions += range(first, first + count)
    demand(len(s.positions) == s.n, "positions")
    s.chain = cursor.take(16) if flags & 4 else None
    s.ids = cursor.numbers("i", s.n) if flags & 3 == 1 else None
    s.coded = flags & 3 == 3
    if s.coded:                 # codecs/tokens.md 1
        s.check = cursor.u64()
        s.code = cursor.take(cursor.varint(6 * s.n + 8))
    cursor.extensions()
    return s


# ----------------------------------------------------------------- the file

class Archive:
    def __init__(self, data, profiles=(), models=(), secrets=(), store=None,
                 checkpoint=0):
        """checkpoint: 9.5, its number; 0: the end of the file."""
        self.predictors = Predictors(self, profiles, models)
        self.on_predictor = self.predictors.on_predictor
        self.on_profile = self.predictors.on_profile
        self.super = read_superblock(data)
        self.keys = Keys(self.super, secrets)
        self.stored = StoreReader(self, self.super, store)
        self.geometry, self.identity = None, {}
        self.params, self.chunks = {}, []
        self.items, self.all_items = [], []     # of the set in hand
        self.set_closed = False     # 10: a checkpoint came
        self.segments = {}
        self.open_segment = None    # sequence, until its COMMIT
        self.frames, self.unlisted = [], []     # chunks that a LIST would have
        self.in_lists = set()       # sequence numbers
        self.last_index = self.last_commit = None
        self.checkpoints = []       # number, time, label
        self.number = 0             # of the last one
        self.chains = Chains(self)
        for frame in read_frames(data, self.super.file_id):
            check_type(frame)
            frame = self.keys.frame(frame)
            check_type(frame)
            self.frame(frame)
            self.frames.append(frame)
            if frame.type == CHUNK:
                self.unlisted.append(frame)
            if checkpoint and self.number == checkpoint:
                break
        demand(self.number == checkpoint or not checkpoint,
               "there is no checkpoint %d" % checkpoint, "unsupported")
        demand(any(counts(g) for g in self.frames), "there is no frame")
        # 3.4 "A file whose last frame is neither COMMIT nor FOOTER was cut"
        self.last = [g for g in self.frames if counts(g)][-1]
        demand(self.last.type in (COMMIT, FOOTER),
               "the file was cut: its end has no commit")
        self.finish_items()

    def frame(self, f):
        # 3.4 "The first frame is GEOMETRY, and there is only one."; KEY
        # frames may come before it.
        if self.geometry or f.type != KEY:
            demand((self.geometry is None) == (f.type == GEOMETRY),
                   "the position of the GEOMETRY frame")
        # 5.2 "in PROFILE frames, directly behind the PREDICTOR frame"
        demand(not counts(f) or self.predictors.unknown and f.type == PROFILE
               or (f.type == PROFILE) == bool(self.predictors.filling),
               "the position of a PROFILE frame")
        if f.type not in TYPES:
            return              # not critical: skipped
        name, _, packed = TYPES[f.type]
        if packed:
            f.content = packed_content(f.payload, f.decoded)
        elif f.type != CHUNK:
            demand(f.decoded == len(f.payload), "decoded_bytes of a frame")
            f.content = f.payload
        getattr(self, "on_" + name.lower())(f)

    def on_geometry(self, f):
        self.geometry = read_geometry(f.content)

    def on_identity(self, f):
        # 5.1 "in ascending byte order of unique keys"
        cursor = Cursor(f.content)
        last = None
        for _ in range(cursor.varint(4096)):
            key, value = cursor.string(), cursor.string()
            demand(last is None or key > last, "the order of identity keys")
            self.identity[key] = value
            last = key
        cursor.end()
        demand(len(self.identity) <= 4096, "too many identity keys")
        self.chains.on_identity()

    def begin_set(self):
        """10. A SEGMENT or a RESTORE"""
        if self.set_closed:
            self.items, self.set_closed = [], False

    def finish_items(self):
        for item in self.items:
            item.finish(self)

    def on_restore(self, f):
        demand(self.open_segment is None, "a RESTORE in a segment")
        self.begin_set()
        item = Item(f.content, self.geometry)
        item.refer(self.all_items)
        self.items.append(item)
        self.all_items.append(item)

    def on_blob(self, f):
        cursor = Cursor(f.content)
        item = cursor.varint()
        demand(item < len(self.all_items), "a BLOB of an unknown item")
        # "The BLOBs of an item are contiguous from offset 0"
        demand(cursor.varint() == len(self.all_items[item].blob),
               "the offset of a BLOB")
        demand(cursor.left(), "an empty BLOB")
        self.all_items[item].blob += cursor.rest()

    def tokens(self, track):
        return tokens(self.geometry.tracks[track])

    def heads_of(self, tensor, first, heads):
        demand(tensor < len(self.geometry.tensors), "a tensor number")
        t = self.geometry.tensors[tensor]
        demand(heads >= 1 and first + heads <= t.heads, "a head group")
        return t

    def on_params(self, f):
        cursor = Cursor(f.content)
        tensor, first, heads = cursor.u32(), cursor.u16(), cursor.u16()
        t = self.heads_of(tensor, first, heads)
        codec = cursor.u8()
        demand(known(codec), "codec %d" % codec, "unsupported")
        demand(has_params(codec), "PARAMS of codec %d" % codec)
        if codec in lossy.CODECS:
            demand(t.dtype in codecs.FLOAT, "the codec does not suit the dtype")
            p = lossy.CODECS[codec].params(cursor, t, heads, t.rope)
            cursor.end()
        else:
            p = codecs.Params(cursor, codec, t, heads, t.rope)
        p.names = (tensor, first, heads, codec)
        self.params[f.sequence] = p

    def on_segment(self, f):
        demand(self.open_segment is None, "a SEGMENT before a COMMIT")
        self.begin_segment(f.sequence, read_segment(f.content,
                                                    self.geometry.tracks))

    def on_storeref(self, f):
        self.stored.on_storeref(f, Record)

    def on_fork(self, f):
        on_fork(self, f, Record)

    def begin_segment(self, number, s):
        self.begin_set()
        track = self.geometry.tracks[s.track]
        self.predictors.token_ids(s)
        # 6.3: a fork takes it from the track that its frame names
        s.__dict__.setdefault("named", s.track)
        self.chains.check(s, take(track, s))
        # 3.4: what has to come, in this order
        s.due = sorted((t.layer, t.kind, i)
                       for i, t in enumerate(self.geometry.tensors)
                       if t.track == s.track)
        s.head_done = 0
        self.segments[number] = s
        self.open_segment = number
        self.predictors.begin(s)

    def on_chunk(self, f):
        demand(len(f.payload) >= 48, "a CHUNK is too short")
        (tensor, first, heads, segment, params, codec, b, n, t0, raw_check,
         section_bytes, extension_bytes) = struct.unpack(
             "<IHHQQBBHIQII", f.payload[:48])
        end = len(f.payload) - extension_bytes
        demand(end >= 48, "the extension fields of a CHUNK")
        Cursor(f.payload[end:]).extensions()
        payload = f.payload[48:end]
        cut = codecs.Cut(b, section_bytes)
        t = self.heads_of(tensor, first, heads)
        demand(segment == self.open_segment, "a CHUNK of another segment")
        s = self.segments[segment]
        demand((n, t0) == (s.n, s.t0), "the tokens of a CHUNK")
        demand(s.due and s.due[0][2] == tensor and first == s.head_done,
               "the order of the chunks")
        s.head_done += heads
        if s.head_done == t.heads:
            s.due.pop(0)
            s.head_done = 0
        size = n * heads * t.channels * codecs.ELEMENT_BYTES[t.dtype]
        demand(f.decoded == size, "decoded_bytes of a CHUNK")
        demand(known(codec), "codec %d" % codec, "unsupported")
        p, refers = None, False
        if codec in PREDICTED:
            self.predictors.header(s, codec, heads, t, params)
        elif not has_params(params_codec(codec)):
            demand(params == 0, "PARAMS of a codec that has none")
        else:
            # 8. "A chunk's PARAMS MUST name the same tensor, heads", the codec
            demand(params in self.params, "a CHUNK without its PARAMS")
            p = self.params[params]
            demand(p.names == (tensor, first, heads, params_codec(codec)),
                   "the PARAMS of another chunk")
        if codec == 3:
            raw = self.repeat(payload, cut, n, size, raw_check)
        elif codec in PREDICTED:
            raw = self.predictors.decode(codec, cut, tensor, s, payload)
        elif codec in lossy.CODECS:
            raw = lossy.decode_chunk(codec, cut, payload, t, heads, n, p,
                                     s.positions)
        elif codec == 4:
            raw = layers.decode_chunk(cut, payload, t, heads, n)
        elif codec == 16:
            raw = cells.decode_chunk(cut, payload, t, heads, n, p, t.rope,
                                     s.positions)
        elif codec == 15:
            refers, before = self.reference(payload, t, n, size)
            raw = state.decode_chunk(cut, payload, t, heads, n, before)
        else:
            raw = codecs.decode_chunk(codec, cut, payload, t, heads, n, p,
                                      t.rope, s.positions)
        # 7. "a reader MUST compare raw_check before it releases a byte"
        if codec != 3:
            demand(cut.raw_check(raw, n) == raw_check, "raw_check of a CHUNK")
        f.codec = codec
        self.chunks.append(Record(
            tensor=tensor, first=first, heads=heads, t0=t0, n=n, codec=codec,
            sequence=f.sequence, offset=f.offset, raw=raw, params=params,
            raw_check=raw_check, segment=segment, stream_size=cut.size,
            refers=refers, exact=tensor in self.predictors.exact))
        self.predictors.observe(tensor, s, heads, raw)

    def repeat(self, payload, cut, n, size, raw_check):
        # repeat.md
        demand(cut.section_bytes == 0, "section_bytes of a repeat")
        cursor = Cursor(payload)
        sequence, offset = cursor.u64(), cursor.u64()
        cursor.end()
        for c in self.chunks:
            if c.sequence == sequence:
                demand(c.offset == offset and c.codec != 3
                       and (c.n, c.stream_size) == (n, cut.size)
                       and len(c.raw) == size and c.raw_check == raw_check,
                       "a repeat of another chunk")
                demand(not c.refers, "a repeat of a chunk with a reference")
                demand(c.codec not in (8, 9),
                       "a repeat of a chunk of codec 8 or 9")
                demand(c.codec not in (7, 14) or all(
                    b.codec != 3 for b in self.chunks
                    if b.segment == c.segment and b.sequence < sequence),
                    "a repeat of a chunk that repeats come before")
                return c.raw
        raise Bad("data", "a repeat of nothing")

    def reference(self, payload, t, n, size):
        # state.md 3: whether there is one, and its decoded bytes
        named = state.reference(payload)
        if named is None:
            return False, None
        for c in self.chunks:
            if (c.sequence, c.offset) == named:
                demand((c.n, len(c.raw)) == (n, size)
                       and self.geometry.tensors[c.tensor].dtype == t.dtype,
                       "a reference to a chunk of another shape")
                demand(c.codec in state.MAY_BE_REFERRED_TO and not c.refers,
                       "a reference to a chunk that may not be one")
                return True, c.raw
        raise Bad("data", "a reference to nothing")

    def on_commit(self, f):
        # 9.1
        if self.open_segment is not None:
            demand(not self.segments[self.open_segment].due,
                   "chunks of a segment are missing")
            self.open_segment = None
        cursor = Cursor(f.content)
        demand(cursor.u64() == f.sequence, "the frame count of a COMMIT")
        demand(cursor.u64() == f.offset, "the offset of a COMMIT")
        counts = [cursor.varint() for _ in range(cursor.varint(4096))]
        demand(counts == [tokens(t) for t in self.geometry.tracks],
               "the tokens of a COMMIT")
        f.number = 0
        if cursor.u8_flags(1, "flags of a COMMIT"):
            f.number = cursor.varint()
            demand(f.number > self.checkpoints[-1][0] if self.checkpoints
                   else f.number >= 1, "the number of a checkpoint")
            self.checkpoints.append((f.number, cursor.varint(),
                                     cursor.string()))
            self.number, self.set_closed = f.number, True
            self.finish_items()
        cursor.extensions()
        self.last_commit = f

    def on_index(self, f):
        # 9.2
        cursor = Cursor(f.content)
        offset, size, codecs = cursor.u64(), cursor.u32(), cursor.u64()
        behind = -1
        if offset or size:
            named = [g for g in self.frames if g.type == INDEX
                     and (g.offset, g.end - g.offset) == (offset, size)]
            demand(named, "the INDEX that an INDEX follows")
            behind = named[0].sequence
        demand(codecs == sum(1 << c for c in {
            min(g.codec, 63) for g in self.frames if g.type == CHUNK}),
               "the codecs of an INDEX")
        self.entries(cursor, [
            g for g in self.frames if g.sequence > behind
            and g.type not in (INDEX, FOOTER)
            and g.sequence not in self.in_lists])
        self.unlisted, self.last_index = [], f

    def on_list(self, f):
        # 3.4 "LIST frames wherever a SEGMENT may stand"
        demand(self.open_segment is None, "a LIST in a segment")
        cursor = Cursor(f.content)
        demand(self.unlisted, "an empty LIST")
        first = self.chunk_of(self.unlisted[0])
        order = [c for c in self.chunks if c.segment == first.segment]
        demand(order[0] is first, "a LIST of a part of a segment")
        f.n = len(self.unlisted)
        self.entries(cursor, self.unlisted)
        self.in_lists.update(g.sequence for g in self.unlisted)
        self.unlisted = []

    def entries(self, cursor, frames):
        """9.2: of an INDEX or LIST, up to its end."""
        demand(cursor.varint() == len(frames), "the number of entries")
        end = sequence = 0
        for f in frames:
            demand(cursor.u8() == (f.type if f.type < 256 else 0),
                   "a type in an INDEX")
            offset = end + cursor.varint() * 16
            sequence += cursor.varint()
            end = offset + cursor.varint() * 16
            demand((offset, sequence, end) == (f.offset, f.sequence, f.end),
                   "an offset in an INDEX")
            self.index_entry(cursor, f)
        cursor.extensions()

    def chunk_of(self, f):
        return next(c for c in self.chunks if c.sequence == f.sequence)

    def index_entry(self, cursor, f):
        if f.type == CHUNK:
            c = self.chunk_of(f)
            want = [c.tensor, c.first, c.heads, f.sequence - c.segment,
                    c.params]
        elif f.type == SEGMENT:
            s = self.segments[f.sequence]
            want = [s.track, s.t0, s.n]
        elif f.type == COMMIT:
            want = [f.number]
        elif f.type == LIST:
            want = [f.n]
        elif f.type == STOREREF:
            want = self.stored.tokens[f.sequence]
        elif f.type == FORK:
            want = f.fork
        elif f.type == PARAMS:
            *want, codec = self.params[f.sequence].names
        else:
            return
        demand([cursor.varint() for _ in want] == want, "an INDEX entry")
        if f.type == PARAMS:
            demand(cursor.u8() == codec, "an INDEX entry")
            # Which frame it copies: "Copies are used by salvage alone." (8)
            demand(cursor.varint() < f.sequence, "an INDEX entry")
        if f.type == SEGMENT:
            chain = cursor.u8_flags(1, "flags of an INDEX entry")
            demand((cursor.take(16) if chain else None) == s.chain,
                   "the chain value of an INDEX entry")

    def on_footer(self, f):
        # 9.3
        cursor = Cursor(f.content)
        # "The last frame before it that counts is a COMMIT or a FOOTER, and
        # INDEX frames list all frames."
        last = [g for g in self.frames if counts(g)][-1]
        index, commit = self.last_index, self.last_commit
        demand(index and all(g.type in (INDEX, FOOTER) for g in
                             self.frames[index.sequence:])
               and last.type in (COMMIT, FOOTER), "a FOOTER too early")
        demand((cursor.u64(), cursor.u64(), cursor.u64(), cursor.u32(),
                cursor.u32())
               == (index.offset, commit.offset, f.sequence,
                   index.end - index.offset, commit.end - commit.offset),
               "the FOOTER")
        cursor.end()


# ------------------------------------------------------------- command line

def digest(archive):
    # of a segment that was cut: what is left
    lines = ["%d %d %d %d %d %s\n" % (
        c.tensor, c.first, c.heads, c.t0, s.left,
        h128_hex(c.raw[:len(c.raw) // s.n * s.left]))
        for c in archive.chunks
        for s in [archive.segments[c.segment]] if s.left]
    lines += ["item %d %s\n" % (len(item.content), h128_hex(item.content))
              for item in archive.items]
    return "".join(lines)


def dtype_name(dtype):
    return codecs.DTYPE_NAMES[dtype] if dtype < len(codecs.DTYPE_NAMES) \
        else "unknown-%d" % dtype


def info(archive):
    g = archive.geometry

    def text(value):
        return value.decode("utf-8", "replace")

    def chain_text(track):
        chain = track.segments and track.segments[-1].chain
        return chain.hex() if chain else None

    return json.dumps({
        "format_version": "%d.%d" % (archive.super.major,
                                     archive.super.minor),
        "file_id": archive.super.file_id.hex(),
        "state": "closed" if archive.last.type == FOOTER else "open",
        "frames": len(archive.frames), "chunks": len(archive.chunks),
        "raw_bytes": sum(len(c.raw) for c in archive.chunks),
        "identity": {text(k): text(v)
                     for k, v in sorted(archive.identity.items())},
        "tracks": [{"kind": t.kind, "window": t.window,
                    "label": text(t.label), "tokens": tokens(t),
                    "chain": chain_text(t)} for t in g.tracks],
        "tensors": [{"name": text(t.name), "layer": t.layer, "kind": t.kind,
                     "role": t.role, "dtype": dtype_name(t.dtype),
                     "heads": t.heads, "channels": t.channels,
                     "track": t.track} for t in g.tensors],
        "checkpoints": [{"number": n, "time": t, "label": text(label)}
                        for n, t, label in archive.checkpoints],
        "items": [{"kind": i.kind, "name": text(i.name), "bytes": i.bytes}
                  for i in archive.items]}, indent=1) + "\n"


def unpack(archive, folder):
    os.makedirs(folder, exist_ok=True)
    for i, item in enumerate(archive.items):
        # Names are shown to users; they are not trusted as paths (1.3).
        with open(os.path.join(folder, "item-%d" % i), "wb") as f:
            f.write(item.content)


STATUS = {"unsupported": 3, "predictor": 4, "key": 6, "store": 7}


def answer(data, verb, profiles=(), models=(), secrets=(), store=None,
           checkpoint=0):
    """What the command prints and its exit status; the archive, if good.
    profiles, models: contents of .kvp and .gguf files; secrets: of key files;
    store: a folder."""
    secrets = [read_secret(line) for line in secrets]

    def read(path):
        try:
            return Archive(content(path), (), (), secrets)
        except (FileNotFoundError, Bad):
            return None

    try:
        archive = Archive(data, [read_profile(p) for p in profiles],
                          [Model(m) for m in models], secrets,
                          store and folder_store(read, store), checkpoint)
    except Bad as error:
        text = "%s: %s\n" % (error.kind, error)
        return text, STATUS.get(error.kind, 1), None
    text = {"info": info, "digest": digest}.get(verb, lambda a: "")(archive)
    return text, 0, archive


def content(path):
    with open(path, "rb") as f:
        return f.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("verb", choices=["info", "unpack", "digest",
                                         "repair"])
    parser.add_argument("file")
    parser.add_argument("-o", dest="folder")
    parser.add_argument("--profile", action="append", default=[])
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--key", action="append", default=[])
    parser.add_argument("--store")
    parser.add_argument("--checkpoint", type=int, default=0)
    args = parser.parse_args()
    if (args.verb in ("unpack", "repair")) != (args.folder is not None):
        parser.error("unpack and repair, and nothing else, need -o")
    if args.verb == "repair":
        with open(args.folder, "wb") as f:
            f.write(repair(content(args.file)))
        return 0
    text, status, archive = answer(
        content(args.file), args.verb, map(content, args.profile),
        map(content, args.model),
        [content(k).decode() for k in args.key], args.store, args.checkpoint)
    sys.stdout.write(text)
    if archive and args.verb == "unpack":
        unpack(archive, args.folder)
    return status


if __name__ == "__main__":
    sys.exit(main())
