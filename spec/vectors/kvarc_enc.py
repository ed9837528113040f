# SPDX-License-Identifier: BSD-3-Clause
"""A small encoder of kvarc archives, for test vectors and random test files.

Written from the specification, apart from the C library and from the
reference decoder, so that the three can be compared. It takes its decisions
from the caller and lets the caller break any field: see Writer.edits. Of
reference/ it uses the hashes alone.
"""

import struct
import sys

sys.dont_write_bytecode = True

from enc_cells import cells_payload  # noqa: E402
from enc_codecs import Payload, chunk_payload  # noqa: E402
from enc_layers import layers_payload  # noqa: E402
from enc_fields import (  # noqa: E402
    SIZE, b128, pack_elements, packed, string, varint, zigzag, zstd_frame)
from xxh3 import frame_check, h64, h128_hex  # noqa: E402

KEY, VALUE = 0, 1
NAMES = {1: "GEOMETRY", 2: "IDENTITY", 3: "RESTORE", 4: "BLOB", 5: "PARAMS",
         6: "SEGMENT", 7: "CHUNK", 8: "COMMIT", 9: "INDEX", 10: "FOOTER",
         11: "PREDICTOR", 12: "PROFILE", 13: "PARITY", 14: "ENCRYPTED",
         15: "STOREREF", 16: "KEY", 17: "PAD", 18: "LIST", 19: "FORK"}
TYPE = {name: number for number, name in NAMES.items()}
CRITICAL = {1, 5, 6, 7, 8, 11, 14, 15, 19}
# Frames without a packing method; those that are never encrypted.
NOT_PACKED = {7, 8, 10, 13, 14, 16, 17, 19, 0x8000}
PLAIN = {"FOOTER", "PARITY", "ENCRYPTED", "KEY", "PAD", "private"}


def tensor(layer, kind, dtype, heads, channels, track=0, rope=0, role=0,
           flags=0, source_type=0, name="", first_head=0, total_heads=None):
    return dict(layer=layer, kind=kind, dtype=dtype, heads=heads,
                channels=channels, track=track, rope=rope, role=role,
                flags=flags, source_type=source_type, name=name,
                first_head=first_head, total_heads=total_heads or heads)


def geometry_content(ropes, tracks, tensors, extensions=()):
    out = varint(len(ropes))
    for pairing, rotary, freq in ropes:
        out += bytes([pairing]) + varint(rotary) + struct.pack(
            "<%dQ" % len(freq), *freq)
    out += varint(len(tracks))
    for kind, window, label in tracks:
        out += bytes([kind]) + varint(window) + string(label)
    out += varint(len(tensors))
    for t in tensors:
        out += varint(t["layer"]) + bytes([t["kind"], t["role"], t["dtype"]])
        out += bytes([3, 0, 0, 1]) + varint(t["heads"])
        out += bytes([2]) + varint(t["channels"])
        out += varint(t["track"]) + varint(t["rope"])
        out += varint(t["first_head"]) + varint(t["total_heads"])
        out += bytes([t["flags"]])
        out += struct.pack("<H", t["source_type"])
        out += varint(t.get("of", 0))
        out += varint(t["group"]) if t.get("of") else b""
        out += string(t["name"])
    return out + fields(extensions)


def fields(extensions):
    """1.9: pairs of number and bytes."""
    return b"".join(varint(number) + varint(len(data)) + data
                    for number, data in extensions)


def runs_of(positions):
    """6.1"""
    runs = []
    for p in positions:
        if runs and p == runs[-1][0] + runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([p, 1])
    return varint(len(runs)) + b"".join(
        zigzag(p) + varint(c) for p, c in runs)


def linked(before, track, positions, ids):
    """5.3"""
    return b128(b"kvarc chain link" + before + struct.pack("<Q", track)
                + runs_of(positions) + struct.pack("<%di" % len(ids), *ids))


