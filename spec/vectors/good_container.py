# SPDX-License-Identifier: BSD-3-Clause
"""Valid archives that show the container: VECTORS has (name, text, make)."""

from enc_codecs import GridParams, fit_bytes
from enc_fields import (
    BF16, BYTES, E4M3, E5M2, F16, F32, I8, U8, Random, pack_elements)
from kvarc_enc import KEY, VALUE, Writer, tensor
from vector_data import any_bits, grid_fit, normal, one_tensor, put

VECTORS = []


def vector(name, text):
    def add(make):
        VECTORS.append((name, text, make))
        return make
    return add


@vector("empty", "no tensor, no token: GEOMETRY, COMMIT, INDEX, FOOTER")
def _():
    w = Writer()
    w.geometry([], [(0, 0, "")], [])
    w.close()
    return w


@vector("no-tokens", "two tensors, no token yet, one empty item")
def _():
    w = Writer()
    w.geometry([], [(0, 0, "")], [tensor(0, KEY, BF16, 2, 4),
                                  tensor(0, VALUE, BF16, 2, 4)])
    w.restore(1, "empty", [])
    w.close()
    w.item(b"")
    return w


@vector("example", "the file of spec/examples.md: one bf16 key tensor, "
        "12 tokens, codec 5")
def _():
    rng = Random(1)
    k = [-8, -4, 0, 5]
    mean = [0.5, -1.0, 2.0, 0.0]
    values = normal(rng, BF16, 12, 4, mean, [2.0 ** (c / 4) for c in k])
    for row in range(12):
        values[4 * row + 1] = 0x3F80
    w = one_tensor(BF16, 1, 4, file_id=bytes(range(16)))
    params = grid_fit(mean, k)
    sequence = w.params(0, params)
    w.segment(0, 12, [-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 20, 21],
              [11, 22, 33] * 4, chain=True)
    put(w, 0, values, params, params_sequence=sequence)
    w.close()
    return w


@vector("raw", "codec 0, a tensor of every dtype, all flags, a shard name")
def _():
    rng = Random(2)
    w = Writer()
    dtypes = [BYTES, F32, F16, BF16, E4M3, E5M2, I8, U8]
    w.geometry([], [(0, 0, "main")],
               [tensor(layer, layer % 2, d, 2, 3, role=0, flags=layer % 4,
                       name="layers.%d" % layer)
                for layer, d in enumerate(dtypes)])
    w.segment(0, 3)
    for i, d in enumerate(dtypes):
        w.chunk(i, any_bits(rng, d, 18))
    w.close()
    return w


# `zstd -19 --no-check` of LINE: a block that is really compressed.
LINE = b"".join(b"token %d of layer %d; " % (i % 7, i % 5) for i in range(15))
LINE_ZSTD = bytes.fromhex(
    "28b52ffd00682502006402746f6b656e2030206f66206c6179657220303b2031"
    "313232333334343536303132333435363013a810f8fa9f01d07331101c0114a0"
    "68e21e170d279fd457babb2405")


@vector("zstd", "codec 1: raw, RLE and compressed blocks; packed method 1 "
        "in all metadata frames")
def _():
    rng = Random(3)
    w = Writer()
    n = len(LINE) // 6
    w.geometry([], [(0, 0, "x" * 100)],
               [tensor(0, KEY, U8, 1, 4), tensor(0, VALUE, F16, 1, 3),
                tensor(1, KEY, BYTES, 1, 6)], method=1)
    w.identity([("model", "z" * 50)], method=1)
    w.segment(0, n, positions=range(7, 7 + n), ids=[5] * n, method=1)
    w.chunk(0, [77] * (4 * n), 1)
    w.chunk(1, any_bits(rng, F16, 3 * n), 1)
    w.chunk_frame(2, 0, 1, 1, 0, LINE, LINE_ZSTD)
    w.commit()
    w.index(method=1)
    w.footer()
    return w


@vector("zstd-forms", "packed frames: without the size of the content, with a "
        "checksum, both, with a dictionary number of 0")
def _():
    content = b"\2\1a\0011\1b\0012"
    head, block = bytes.fromhex("28b52ffd"), bytes.fromhex("490000") + content
    check = bytes.fromhex("bb6cf54c")
    frames = [head + b"\0\x68" + block, head + b"\4\x68" + block + check,
              head + b"\x24\x09" + block + check,
              head + b"\x23" + bytes(4) + b"\x09" + block]
    w = Writer(edits={("IDENTITY", i): {
        "payload": lambda p, frame=frame: b"\1" + frame}
        for i, frame in enumerate(frames)})
    w.geometry([], [(0, 0, "")], [])
    for _ in frames:
        w.identity([("a", "1"), ("b", "2")])
    w.close()
    return w


