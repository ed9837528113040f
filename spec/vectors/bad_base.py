# SPDX-License-Identifier: BSD-3-Clause
"""The archive that most invalid vectors are edits of, and the edits.

Vectors are (name, text, make, answer). Nearly all are `base` with one edit of
Writer.edits; its checks are made after the edit, so that the fault itself has
to be found.
"""

from enc_codecs import GridParams, find_constant, fit_bytes
from enc_fields import BF16, E4M3, U8, Random
from kvarc_enc import KEY, VALUE, Writer, tensor
from vector_data import frequencies, normal

VECTORS = []
ROPE = (0, 4, frequencies(4))


def base(edits=None, close=True, coded=False, file_id=b"kvarc test file!",
         **superblock):
    """GEOMETRY (bf16 key 1 x 6 with a rope, e4m3 value 1 x 3), IDENTITY,
    RESTORE and BLOB (literal, area of both tensors), one SEGMENT of 5 tokens,
    two CHUNKs, COMMIT, INDEX, FOOTER. The chunks are raw; or coded, and then
    the value is of u8, two PARAMS stand for IDENTITY, RESTORE and BLOB (codec
    5 with rotation, a constant channel and a constant row; codec 6), and the
    COMMIT is the end."""
    rng = Random(100)
    w = Writer(file_id, edits, **superblock)
    w.geometry([ROPE], [(0, 0, "t")],
               [tensor(0, KEY, BF16, 1, 6, rope=1, name="k"),
                tensor(0, VALUE, U8 if coded else E4M3, 1, 3, name="v")])
    keys = normal(rng, BF16, 5, 6, 1.0, 0.5)
    for c in range(6):
        keys[6 * 2 + c] = 0x3F80
    for r in range(5):
        keys[6 * r + 5] = 0x4000
    values = normal(rng, E4M3, 5, 3, 0.0, 1.0)
    kp = GridParams([-4] * 6, [16] * 6, True)
    vp = fit_bytes(3, values)
    if coded:
        ks, vs = w.params(0, kp), w.params(1, vp)
    else:
        w.identity([("a", "1"), ("b", "2")])
        w.restore(2, "f", [3, (75, 0, 0, 5, [(0, 0, 15, 6, 0, 2),
                                             (1, 12, 15, 3, 0, 1)])])
        w.blob(0, 0, b"abc")
    w.segment(0, 5, [0, 1, 2, 7, 8], [1, 2, 3, 4, 5])
    if coded:
        columns, rows = find_constant(5, 6, keys)
        w.chunk(0, keys, 5, kp, ks, constant_columns=columns,
                constant_rows=rows)
        w.chunk(1, values, 6, vp, vs)
    else:
        w.chunk(0, keys)
        w.chunk(1, values)
    if close and coded:
        w.commit()
    elif close:
        w.close()
    return w


# Where things are in the coded chunks of base: 48 bytes of chunk header, the
# mask section (flags, 1 byte bitmap and element each) and 9 zeros, the stream
# table, the states.
MASK = 48
K_STREAM = MASK + 16
K_STATE = K_STREAM + 16


def vector(name, text, answer="data"):
    def add(make):
        VECTORS.append((name, text, make, answer))
        return make
    return add


def edit(name, text, frame, change, answer="data", count=0, coded=None):
    """A vector that is `base` with one edited frame."""
    if coded is None:
        coded = frame == "PARAMS"
    vector(name, text, answer)(
        lambda: bytes(base({(frame, count): change}, coded=coded).out))


def poke(at, value):
    """A byte, or several, put at a place (negative: from the end)."""
    value = bytes([value]) if isinstance(value, int) else value

    def change(data):
        where = at if at >= 0 else len(data) + at
        return data[:where] + value + data[where + len(value):]
    return change


def last_word(p, bit):
    """Changes the last word of the only stream."""
    n = p[K_STREAM] + 256 * p[K_STREAM + 1]
    at = K_STATE + 128 + 2 * n - 1
    return poke(at, p[at] ^ bit)(p)


def splice(at, n, value):
    return lambda data: data[:at] + value + data[at + n:]


def add(value):
    return lambda data: data + value


def cut(n):
    return lambda data: data[:-n]


def small(steps, n_tensors=2, edits=None):
    """A file of U8 tensors 1 x 2; steps(w) writes what is between."""
    w = Writer(edits=edits)
    w.geometry([], [(0, 0, "")], [tensor(0, i, U8, 1, 2)
                                  for i in range(n_tensors)])
    steps(w)
    w.close()
    return bytes(w.out)


RAW = [1, 2, 3, 4]


def chunk(name, text, at, value, count=0, answer="data"):
    change = value if callable(value) else poke(at, value)
    edit("chunk-" + name, text, "CHUNK",
         {"payload": change, "decoded_bytes": (60, 15)[count]}, answer, count,
         coded=True)


# GEOMETRY content of base: n_ropes, pairing, rotary, freq[2], n_tracks, kind,
# window, label (2), n_tensors, then the tensors.
G_TRACKS = 3 + 16
G_TENSOR = G_TRACKS + 1 + 4 + 1     # layer kind role dtype n_axes axes...

# PARAMS content: tensor (4), first head (2), heads (2), codec; grid: flags, 6
# sets, k low 6, k high 6, mean 12; bytes: n_tables, 257 varints, table 3.
P = 9
