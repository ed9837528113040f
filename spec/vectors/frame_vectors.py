# SPDX-License-Identifier: BSD-3-Clause
"""Valid archives with encrypted frames, parity frames and references into a
store (frames.md): GOOD has (name, text, make), OBJECTS the files of the store,
REPAIRS (name, text, make, what repair gives: a good vector or None)."""

import struct

from enc_codecs import fit_bytes
from enc_fields import BF16, E4M3, F16, U8, Random, pack_elements
from enc_frames import (
    OUTER, PASSPHRASE, Cipher, frame_pieces, key_line, parity, parity_payload,
    storeref)
from kvarc_enc import KEY, VALUE, Writer, linked, tensor
from vector_data import any_bits, normal

GOOD, REPAIRS = [], []
TENSORS = [tensor(0, KEY, BF16, 2, 3, name="k"),
           tensor(0, VALUE, E4M3, 1, 4, name="v")]


def vector(name, text):
    def add(make):
        GOOD.append((name, text, make))
        return make
    return add


def segment(w, rng, n, ids=None, positions=None):
    w.segment(0, n, positions, ids)
    values = [normal(rng, BF16, n, 6, 1.0, 0.5), any_bits(rng, E4M3, 4 * n)]
    for i, v in enumerate(values):
        w.chunk(i, v)
    return values


def commit_only(w):
    w.commit()


def sample(w, rest=None, close=Writer.close):
    """One of each frame; rest(w) comes behind the first segment."""
    rng = Random(400)
    w.geometry([], [(0, 0, "a track")], TENSORS)
    w.identity([("model", "a secret")])
    w.restore(1, "notes", [9])
    w.item(b"plaintext")
    w.blob(0, 0, b"plaintext")
    segment(w, rng, 3, [5, -1, 7])
    w.commit()
    if rest:
        rest(w)
    segment(w, rng, 2, [8, 9], [-4, 11])
    w.commit((1, 1763942400000, "first"))
    close(w)
    return w


@vector("encrypted", "every frame but KEY and FOOTER is encrypted; the .key "
        "has the outer key")
def _():
    return sample(Writer(cipher=Cipher(), incompat=1)), {".key": key_line()}


@vector("encrypted-passphrase", "an outer key by Argon2id from the passphrase "
        "of the .key; the KEY frame again behind a commit")
def _():
    cipher = Cipher([PASSPHRASE])
    w = sample(Writer(cipher=cipher, incompat=1),
               rest=lambda w: cipher.key_frame(w, PASSPHRASE))
    return w, {".key": key_line(PASSPHRASE)}


@vector("encrypted-slots", "four KEY frames: of another key, of a kind that "
        "is not known, of a passphrase, and of the key that is given")
def _():
    cipher = Cipher([b"another key of thirty-two bytes!"])
    w = Writer(cipher=cipher, incompat=1)
    cipher.key_frame(w, OUTER, payload=lambda p: b"\x09kinds to come")
    cipher.key_frame(w, PASSPHRASE, passes=1, memory=8)
    cipher.key_frame(w, OUTER)
    return sample(w), {".key": key_line()}


@vector("encrypted-skipped", "frames to skip, plain and encrypted: private "
        "use, PARITY; a file that is not closed; packed method 1")
def _():
    def rest(w):
        w.frame("private", b"plain")
        w.frame("private", b"hidden " * 9)
        w.frame("PARITY", b"no parity at all")
        w.identity([("engine", "e" * 70)], method=1)
        w.index(method=1)
    return sample(Writer(cipher=Cipher(), incompat=1, minor=3, edits={
        ("private", 1): {"plain": False}}), rest, commit_only), {
            ".key": key_line()}


@vector("encrypted-codecs", "chunks with PARAMS, a repeat, several segments; "
        "positions with gaps")
def _():
    rng = Random(401)
    w = Writer(cipher=Cipher(), incompat=1)
    w.geometry([], [(0, 0, "")], [tensor(0, KEY, U8, 2, 3),
                                  tensor(1, KEY, U8, 2, 3)])
    for n in (4, 7):
        w.segment(0, n)
        values = any_bits(rng, U8, 6 * n)
        fit = fit_bytes(6, values)
        number = w.params(0, fit)
        first = (w.chunk(0, values, 6, fit, number), w.frames[-1][1])
        w.chunk(1, values, 3, of=first)
        w.commit()
    w.index()
    w.footer()
    return w, {".key": key_line()}


# -------------------------------------------------------------------- parity

def with_parity(rows, cipher=None, then=None):
    """The first part of sample with PARITY of all its frames behind it."""
    def rest(w):
        parity(w, frame_pieces(w), rows)
        if then:
            then(w)
    return sample(Writer(compat=1, cipher=cipher, incompat=bool(cipher)),
                  rest=rest)