@vector("constant", "codec 2 for elements of 1, 2 and 4 bytes")
def _():
    w = Writer()
    dtypes = [F32, F16, E5M2]
    w.geometry([], [(0, 0, "")], [tensor(i, KEY, d, 3, 5)
                                  for i, d in enumerate(dtypes)])
    w.segment(0, 9)
    for i, value in enumerate((0x7FC12345, 0x8000, 0xFF)):
        w.chunk(i, [value] * 135, 2)
    w.close()
    return w


@vector("repeat", "codec 3: a chunk of another shape and dtype repeated, in "
        "its segment and in a later one")
def _():
    rng = Random(4)
    w = Writer()
    w.geometry([], [(0, 0, "")], [tensor(0, KEY, BF16, 1, 8),
                                  tensor(0, VALUE, E4M3, 4, 4)])
    values = any_bits(rng, BF16, 48)
    raw = pack_elements(BF16, values)
    for segment in range(2):
        w.segment(0, 6)
        if segment == 0:
            first = (w.chunk(0, values), w.frames[-1][1])
        else:
            w.chunk(0, values, 3, of=first)
        w.chunk(1, list(raw), 3, of=first)
        w.commit()
    w.index()
    w.footer()
    return w


@vector("segments", "segments of 256, 1 and 30 tokens with and without ids, "
        "negative, repeated and backward positions, gaps, the extremes")
def _():
    w = one_tensor(U8, 1, 1)
    rng = Random(5)
    places = [list(range(-100, 0)) + list(range(50, 206)), [2 ** 31 - 1],
              [-2 ** 31, 5, 5, 4, 3] + list(range(1000, 1020))
              + [7, 8, 2 ** 31 - 2, 2 ** 31 - 1, 0]]
    ids = [None, [-1], [rng.bits(31) - 2 ** 30 for _ in range(30)]]
    for p, i in zip(places, ids):
        w.segment(0, len(p), p, i)
        w.chunk(0, any_bits(rng, U8, len(p)))
        w.commit()
    w.index()
    w.footer()
    return w


@vector("chains", "chain values: of two tracks in turn, of an identity in two "
        "frames; segments with ids but without a value")
def _():
    w = Writer()
    w.geometry([], [(0, 0, ""), (0, 0, "")],
               [tensor(0, KEY, I8, 1, 2, track=track) for track in (0, 1)])
    w.identity([("adapter", "a"), ("engine", "e"), ("model", "m" * 200)])
    w.identity([("adapter", ""), ("weights", "w")], method=1)
    for i, (track, n, chain) in enumerate((
            (0, 256, True), (1, 2, True), (0, 1, True), (1, 3, False),
            (0, 4, True), (1, 1, False))):
        w.segment(track, n, range(7 * i, 7 * i + n), range(i, i + n),
                  chain=chain, method=i & 1)
        w.chunk(track, [i] * 2 * n)
        w.commit()
    w.identity([("engine", "f"), ("model", "m" * 200)])
    w.close()
    return w


@vector("tracks", "four tracks of each kind, one without tensors; segments "
        "of the tracks in turn")
def _():
    rng = Random(6)
    w = Writer()
    w.geometry([], [(0, 0, "stream 0"), (1, 128, "window"), (2, 0, "cross"),
                    (255, 0, "")],
               [tensor(0, KEY, I8, 1, 3, track=0),
                tensor(1, KEY, I8, 1, 3, track=1),
                tensor(0, 7, I8, 1, 2, track=2),
                tensor(2, 8, I8, 1, 2, track=2)])
    for track, n in ((0, 4), (2, 3), (1, 2), (3, 5), (0, 1), (2, 2)):
        w.segment(track, n, ids=range(n))
        for i, t in enumerate(w.geometry_parts[2]):
            if t["track"] == track:
                w.chunk(i, any_bits(rng, I8, n * t["channels"]))
        w.commit()
    w.index()
    w.footer()
    return w


@vector("order", "tensors listed in another order than their chunks come "
        "(layer, kind, number)")