class Writer:
    """Writes frames; knows what a valid file needs and obeys its edits.

    edits: {(frame name, how many-th of its kind): function or dict}. A
    function gets the content before packing (the payload of CHUNK, COMMIT and
    FOOTER) and returns another one. A dict changes fields of the frame:
    type, flags, sequence, payload_bytes, decoded_bytes, method, padding,
    payload (a function), header_check and check (xor). All checks are made
    after the edits: only what was edited is wrong. With a cipher (enc_frames)
    frames are encrypted; of these, "plain" says whether not, "sealed" is a
    function of the payload that was encrypted, "seal" one of the arguments
    of the cipher.
    """

    def __init__(self, file_id=b"kvarc test file!", edits=None, cipher=None,
                 **superblock):
        self.edits = edits or {}
        self.id = file_id
        fields = dict(magic=bytes.fromhex("894b56410d0a1a0a"), major=1,
                      minor=0, compat=0, ro_compat=0, incompat=0,
                      reserved=bytes(16), check=0)
        fields.update(superblock)
        head = fields["magic"] + struct.pack(
            "<HHIII", fields["major"], fields["minor"], fields["compat"],
            fields["ro_compat"], fields["incompat"]) + file_id \
            + fields["reserved"]
        self.out = bytearray(head + struct.pack(
            "<Q", h64(head) ^ fields["check"]))
        self.sequence, self.counts = 0, {}
        self.frames = []            # (name, offset, end)
        self.pending, self.indexes, self.commits = [], [], []
        self.tokens, self.digests, self.entries = [], [], {}
        self.states = {}            # what is expected as of checkpoints
        self.geometry_parts = ([], [], [])
        self.state, self.identity_pairs = [], {}
        self.codecs = 0             # of chunks, a bit each
        self.entered = 0            # segments so far
        self.set_closed = False     # a checkpoint came
        self.chains = False         # what segments have by default
        self.cipher = cipher
        if cipher:
            cipher.begin(self)

    # ------------------------------------------------------------- frames

    def frame(self, name, content, decoded=None, method=0, entry=b""):
        """Appends a frame; returns its sequence number."""
        count = self.counts.get(name, 0)
        self.counts[name] = count + 1
        edit = self.edits.get((name, count), {})
        if callable(edit):
            content, edit = edit(content), {}
        kind = TYPE.get(name, 0x8000)
        method = edit.get("method", method)
        if kind in NOT_PACKED:
            payload = content
        elif method == 1:
            payload = packed(content, 1)
        else:
            payload = bytes([method]) + content
        payload = edit.get("payload", lambda data: data)(payload)
        if decoded is None:
            decoded = len(content)
        at = len(self.out)
        place = struct.pack("<Q", edit.get("place", at))
        kind = edit.get("type", kind)
        flags = edit.get("flags", int(TYPE.get(name, 0) in CRITICAL))
        sealed = bool(self.cipher) and not edit.get("plain", name in PLAIN)
        header = struct.pack(
            "<QHHIQI", h64(b"kvarc frame sync" + self.id)
            ^ edit.get("sync", 0), 14 if sealed else kind,
            1 if sealed else flags,
            edit.get("payload_bytes", len(payload) + 48 * sealed),
            edit.get("sequence", self.sequence),
            edit.get("decoded_bytes", decoded))
        if sealed:
            how = edit.get("seal", dict)(dict(
                header=header, place=place, number=self.sequence))
            payload = edit.get("sealed", lambda data: data)(
                self.cipher.seal(payload, kind, flags, **how))
        header += struct.pack("<I", (h64(header + place)
                                     ^ edit.get("header_check", 0))
                              & 0xFFFFFFFF)
        body = payload + edit.get("padding", b"\0") * (-len(payload) % 16)
        check = frame_check(header, place, body)
        if "check" in edit:
            check = bytes([check[0] ^ edit["check"]]) + check[1:]
        self.out += header + body + check
        self.frames.append((name, at, len(self.out)))
        if kind not in (9, 10):
            self.pending.append((kind, at, self.sequence, len(self.out),
                                 entry))
        self.sequence += 1
        return self.sequence - 1

    def geometry(self, ropes, tracks, tensors, extensions=(), method=0):
        self.geometry_parts = (ropes, tracks, tensors)
        self.tokens = [0] * len(tracks)
        self.state = [[] for _ in tracks]
        self.geometry_bytes = geometry_content(ropes, tracks, tensors,
                                               extensions)
        return self.frame("GEOMETRY", self.geometry_bytes, method=method)

    def identity(self, pairs, method=0):
        content = varint(len(pairs)) + b"".join(
            string(k) + string(v) for k, v in pairs)
        self.identity_pairs.update(pairs)
        return self.frame("IDENTITY", content, method=method)

    def predictor(self, level, digest, name="", content=None, piece=1 << 20,
                  method=0, where=None, between=None):
        """kind 1; content: embedded, in PROFILE frames of so many bytes;
        between(): what stands before each of them."""
        if where is None:
            where = content is not None
        parameters = bytes([where, level]) + digest + string(name)
        if content is not None:
            parameters += varint(len(content))
        sequence = self.frame("PREDICTOR", b"\1" + varint(len(parameters))
                              + parameters, method=method)
        for at in range(0, len(content or b""), piece):
            if between:
                between()
            self.frame("PROFILE", varint(at) + content[at:at + piece],
                       method=method)
        return sequence

    def restore(self, kind, name, pieces, method=0):
        """pieces: an int (literal bytes), (bytes, track, t0, n, views) or a
        reference (bytes, item, offset)."""
        self.begin_set()
        size = sum(p if isinstance(p, int) else p[0] for p in pieces)
        content = struct.pack("<H", kind) + string(name) + varint(size) \
            + varint(len(pieces))
        for p in pieces:
            if isinstance(p, int):
                content += b"\0" + varint(p)
                continue
            if len(p) == 3:
                content += b"\2" + b"".join(map(varint, p))
                continue
            size, track, t0, n, views = p
            content += b"\1" + b"".join(
                varint(v) for v in (size, track, t0, n, len(views)))
            for view in views:
                content += b"".join(varint(v) for v in view)
        return self.frame("RESTORE", content, method=method)

    def blob(self, item, offset, data, method=0):
        return self.frame("BLOB", varint(item) + varint(offset) + data,
                          method=method)

    def begin_set(self):
        """10: what is expected are the items of the set in hand."""
        if self.set_closed:
            self.entries["items"], self.set_closed = [], False

    def root(self):
        """5.3"""
        keys = ("adapter", "layout", "lossy", "model", "namespace",
                "quantization", "tokenizer", "weights")
        return b128(b"kvarc chain root" + b128(self.geometry_bytes)
                    + varint(len(keys)) + b"".join(
                        string(k) + string(self.identity_pairs.get(k, ""))
                        for k in keys))

    def segment(self, track, n, positions=None, ids=None, method=0,
                coded=None, chain=None, t0=None):
        """coded: in place of the ids (tokens.md 1). chain: True, or a
        value. t0: the tokens of the track so far, or before (6.2)."""
        chain = self.chains if chain is None else chain
        t0 = self.tokens[track] if t0 is None else t0
        if positions is None:
            positions = range(t0, t0 + n)
        positions = list(positions)
        words = [] if ids is None else list(ids)
        chain = self.enter(track, t0, positions, words, chain)
        runs, words = runs_of(positions), struct.pack(
            "<%di" % len(words), *words)
        content = varint(track) + varint(t0) + varint(n) \
            + bytes([(ids is not None) | 2 * bool(coded) | 4 * bool(chain)]) \
            + runs + (chain or b"") + (coded[:8] + varint(len(coded) - 8)
                                       + coded[8:] if coded else words)
        self.tokens[track] = t0 + n
        self.current = (track, t0, n, positions)
        self.current_sequence = self.frame(
            "SEGMENT", content, method=method,
            entry=varint(track) + varint(t0) + varint(n)
            + bytes([bool(chain)]) + (chain or b""))
        return self.current_sequence

    def enter(self, track, t0, positions, ids, chain=True):
        """The next segment, into the state; chain: True, or a value. Returns
        its chain value."""
        self.begin_set()
        self.rewind(track, t0)
        before = self.before(track)
        if chain is True:
            chain = linked(before, track, positions, ids)
        self.entered += 1
        self.state[track].append([t0, len(positions), before, positions, ids,
                                  chain, self.entered, track])
        return chain

    def fork(self, track, source, n, extensions=()):
        """6.3"""
        self.begin_set()
        content = varint(track) + varint(source) + varint(n)
        self.state[track], self.tokens[track] = [], n
        mates = [[i for _, _, i in sorted(
            (t["layer"], t["kind"], i)
            for i, t in enumerate(self.geometry_parts[2])
            if t["track"] == number)] for number in (source, track)]
        mate = {str(y): str(x) for y, x in zip(*mates)}
        for s in self.state[source]:
            if s[0] >= n:
                break
            self.entered += 1
            self.state[track].append(
                [s[0], min(s[1], n - s[0]), *s[2:6], self.entered, s[7]])
            for of, head, m, raw in list(self.digests):
                if of == s[6]:
                    tensor, rest = head.split(" ", 1)
                    self.digests.append((self.entered, "%s %s" % (
                        mate.get(tensor, tensor), rest), m, raw))
        return self.frame("FORK", content + fields(extensions), entry=content)

    def rewind(self, track, t0):
        """6.2: what is left in the state: of each segment t0, n, the value
        before it, positions, ids, its value, a number, the track of its
        frame."""
        left = self.state[track]
        while left and left[-1][0] >= t0:
            left.pop()
        if left:
            left[-1][1] = t0 - left[-1][0]

    def before(self, track):
        """5.3, for the next segment of a track."""
        if not self.state[track]:
            return self.root()
        _, n, before, positions, ids, chain, _, named = self.state[track][-1]
        if not chain:
            return None
        return linked(before, named, positions[:n], ids[:n])

    def params(self, tensor_number, params, first=0, heads=None, copy_of=0,
               method=0):
        if heads is None:
            heads = self.geometry_parts[2][tensor_number]["heads"]
        content = struct.pack("<IHHB", tensor_number, first, heads,
                              params.codec) + params.content()
        return self.frame(
            "PARAMS", content, method=method,
            entry=varint(tensor_number) + varint(first) + varint(heads)
            + bytes([params.codec]) + varint(copy_of))

    def digest(self, tensor_number, first, heads, t0, n, raw):
        self.digests.append((self.entered, "%d %d %d %d" % (
            tensor_number, first, heads, t0), n, raw))

    def chunk_frame(self, tensor_number, first, heads, codec, params, raw,
                    payload):
        """payload: bytes, or a Payload of enc_codecs."""
        _, t0, n, _ = self.current
        about = payload if isinstance(payload, Payload) else Payload()
        check = h64(raw) if about.raw_check is None else about.raw_check
        head = struct.pack("<IHHQQBBHIQII", tensor_number, first, heads,
                           self.current_sequence, params, codec,
                           about.stream_size, n, t0, check,
                           about.section_bytes, 0)
        self.digest(tensor_number, first, heads, t0, n, raw)
        self.codecs |= 1 << min(codec, 63)
        return self.frame(
            "CHUNK", head + payload, decoded=len(raw),
            entry=varint(tensor_number) + varint(first) + varint(heads)
            + varint(self.sequence - self.current_sequence) + varint(params))

    def chunk(self, tensor_number, values, codec=0, params=None,
              params_sequence=0, first=0, heads=None, **options):
        """Encodes values (elements, token-major) as one chunk."""
        t = self.geometry_parts[2][tensor_number]
        if heads is None:
            heads = t["heads"]
        raw = pack_elements(t["dtype"], values)
        if codec == 0:
            payload = raw
        elif codec == 1:
            payload = zstd_frame(raw)
        elif codec == 2:
            assert len(set(values)) == 1
            payload = raw[:SIZE[t["dtype"]]]
        elif codec == 3:
            payload = Payload(struct.pack("<QQ", *options["of"][:2]))
            payload.stream_size, payload.raw_check = options["of"][2:] or (
                3, None)
        elif codec == 4:
            payload = layers_payload(params, t["dtype"], heads * t["channels"],
                                     values, **options)
        else:
            rope = self.geometry_parts[0][t["rope"] - 1] if t["rope"] else None
            make = cells_payload if codec == 16 else chunk_payload
            payload = make(params, t, heads, rope, values, self.current[3],
                           **options)
        return self.chunk_frame(tensor_number, first, heads, codec,
                                params_sequence, raw, payload)

    def commit(self, checkpoint=None):
        """checkpoint: number, time, label."""
        content = struct.pack("<QQ", self.sequence, len(self.out)) \
            + varint(len(self.tokens)) \
            + b"".join(varint(t) for t in self.tokens) + b"\0"
        number = 0
        if checkpoint:
            number, time, label = checkpoint
            content = content[:-1] + b"\1" + varint(number) + varint(time) \
                + string(label)
        if number:
            self.states[number] = self.expected()
            self.set_closed = True
        sequence = self.frame("COMMIT", content, entry=varint(number))
        self.commits.append(self.frames[-1][1:])
        return sequence

    @staticmethod
    def entries_of(frames):
        """9.2: n and the entries."""
        content, before, sequence = varint(len(frames)), 0, 0
        for kind, at, number, end, entry in frames:
            content += bytes([kind if kind < 256 else 0])
            content += varint((at - before) // 16) + varint(number - sequence)
            content += varint((end - at) // 16) + entry
            before, sequence = end, number
        return content

    def index(self, method=0, follows=1):
        """follows: the last INDEX but how many, from 1 on; 0: none."""
        old = self.indexes[-follows:] if follows else []
        before = old[0] if old else (0, 0, [])
        listed = [e for _, _, part in old[1:] for e in part] + self.pending \
            if follows else [e for _, _, part in self.indexes
                             for e in part] + self.pending
        content = struct.pack("<QIQ", before[0], before[1] - before[0],
                              self.codecs) + self.entries_of(listed)
        part, self.pending = self.pending, []
        sequence = self.frame("INDEX", content, method=method)
        self.indexes.append(self.frames[-1][1:] + (part,))
        return sequence

    def list(self, method=0):
        """A LIST of the chunks since the last LIST or INDEX."""
        chunks = [e for e in self.pending if e[0] == TYPE["CHUNK"]]
        self.pending = [e for e in self.pending if e[0] != TYPE["CHUNK"]]
        return self.frame("LIST", self.entries_of(chunks), method=method,
                          entry=varint(len(chunks)))

    def footer(self):
        index = self.indexes[-1][:2] if self.indexes else (0, 0)
        commit = self.commits[-1] if self.commits else (0, 0)
        return self.frame("FOOTER", struct.pack(
            "<QQQII", index[0], commit[0], self.sequence,
            index[1] - index[0], commit[1] - commit[0]))

    def close(self):
        self.commit()
        self.index()
        self.footer()
        return bytes(self.out)

    def item(self, content):
        """What an item is expected to be once restored."""
        self.entries.setdefault("items", []).append(
            "item %d %s" % (len(content), h128_hex(content)))

    def expected(self):
        left = {s[6]: s[1] for track in self.state for s in track}
        lines = ["%s %d %s" % (head, left[segment], h128_hex(
            raw[:len(raw) // n * left[segment]]))
            for segment, head, n, raw in self.digests if segment in left]
        return "".join(line + "\n" for line in
                       lines + self.entries.get("items", []))