def two_groups():
    """Frames in turn to two groups of one row; then the first PARITY frame
    is a piece of a third one."""
    def rest(w):
        pieces = frame_pieces(w)[1:]
        for group in (pieces[::2], pieces[1::2]):
            parity(w, group)
        _, a, b = w.frames[-2]
        parity(w, [(a, b - a)])
    return sample(Writer(compat=1), rest=rest)


def cut_pieces():
    """Pieces of 32 bytes wherever frames end."""
    def rest(w):
        end = len(w.out)
        parity(w, [(at, min(32, end - at)) for at in range(0, end, 32)], 2)
    return sample(Writer(), rest=rest)


PARITY = {"parity": lambda: with_parity(1),
          "parity-rows": lambda: with_parity(3),
          "parity-groups": two_groups, "parity-cut": cut_pieces}
vector("parity", "PARITY: row 0 of the superblock and 8 frames")(
    PARITY["parity"])
vector("parity-rows", "three rows of the same")(PARITY["parity-rows"])
vector("parity-groups", "frames in turn to two groups, and a PARITY frame as "
       "the piece of a third one")(PARITY["parity-groups"])
vector("parity-cut", "pieces of 32 bytes that begin and end inside of frames; "
       "no compat bit")(PARITY["parity-cut"])
vector("encrypted-parity", "PARITY of encrypted frames")(
    lambda: (with_parity(1, Cipher()), {".key": key_line()}))


@vector("parity-nonsense", "PARITY frames that no repair uses are no fault")
def _():
    def rest(w):
        for content in (b"", bytes(16), b"\1" + bytes(60), b"\xff" * 90):
            w.frame("PARITY", content)
    return sample(Writer(), rest=rest)


def damaged(data, ranges):
    out = bytearray(data)
    for at, n in ranges:
        out[at:at + n] = bytes(n)
    return bytes(out)


def lose(name, good, text, which, repaired=True, beside=None):
    """which(w): byte ranges that become zero."""
    def make():
        made = dict((n, m) for n, _, m in GOOD)[good]()
        w = made[0] if isinstance(made, tuple) else made
        out = damaged(w.out, which(w))
        return (out, beside) if beside else out
    REPAIRS.append((name, text, make, "good-" + good if repaired else None))


def frames_of(*numbers):
    """Byte ranges of frames by number; -1: the superblock but its magic."""
    return lambda w: [(8, 56) if i < 0 else (
        w.frames[i][1], w.frames[i][2] - w.frames[i][1]) for i in numbers]


lose("parity-chunk", "parity", "a CHUNK frame is zero", frames_of(5))
lose("parity-superblock", "parity", "the superblock is zero", frames_of(-1))
lose("parity-bit", "parity", "a byte of GEOMETRY is zero",
     lambda w: [(w.frames[0][1] + 40, 1)])
lose("parity-two", "parity", "two frames are zero, and there is one row",
     frames_of(1, 5), False)
lose("parity-itself", "parity", "a CHUNK and the PARITY frame are zero",
     frames_of(5, 8), False)
lose("parity-not-covered", "parity", "a frame behind the PARITY frame is zero",
     frames_of(10), False)
lose("parity-rows-three", "parity-rows",
     "the superblock, GEOMETRY and a CHUNK are zero", frames_of(-1, 0, 6))
lose("parity-rows-two", "parity-rows",
     "two CHUNK frames and row 0 are zero: the row is made again",
     frames_of(5, 6, 8))
lose("parity-rows-only", "parity-rows", "rows 0 and 2 are zero",
     frames_of(8, 10))
lose("parity-rows-many", "parity-rows", "four frames are zero",
     frames_of(1, 2, 3, 4), False)
lose("parity-groups-next", "parity-groups",
     "two neighbours, and so a piece of each group", frames_of(4, 5))
lose("parity-groups-nested", "parity-groups",
     "a frame of the first group and the PARITY frame of it, which is a piece",
     frames_of(5, 8))
lose("parity-cut-middle", "parity-cut", "32 bytes across two frames",
     lambda w: [(w.frames[4][2] - 16, 32)])
lose("encrypted-parity", "encrypted-parity",
     "an encrypted CHUNK is zero: repair needs no key", frames_of(6),
     beside={".key": key_line()})


def broken(name, text, change=bytes, choose=lambda p, end: p,
           row=0):
    """A PARITY frame that breaks a rule, and IDENTITY, which it would restore,
    is zero. change(payload); choose(pieces, size of the file)."""
    def make():
        whole = b""
        for _ in range(2):      # the second time with what comes behind
            def rest(w):
                data = whole or bytes(w.out)
                w.frame("PARITY", change(parity_payload(
                    data, choose(frame_pieces(w), len(whole)), row)))
            w = sample(Writer(compat=1), rest=rest)
            whole = bytes(w.out)
        return damaged(whole, frames_of(1)(w))
    REPAIRS.append(("parity-" + name, text, make, None))