def _():
    rng = Random(7)
    w = Writer()
    w.geometry([], [(0, 0, "")],
               [tensor(1, VALUE, U8, 1, 2), tensor(0, VALUE, U8, 1, 2),
                tensor(1, KEY, U8, 1, 2), tensor(0, KEY, U8, 1, 2),
                tensor(0, KEY, U8, 1, 1, role=1)])
    w.segment(0, 3)
    for i in (3, 4, 1, 2, 0):
        w.chunk(i, any_bits(rng, U8, 3 * w.geometry_parts[2][i]["channels"]))
    w.close()
    return w


@vector("open", "not closed: ends with a COMMIT")
def _():
    w = one_tensor(I8, 1, 2)
    w.segment(0, 2)
    w.chunk(0, [1, 2, 3, 4])
    w.commit()
    return w


@vector("open-index", "not closed: INDEX and a frame to skip follow the last COMMIT")
def _():
    w = one_tensor(I8, 1, 2)
    w.segment(0, 2)
    w.chunk(0, [1, 2, 3, 4])
    w.commit()
    w.index()
    w.frame("private", b"later")
    return w


@vector("checkpoints", "commits with number, time and label; one behind the "
        "last segment")
def _():
    w = one_tensor(I8, 1, 2)
    for part in range(3):
        w.segment(0, 2)
        w.chunk(0, [part, 2, 3, 4])
        w.commit((3 * part + 1, 1_780_000_000_000 + part, "turn %d" % part))
    w.commit((2 ** 53 - 1, 0, ""))
    w.close()
    return w


@vector("appended", "closed, appended to and closed again, twice")
def _():
    w = one_tensor(I8, 1, 2)
    for part in range(3):
        w.segment(0, 2)
        w.chunk(0, [part, 2, 3, 4])
        w.close()
    return w


@vector("commits", "COMMIT frames before the first SEGMENT, one after another, "
        "behind PARAMS, INDEX and a FOOTER")
def _():
    rng = Random(13)
    w = one_tensor(U8, 1, 2)
    w.commit()
    w.commit()
    values = any_bits(rng, U8, 6)
    params = fit_bytes(2, values)
    sequence = w.params(0, params)
    w.commit()
    w.segment(0, 3)
    put(w, 0, values, params, params_sequence=sequence)
    w.commit()
    w.index()
    w.commit()
    w.params(0, params, copy_of=sequence)
    w.close()
    w.commit()
    w.index()
    w.footer()
    return w


@vector("indexes", "several INDEX frames, one of them empty")
def _():
    w = one_tensor(I8, 1, 2)
    for part in range(3):
        w.segment(0, 2)
        w.chunk(0, [part, 2, 3, 4], codec=part & 1)
        w.commit()
        w.index(method=part & 1)
    w.index()
    w.footer()
    return w


def listed_segments(w, n, codec=0):
    for part in range(n):
        w.segment(0, 2)
        w.chunk(0, [part, 2, 3, 4], codec=codec)
        w.commit((w.sequence, 0, "turn"))


@vector("lists", "a LIST of two segments and one of one, which is packed; a "
        "segment whose chunk the INDEX has")
def _():
    w = one_tensor(I8, 1, 2)
    listed_segments(w, 2)
    w.list()
    listed_segments(w, 1, codec=1)
    w.list(method=1)
    listed_segments(w, 1)
    w.close()
    return w


@vector("lists-follow", "INDEX frames that repeat the entries of the one "
        "before: of LIST and of CHUNK frames; the last follows the first")
def _():
    w = one_tensor(I8, 1, 2)
    listed_segments(w, 1)
    w.list()
    listed_segments(w, 1)
    w.close()
    listed_segments(w, 2)
    w.list()
    w.commit()
    w.index(follows=0)
    w.footer()
    listed_segments(w, 1)
    w.commit()
    w.index(follows=2)
    w.footer()
    return w


@vector("open-list", "not closed: a LIST follows the last COMMIT")
def _():
    w = one_tensor(I8, 1, 2)
    listed_segments(w, 2)
    w.list()
    return w


@vector("lists-tracks", "a LIST behind segments of two tracks, one of which "
        "has no tensor, and a tensor in two chunks")
def _():
    w = Writer()
    w.geometry([], [(0, 0, ""), (0, 0, "none")],
               [tensor(0, KEY, I8, 2, 1), tensor(0, VALUE, I8, 1, 2)])
    for part in range(2):
        w.segment(1, 2)
        w.commit()
        w.segment(0, 1)
        w.chunk(0, [part], first=0, heads=1)
        w.chunk(0, [3], first=1, heads=1)
        w.chunk(1, [4, 5])
        w.commit()
    w.segment(1, 1)
    w.commit()
    w.list()
    w.close()
    return w


