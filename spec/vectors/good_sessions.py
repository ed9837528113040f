# SPDX-License-Identifier: BSD-3-Clause
"""Archives of sessions: rewinds, checkpoints, items of each; VECTORS has the
valid ones, the others are added to bad_base."""

import bad_base
from enc_fields import I8, U8, Random, pack_elements
from kvarc_enc import KEY, VALUE, Writer, tensor
from vector_data import any_bits, one_tensor

VECTORS = []


def vector(name, text):
    def add(make):
        VECTORS.append((name, text, make))
        return make
    return add


def turn(w, track, t0, n, seed, label=None):
    """Tokens t0 .. t0 + n - 1, and a checkpoint, of two i8 tensors."""
    rng = Random(seed)
    w.segment(track, n, ids=[rng.bits(16) for _ in range(n)], t0=t0,
              method=seed & 1)
    for i, t in enumerate(w.geometry_parts[2]):
        if t["track"] == track:
            w.chunk(i, any_bits(rng, I8, n * t["heads"] * t["channels"]))
    w.commit((w.counts.get("COMMIT", 0) + 1, 0, label) if label else None)


def turns(tracks=1, edits=None):
    w = Writer(edits=edits)
    w.geometry([], [(0, 0, "")] * tracks,
               [tensor(0, kind, I8, 2, 3, track=track)
                for track in range(tracks) for kind in (KEY, VALUE)])
    w.identity([("model", "m")])
    w.chains = True
    return w


@vector("rewind", "rewinds to the start of a segment, into one, into the first "
        "one, to token 0; chain values; a checkpoint behind each")
def _():
    w = turns()
    for i, (t0, n) in enumerate(((0, 200), (200, 100), (200, 30), (230, 20),
                                 (215, 5), (7, 256), (263, 1), (264, 3),
                                 (250, 9), (0, 4), (3, 2))):
        turn(w, 0, t0, n, 600 + i, "turn %d" % i)
    w.close()
    return w


@vector("rewind-tracks", "rewinds of two tracks in turn, without ids and "
        "chain values in places; commits that are no checkpoints")
def _():
    w = turns(2)
    for i, (track, t0, n) in enumerate((
            (0, 0, 9), (1, 0, 5), (0, 9, 9), (1, 2, 5), (0, 4, 2), (0, 6, 1),
            (1, 7, 2), (1, 8, 4), (0, 5, 3))):
        w.chains = track == 0
        turn(w, track, t0, n, 620 + i, "turn" if i % 2 else None)
    w.index()
    w.footer()
    return w


@vector("rewind-repeat", "codec 3: chunks of segments that were replaced and cut")
def _():
    w = one_tensor(U8, 1, 2)
    at = []
    for t0 in (0, 4, 2, 0):
        w.segment(0, 4, t0=t0)
        w.chunk(0, [t0, 9] * 4)
        at.append((w.sequence - 1, w.frames[-1][1]))
        w.commit()
    values = ([4, 9] * 4, [0, 9] * 4)
    for i in (1, 0):
        w.segment(0, 4)
        w.chunk(0, values[1 - i], 3, of=at[i])
        w.commit()
    w.index()
    w.footer()
    return w


@vector("rewind-indexes", "an INDEX behind each turn; checkpoints that are far "
        "apart")
def _():
    w = turns()
    for i, (t0, n) in enumerate(((0, 20), (10, 20), (5, 2))):
        turn(w, 0, t0, n, 640 + i, "turn")
        w.index()
    w.commit((1 << 40, 1, "the end"))
    w.index()
    turn(w, 0, 6, 2, 650)
    w.close()
    return w


# -------------------------------------------------------------- 10 items

def slot(w, data, n):
    """A piece and its bytes: token rows of tensor 0."""
    width = w.geometry_parts[2][0]["heads"] * w.geometry_parts[2][0][
        "channels"]
    return (n * width, 0, 0, n, [(0, 0, width, width, 0, 1)]), \
        pack_elements(I8, data[:n * width])


@vector("items-turns", "two checkpoints with a slot each, of a track that the "
        "second turn rewinds; literals that did not change are references; a "
        "workspace of the first turn alone")