def put(at, code, value):
    n = struct.calcsize(code)
    return lambda p: p[:at] + struct.pack("<" + code, value) + p[at + n:]


broken("reserved", "a reserved byte of a PARITY frame", put(15, "B", 1))
broken("row", "row 1 of 1", row=1)
broken("matrix", "248 rows of 9 pieces", put(4, "H", 248))
broken("piece-reserved", "a reserved field of a piece", put(28, "I", 1))
broken("long", "a row that is longer than the longest piece",
       lambda p: p + bytes(16))
broken("short", "a row that ends early", lambda p: p[:-16])
broken("check", "another H128 of the piece that is lost",
       put(16 + 32 * 2 + 16, "B", 0))
broken("overlap", "pieces that overlap",
       choose=lambda p, end: p[:5] + [(p[5][0] - 16, p[5][1] + 16)])
broken("order", "pieces that do not ascend",
       choose=lambda p, end: p[:4] + [p[5], p[4]])
broken("behind", "a piece that stands behind the PARITY frame",
       choose=lambda p, end: p[:3] + [(end - 80, 80)])
broken("unaligned", "a piece of 24 bytes",
       choose=lambda p, end: p[:3] + [(p[3][0], 24)])
broken("empty", "a piece of no bytes",
       choose=lambda p, end: p[:3] + [(p[3][0], 0)])


# --------------------------------------------------------------------- store

STORE = [tensor(0, KEY, U8, 4, 2, name="k"),
         tensor(0, VALUE, BF16, 1, 3, name="v")]
NAMESPACE = "test"


def stored_segments():
    """(positions, ids, elements, chain) of three segments that lie in the
    store: two under their chain values, one without token ids under its
    content digest."""
    rng, out = Random(402), []
    for positions, ids in ((list(range(6)), [3, 1, 4, 1, 5, 9]),
                           ([6, 7, 8, 20, 21], [2, 6, 5, 3, 5]),
                           ([30, 31, 32, 33], None)):
        n = len(positions)
        out.append((positions, ids, [any_bits(rng, U8, 8 * n),
                                     normal(rng, BF16, n, 3)],
                    True if ids else None))
    return out


def stored_archive(cipher=None):
    """An archive of the store: heads of the key in two chunks, codecs 6 and
    0, a track of another number."""
    w = Writer(file_id=b"an object of it!", cipher=cipher,
               incompat=bool(cipher))
    w.geometry([], [(0, 0, ""), (0, 0, "the one")],
               [dict(t, track=1) for t in STORE])
    for positions, ids, (keys, values), _ in stored_segments():
        w.segment(1, len(positions), positions, ids)
        half = [[keys[8 * i + 4 * part + c] for i in range(len(positions))
                 for c in range(4)] for part in range(2)]
        fit = fit_bytes(4, half[1])
        w.chunk(0, half[0], heads=2)
        number = w.params(0, fit, 2, 2)
        w.chunk(0, half[1], 6, fit, number, first=2, heads=2)
        w.chunk(1, values)
        w.commit()
    w.index()
    w.footer()
    return bytes(w.out)


def objects():
    """The store: its archive under each key that a vector asks for, and
    under a chain value that is not that of the segment; what rewound tracks
    have in an archive that was rewound as well."""
    keys = [bytes([255]) * 16]
    for how in ({}, {"tensors": F16_VALUES}, {"tensors": STORE[::-1]},
                {"segments": stored_segments()[2:]}):
        keys += referring(Writer(incompat=2), **how).keys
    rewound = turns_of_store()
    out = {key: stored_archive() for key in keys}
    out.update({key: rewound_archive() for key in rewound.keys
                + [rewound.gone_key] if key not in out})
    return {"object-%s-%s.kva" % (NAMESPACE, key.hex()): content
            for key, content in out.items()}