@vector("skipped", "frames to skip: private use and reserved types, not "
        "critical; compatible feature bits; a later minor version")
def _():
    w = Writer(minor=7, compat=0x80000001, ro_compat=4, edits={
        ("private", 1): {"type": 13}, ("private", 2): {"type": 0x7FFF},
        ("private", 3): {"type": 0xFFFF, "decoded_bytes": 5}})
    w.geometry([], [(0, 0, "")], [tensor(0, KEY, I8, 1, 2)])
    w.frame("private", b"not for you")
    w.index()
    w.restore(1, "empty", [])
    w.item(b"")
    w.segment(0, 2)
    w.frame("private", b"")
    w.chunk(0, [1, 2, 3, 4])
    w.frame("private", b"12345678")
    w.commit()
    w.frame("private", b"x")
    w.close()
    return w


@vector("metadata", "extension fields, IDENTITY that overrides, PREDICTOR of "
        "kind 0, bytes that are not UTF-8, Q8_0 planes, a state track")
def _():
    w = Writer()
    w.geometry([], [(3, 0, b"\xff\xfe")],
               [tensor(0, 6, F16, 1, 1, role=1, source_type=0x108),
                tensor(0, 6, I8, 1, 32, role=3, source_type=0x108)],
               extensions=[(1, b""), (2, b"again"), (2 ** 53 - 1, b"later")])
    w.identity([("engine", "a"), ("model", "b")])
    w.frame("PREDICTOR", b"\0\0")
    w.identity([("", ""), ("engine", "c")])
    w.identity([])
    rng = Random(8)
    w.segment(0, 2)
    w.chunk(0, any_bits(rng, F16, 2))
    w.chunk(1, any_bits(rng, I8, 64))
    w.close()
    return w


@vector("params-copy", "a copy of a PARAMS frame that the INDEX names")
def _():
    rng = Random(9)
    w = one_tensor(F16, 1, 4)
    values = normal(rng, F16, 8, 4)
    params = GridParams([0] * 4, [0] * 4)
    original = w.params(0, params)
    w.segment(0, 8)
    put(w, 0, values, params, params_sequence=original)
    w.commit()
    w.params(0, params, copy_of=original, method=1)
    w.close()
    return w


@vector("params-earlier", "not streamable: chunks use PARAMS that later ones "
        "of the same tensor and head followed")
def _():
    rng = Random(12)
    w = one_tensor(F16, 1, 4)
    values = normal(rng, F16, 8, 4)
    params = GridParams([0] * 4, [0] * 4)
    first = w.params(0, params)
    w.params(0, GridParams([-4] * 4, [64] * 4))
    for _ in range(2):
        w.segment(0, 8)
        put(w, 0, values, params, params_sequence=first)
        w.commit()
        w.params(0, params)
    w.close()
    return w


@vector("head-groups", "head groups of several sizes, each with PARAMS of "
        "its own that change from segment to segment")
def _():
    rng = Random(10)
    w = one_tensor(BF16, 5, 4)
    kept = {}
    for segment in range(3):
        w.segment(0, 6)
        for first, heads in ((0, 2), (2, 1), (3, 2)):
            values = normal(rng, BF16, 6, 4 * heads, 1.0 + first, 0.5)
            if segment == 0 or first == 2:
                mean = 32 * (1 + first) + segment
                params = GridParams([-4] * 4 * heads, [mean] * 4 * heads)
                kept[first] = params, w.params(0, params, first, heads)
            params, sequence = kept[first]
            put(w, 0, values, params, first=first, heads=heads,
                params_sequence=sequence)
        w.commit()
    w.index()
    w.footer()
    return w


# ------------------------------------------------------------------- items

@vector("restore-opaque", "opaque items of literals alone in several BLOBs, "
        "one without a name, BLOBs of two items mixed")
def _():
    w = Writer()
    w.geometry([], [(0, 0, "")], [])
    one, two = bytes(range(200)), b"second file\n" * 5
    w.restore(1, "one.bin", [150, 50])
    w.restore(255, "", [len(two)], method=1)
    w.blob(0, 0, one[:7])
    w.blob(1, 0, two, method=1)
    w.commit()
    w.blob(0, 7, one[7:])
    w.close()
    w.item(one)
    w.item(two)
    return w