def _():
    w, rng = Writer(), Random(660)
    w.geometry([], [(0, 0, "")], [tensor(0, KEY, I8, 1, 2)])
    data = any_bits(rng, I8, 60)
    w.segment(0, 20)
    w.chunk(0, data[:40])
    w.commit()
    area, rows = slot(w, data, 20)
    w.restore(2, "slot.bin", [8, area, 5])
    w.restore(8, "workspace.tar", [6])
    w.blob(0, 0, b"headtextta")
    w.blob(1, 0, b"files!")
    w.blob(0, 10, b"il!")
    w.item(b"headtext" + rows + b"tail!")
    w.item(b"files!")
    w.commit((1, 1000, "turn 1"))
    data[36:60] = any_bits(rng, I8, 24)
    w.segment(0, 12, t0=18)
    w.chunk(0, data[36:60])
    w.commit()
    area, rows = slot(w, data, 30)
    w.restore(2, "slot.bin", [(4, 0, 0), 3, area, (5, 0, 8), 1, (2, 1, 4)])
    w.blob(2, 0, b"new?")
    w.item(b"headnew" + rows + b"tail!?" + b"s!")
    w.commit((2, 2000, "turn 2"))
    w.close()
    return w


@vector("items-late", "RESTORE frames behind a SEGMENT, behind a BLOB and a "
        "COMMIT, without checkpoints: one set")
def _():
    w = Writer()
    w.geometry([], [(0, 0, "")], [tensor(0, KEY, I8, 1, 2)])
    w.restore(1, "a", [1])
    w.segment(0, 2)
    w.blob(0, 0, b"x")
    w.chunk(0, [1, 2, 3, 4])
    w.commit()
    w.restore(1, "b", [(1, 0, 0), 1])
    w.commit()
    w.blob(1, 0, b"y")
    w.restore(2, "c", [(4, 0, 0, 2, [(0, 0, 2, 2, 0, 1)])])
    w.close()
    for content in (b"x", b"xy", b"\1\2\3\4"):
        w.item(content)
    return w


@vector("items-sets", "sets of items: closed by checkpoints, empty ones, two "
        "checkpoints of one set, none behind the last; kinds 6 to 8")
def _():
    w = one_tensor(U8, 1, 2)
    w.restore(7, "media", [2])
    w.blob(0, 0, b"ab")
    w.segment(0, 2)
    w.chunk(0, [1, 2, 3, 4])
    w.commit()
    w.item(b"ab")
    w.commit((1, 0, ""))
    w.commit((2, 0, "again"))
    w.segment(0, 1)
    w.chunk(0, [5, 6])
    w.commit((3, 0, "no items"))
    w.restore(6, "context", [(2, 0, 0), 1])
    w.restore(8, "", [])
    w.blob(1, 0, b"c")
    w.item(b"abc")
    w.item(b"")
    w.commit((4, 0, ""))
    w.restore(1, "", [(1, 0, 1)])
    w.item(b"b")
    w.commit()
    w.close()
    return w


def bad(name, text):
    def add(make):
        def made():
            w = Writer()
            w.geometry([], [(0, 0, "")], [tensor(0, KEY, U8, 1, 2)])
            make(w)
            w.close()
            return bytes(w.out)
        bad_base.VECTORS.append(("items-" + name, text, made, "data"))
        return make
    return add


def tokens(w, n, t0=None):
    w.segment(0, n, t0=t0)
    w.chunk(0, range(2 * n))


AREA = (4, 0, 0, 2, [(0, 0, 2, 2, 0, 1)])


@bad("tokens", "an area of tokens that come behind its checkpoint")
def _(w):
    w.restore(2, "", [AREA])
    tokens(w, 1)
    w.commit((1, 0, ""))
    tokens(w, 1)


@bad("tokens-rewound", "an area of a token that a rewind has replaced")
def _(w):
    tokens(w, 2)
    w.commit()
    w.restore(2, "", [AREA])
    tokens(w, 1, 0)


@bad("blob-late", "a BLOB behind the checkpoint of its item")
def _(w):
    w.restore(1, "", [1])
    w.commit((1, 0, ""))
    w.blob(0, 0, b"x")


@bad("reference-itself", "a reference to the item itself")
def _(w):
    w.restore(1, "", [1, (1, 0, 0)])
    w.blob(0, 0, b"x")


@bad("reference-late", "a reference to a later item")
def _(w):
    w.restore(1, "", [(1, 1, 0)])
    w.restore(1, "", [1])
    w.blob(1, 0, b"x")


@bad("reference-outside", "a reference past the literal bytes of an item")
def _(w):
    w.restore(1, "", [3])
    w.restore(1, "", [(2, 0, 2)])
    w.blob(0, 0, b"xyz")


@bad("reference-of-reference", "a reference to bytes that are a reference")
def _(w):
    w.restore(1, "", [3])
    w.restore(1, "", [(3, 0, 0)])
    w.restore(1, "", [(3, 1, 0)])
    w.blob(0, 0, b"xyz")