def referring(w, segments=None, close=Writer.close, between=None,
              tensors=STORE, chain=None, **edits):
    """A RESTORE whose area spans the segments of the store and one of its
    own; then the STOREREF. chain: that segment has a chain value."""
    segments = stored_segments() if segments is None else segments
    n = sum(len(s[0]) for s in segments)
    w.geometry([], [(0, 0, "")], tensors)
    w.identity([("model", "m"), ("namespace", NAMESPACE)])
    order = sorted(range(2), key=lambda i: tensors[i]["kind"])
    view = [(order[0], 0, 14, 8, 0, 1), (order[1], 8, 14, 3, 0, 2)]
    size = (n + 2) * 14
    w.restore(1, "rows", [2, (size, 0, 0, n + 2, view)])
    w.blob(0, 0, b"<>")
    w.keys = storeref(w, 0, segments, **edits)
    own = [list(range(100, 116)), [0x3F80 + i for i in range(6)]]
    if between:
        between(w)
    else:
        w.commit()
    w.segment(0, 2, ids=[9, 2], chain=chain)
    for i, v in zip(order, own):
        w.chunk(i, v)
    parts = [s[2] for s in segments] + [own]
    rows = b""
    for keys, values in parts:
        for i in range(len(values) // 3):
            rows += pack_elements(U8, keys[8 * i:8 * i + 8])
            rows += pack_elements(BF16, values[3 * i:3 * i + 3])
    w.item(b"<>" + rows)
    close(w)
    return w


F16_VALUES = [STORE[0], dict(STORE[1], dtype=F16)]


@vector("storeref", "STOREREF: three segments of the store, one of them "
        "without token ids, then one of the file that a RESTORE needs as well")
def _():
    return referring(Writer(incompat=2))


@vector("storeref-chain", "a chain value behind that of a segment of the "
        "store")
def _():
    return referring(Writer(incompat=2), stored_segments()[:2], chain=True)


@vector("storeref-order", "a STOREREF in a file that lists its value before its "
        "key: the content digest has the key first")
def _():
    return referring(Writer(incompat=2), tensors=STORE[::-1])


@vector("storeref-items", "a checkpoint with an item, then a STOREREF and no "
        "RESTORE: the last state has no items")
def _():
    w = Writer(incompat=2)
    w.geometry([], [(0, 0, "")], STORE)
    w.identity([("model", "m"), ("namespace", NAMESPACE)])
    w.restore(1, "notes", [5])
    w.blob(0, 0, b"notes")
    w.item(b"notes")
    w.commit((1, 0, "notes"))
    storeref(w, 0, stored_segments()[:2])
    w.close()
    return w


# ------------------------------------------------------------ store, rewound

def turned_segments():
    """Those that stand behind rewinds, as those of stored_segments: behind 6
    tokens, behind 2 of these, behind 3 tokens of the second one there."""
    rng, out = Random(403), []
    for positions, ids in (([6, 7, 8, 9], [6, 6, 6, 7]),
                           ([8, 9, 40], [1, 2, 3]),
                           ([50, 51], [4, 8])):
        n = len(positions)
        out.append((positions, ids, [any_bits(rng, U8, 8 * n),
                                     normal(rng, BF16, n, 3)], True))
    return out


def rewound_archive():
    """An archive of the store whose track rewinds: segments that are cut or
    replaced there are in the store as well."""
    w = Writer(file_id=b"another object!!")
    w.geometry([], [(0, 0, "")], STORE)
    for t0, (positions, ids, values, _) in zip((0, 6, 8, 3),
                                               stored_segments()[:1]
                                               + turned_segments()):
        w.segment(0, len(positions), positions, ids, t0=t0)
        for i, v in enumerate(values):
            w.chunk(i, v)
        w.commit()
    w.close()
    return bytes(w.out)


def turns_of_store(w=None, last=None, **edits):
    """STOREREFs that rewind a track: to a segment of the store, into one, to
    token 0; a SEGMENT that rewinds into one; a checkpoint behind each. last: a
    chain value, or True, of a STOREREF at the end that rewinds into the first
    segment; edits: of that STOREREF."""
    w = w or Writer(incompat=2)
    stored, turned, rng = stored_segments(), turned_segments(), Random(404)
    w.geometry([], [(0, 0, "")], STORE)
    w.identity([("model", "m"), ("namespace", NAMESPACE)])
    w.keys = []

    def turn(segments, at=None, **how):
        w.keys += storeref(w, 0, segments, at, **how)
        w.commit((w.counts.get("COMMIT", 0) + 1, 0, "turn"))

    turn(stored[:2])
    w.segment(0, 2, ids=[9, 2], chain=True, t0=9)   # into the second one
    for i, v in enumerate((any_bits(rng, U8, 16), normal(rng, BF16, 2, 3))):
        w.chunk(i, v)
    w.commit((2, 0, "turn"))
    turn(turned[:1], 6)
    turn(turned[1:2], 8)
    turn(stored[:2], 0)
    # what the last one would be named behind all tokens of the second one
    w.gone_key = linked(w.before(0), 0, *turned[2][:2])
    turn([turned[2][:3] + (last or True,)], 3, **edits)
    w.close()
    return w


@vector("storeref-rewind", "STOREREFs that rewind their track: to a segment of "
        "the store, into one, to token 0; a SEGMENT that rewinds into one; a "
        "checkpoint behind each")
def _():
    return turns_of_store()


@vector("storeref-encrypted", "STOREREF in an encrypted file, packed method 1; "
        "the end is a COMMIT")
def _():
    return referring(Writer(cipher=Cipher(), incompat=3), method=1,
                     close=commit_only), {".key": key_line()}