@vector("restore-slot", "a slot file: literals between areas of K (token "
        "rows) and transposed V; two segments; an area of part of the tokens")
def _():
    rng = Random(60)
    w = Writer()
    w.geometry([], [(0, 0, "slot")],
               [tensor(0, KEY, F16, 2, 3), tensor(0, VALUE, F16, 2, 3)])
    n = 9
    keys, values = any_bits(rng, F16, 6 * n), any_bits(rng, F16, 6 * n)
    key_area = pack_elements(F16, keys)
    value_area = pack_elements(F16, [values[6 * t + c] for c in range(6)
                                     for t in range(n)])
    part = pack_elements(F16, [keys[6 * t + c] for h in range(2)
                               for t in range(4, 7)
                               for c in range(3 * h, 3 * h + 3)])
    content = (b"head" + key_area + b"mid" + value_area + part + b"tail!")
    w.restore(2, "slot.bin", [
        4, (len(key_area), 0, 0, n, [(0, 0, 12, 6, 0, 2)]),
        3, (len(value_area), 0, 0, n, [(1, 0, 2, 1, 2 * n, 2)]),
        (len(part), 0, 4, 3, [(0, 0, 6, 3, 18, 2)]), 5])
    w.blob(0, 0, b"headmidtail!")
    at = 0
    for size in (5, 4):
        w.segment(0, size)
        w.chunk(0, keys[6 * at:6 * (at + size)])
        w.chunk(1, values[6 * at:6 * (at + size)])
        at += size
        w.commit()
    w.index()
    w.footer()
    w.item(content)
    return w


@vector("restore-blocks", "an area that mixes two tensors: Q8_0 blocks of "
        "scale and payload planes; a second track in the same file")
def _():
    rng = Random(61)
    w = Writer()
    w.geometry([], [(0, 0, ""), (0, 0, "")],
               [tensor(0, KEY, F16, 1, 2, role=1, source_type=0x108),
                tensor(0, KEY, I8, 1, 64, role=3, source_type=0x108),
                tensor(0, KEY, U8, 1, 2, track=1)])
    n = 4
    scale = any_bits(rng, F16, 2 * n)
    payload = any_bits(rng, I8, 64 * n)
    other = any_bits(rng, U8, 6)
    area = b"".join(pack_elements(F16, scale[b:b + 1])
                    + bytes(payload[32 * b:32 * b + 32])
                    for b in range(2 * n))
    w.restore(3, "session.bin", [
        (len(area), 0, 0, n, [(0, 0, 68, 1, 34, 0),
                              (1, 2, 68, 32, 34, 1)]),
        (6, 1, 0, 3, [(2, 0, 2, 2, 0, 1)])])
    w.segment(0, n)
    w.chunk(0, scale)
    w.chunk(1, payload)
    w.commit()
    w.segment(1, 3)
    w.chunk(2, other)
    w.close()
    w.item(area + bytes(other))
    return w


@vector("restore-names", "items under names that no reader may make files of: "
        "reading and testing take them")
def _():
    w = Writer()
    w.geometry([], [(0, 0, "")], [])
    for name in ("../up", "/etc/passwd", "a//b", b"\xff\n"):
        w.restore(1, name, [])
        w.item(b"")
    w.close()
    return w


@vector("restore-two-names", "two items of one name")
def _():
    w = Writer()
    w.geometry([], [(0, 0, "")], [])
    for i in range(2):
        w.restore(1, "same", [1])
        w.item(b"12"[i:i + 1])
    for i in range(2):
        w.blob(i, 0, b"12"[i:i + 1])
    w.close()
    return w


@vector("restore-holes", "an area with bytes that no element covers, which are "
        "zero, and two views of the same bytes, whose elements are equal")
def _():
    w = Writer()
    w.geometry([], [(0, 0, "")], [tensor(0, KEY, U8, 1, 4),
                                  tensor(0, VALUE, U8, 1, 4)])
    w.restore(255, "", [2, (24, 0, 0, 3, [(0, 0, 8, 4, 0, 1),
                                          (1, 0, 8, 4, 0, 1)]), 1])
    w.blob(0, 0, b"[[]")
    w.segment(0, 3)
    for i in range(2):
        w.chunk(i, [7, 8, 9, 10] * 3)
    w.close()
    w.item(b"[[" + bytes([7, 8, 9, 10, 0, 0, 0, 0] * 3) + b"]")
    return w
