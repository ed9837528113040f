# SPDX-License-Identifier: BSD-3-Clause
"""Archives whose tracks fork (kvarc-format.md 6.3): GOOD has the valid ones,
the others are added to bad_base."""

from bad_base import poke, vector
from enc_codecs import GridParams
from enc_fields import BF16, F16, I8, U8, Random, pack_elements, varint
from enc_linear import Profile
from frame_vectors import NAMESPACE, STORE, stored_archive, stored_segments
from enc_frames import storeref
from good_linear import level3_models
from good_tokens import coded, exact, worded
from kvarc_enc import KEY, VALUE, Writer, linked, tensor
from linear_data import Session, cache
from transformer_data import archive, tiny
from vector_data import any_bits, frequencies, normal, put

GOOD = []


def good(name, text):
    def add(make):
        GOOD.append((name, text, make))
        return make
    return add


def tracks(n=4, edits=None, **superblock):
    """Keys of i8 and values of u8, whose numbers have another order on odd
    tracks, and the tracks lie mixed."""
    w = Writer(edits=edits, **superblock)
    w.geometry([], [(0, 0, "")] * n, [
        tensor(0, kind, (I8, U8)[kind], 2 - kind, 3 + kind, track=track)
        for kind in (KEY, VALUE) for track in range(n)
        for kind in [kind ^ track & 1]])
    w.identity([("model", "m")])
    w.chains = True
    return w


def append(w, track, n, t0=None, label=None, heads=False):
    """Tokens, and a COMMIT; heads: chunks of one head."""
    rng = Random(700 + w.sequence)
    w.segment(track, n, ids=[rng.bits(16) for _ in range(n)], t0=t0)
    order = sorted((t["kind"], i) for i, t in enumerate(w.geometry_parts[2])
                   if t["track"] == track)
    for _, i in order:
        t = w.geometry_parts[2][i]
        parts = t["heads"] if heads else 1
        for first in range(parts):
            count = t["heads"] // parts
            w.chunk(i, any_bits(rng, U8, n * count * t["channels"]),
                    first=first, heads=count)
    commit(w, label)


def commit(w, label=None):
    w.commit(label and (max(w.states, default=0) + 1, 0, label))


@good("fork", "forks at the end of a segment, inside of one, of a fork, and in "
      "place of tokens; chain values behind them; a checkpoint behind each; "
      "tensors of other numbers, and chunks of one head")
def _():
    w = tracks()
    append(w, 0, 200)
    append(w, 0, 20, heads=True)
    for i, (track, source, n) in enumerate((
            (1, 0, 200), (2, 0, 210), (3, 2, 205), (1, 3, 204), (2, 1, 7),
            (0, 3, 1))):
        w.fork(track, source, n)
        commit(w, "fork %d" % i)
        append(w, track, 3 + i, label="behind %d" % i)
    w.close()
    return w


@good("fork-rewind", "forks, and then rewinds of both tracks: into a segment "
      "that is shared, to token 0; forks of tracks with cut segments; a "
      "checkpoint behind each")
def _():
    w = tracks()
    append(w, 0, 40)
    append(w, 0, 30)
    w.fork(1, 0, 60)
    append(w, 0, 5, t0=50, label="from")        # what is shared is cut
    append(w, 1, 4, t0=55, label="track")
    w.fork(2, 0, 53)
    w.fork(3, 1, 57)
    append(w, 2, 2, t0=30, label="of a cut one")
    append(w, 0, 6, t0=0, label="replaced")
    append(w, 3, 3, t0=56)
    w.fork(0, 3, 57)
    append(w, 3, 1, t0=0)
    append(w, 0, 2, label="the end")
    w.index()
    w.footer()
    return w


@good("fork-repeat", "codec 3 on both sides of a fork: chunks of tokens that a "
      "track took are repeated, and tokens that repeat others are taken")
def _():
    w = Writer()
    w.geometry([], [(0, 0, "")] * 3, [
        tensor(0, KEY, U8, 1, 2, track=i) for i in (1, 0, 2)])
    rows, at = [[3, 9] * 4, [4, 1] * 4], []
    for values in rows:
        w.segment(0, 4)
        w.chunk(1, values)
        at.append((w.sequence - 1, w.frames[-1][1]))
        w.commit()
    w.segment(0, 4)
    w.chunk(1, rows[0], 3, of=at[0])
    w.commit()
    w.fork(1, 0, 11)
    w.segment(1, 4)
    w.chunk(0, rows[1], 3, of=at[1])
    w.commit()
    w.fork(2, 1, 13)
    w.close()
    return w


@good("fork-params", "codec 5 with rotation: the PARAMS are of a tensor of the "
      "other track, and of tokens that a fork took once more")
def _():
    rng, rope = Random(701), (0, 4, frequencies(4))
    w = Writer()
    w.geometry([rope], [(0, 0, "")] * 3, [
        tensor(0, KEY, BF16, 1, 6, track=i, rope=1) for i in range(3)])
    p = GridParams([-4] * 6, [16] * 6, True)
    for track, n in ((0, 40), (1, 9), (2, 1)):
        if track:
            w.fork(track, track - 1, 30 + track)
        w.segment(track, n, positions=range(5 * track, 5 * track + n))
        put(w, track, normal(rng, BF16, n, 6, 1.0, 0.5), p)
        w.commit()
    w.close()
    return w


@good("fork-open", "FORK frames one after another, with extension fields, in "
      "place of each other and of segments; a track without tensors; an INDEX "
      "between; the end is a COMMIT")
def _():
    w = Writer()
    w.geometry([], [(0, 0, "")] * 4, [
        tensor(0, KEY, U8, 1, 2, track=0), tensor(0, KEY, U8, 1, 2, track=1)])
    w.segment(0, 3)
    w.chunk(0, [1, 2, 3, 4, 5, 6])
    w.commit()
    w.segment(2, 250)
    w.commit()
    w.segment(1, 9)
    w.chunk(1, range(18))
    w.commit()
    w.fork(1, 0, 1)
    w.fork(1, 0, 3, [(5, b"later"), (70, b"")])
    w.fork(3, 2, 250)
    w.index()
    w.fork(2, 3, 2)
    w.commit()
    w.segment(2, 1)
    w.commit()
    return w


@good("fork-items", "items of tokens that a fork took; a FORK behind a "
      "checkpoint begins a set")
def _():
    w = tracks(2)
    append(w, 0, 4)
    w.fork(1, 0, 3)
    number = next(i for i, t in enumerate(w.geometry_parts[2])
                  if t["track"] == 1 and t["kind"] == KEY)
    raw = next(raw for _, head, _, raw in w.digests
               if head.split()[0] == str(number))
    w.restore(2, "slot", [(18, 1, 0, 3, [(number, 0, 6, 6, 0, 1)]), 2])
    w.blob(0, 0, b"ab")
    w.item(raw[:18] + b"ab")
    w.commit((1, 0, "with a file"))
    w.fork(1, 0, 2)
    w.commit((2, 0, "without"))
    w.close()
    return w


@good("storeref-fork", "a fork of segments of a store, and a segment with a chain "
      "value behind it")
def of_store():
    w = Writer(incompat=2)
    w.geometry([], [(0, 0, "")] * 2,
               [dict(t, track=i) for i in range(2) for t in STORE])
    w.identity([("model", "m"), ("namespace", NAMESPACE)])
    segments = [x[:3] + (True,) for x in stored_segments()[:2]]
    w.keys = storeref(w, 0, segments)
    w.commit()
    w.fork(1, 0, len(segments[0][0]) + 1)
    w.segment(1, 2, ids=[3, 4], chain=True)
    rng = Random(702)
    for i, v in ((2, any_bits(rng, U8, 16)), (3, normal(rng, BF16, 2, 3))):
        w.chunk(i, v)
    w.close()
    return w


def objects():
    return {"object-%s-%s.kva" % (NAMESPACE, key.hex()): stored_archive()
            for key in of_store().keys}


@good("linear-fork", "codec 7 below a fork, and behind it with another "
      "PREDICTOR")
def _():
    rng, freq = Random(703), frequencies(4)
    p = Profile(level3_models(rng, 2, 1, 4, 4), [freq])
    s = Session(rng, p, cache(BF16, 2, 1, 4), (0, 4, freq), tracks=2)
    for n in (33, 5):
        s.segment(n)
        s.all()
    s.predict_with(3)
    s.w.fork(1, 0, 35)
    s.w.commit()
    s.w.segment(1, 2)
    for i, t in enumerate(s.tensors):
        s.w.chunk(i + len(s.tensors), range(2 * t["channels"]))
    s.w.close()
    return s.w


@good("transformer-fork", "codecs 8 and 9 behind a fork into a segment: the "
      "model has seen the tokens that the track took")
def _():
    s = archive(704, tiny(), 6, [9, 6], close=False, tracks=2)
    s.w.fork(1, 0, 12)
    s.run.rewind(12)
    s.track = 1
    s.segment(4)
    s.all()
    s.segment(3)
    for number in range(len(s.tensors)):
        s.predicted(number)
    s.w.close()
    return s.w, {}


@good("transformer-tokens-fork", "coded token ids, and codec 9, behind forks: "
      "of a track, of that fork")
def _():
    s = coded(705, worded(), 6, tracks=3)
    s.w.chains = True
    exact(s, 9, 5)
    for track, n in ((1, 11), (2, 12)):
        s.w.fork(track, track - 1, n)
        s.run.rewind(n)
        s.track = track
        exact(s, 3)
    s.w.close()
    return s.w, {}


# ------------------------------------------------------------- invalid ones

def forked(edits=None, n=3, change=None, tensors=None, behind=True):
    """One track of 4 tokens, a fork of n of these, a token behind them."""
    w = Writer(edits=edits)
    tensors = tensors or [tensor(0, kind, (BF16, U8)[kind], 2, 2, track=i)
                          for i in range(2) for kind in (KEY, VALUE)]
    w.geometry([(0, 2, frequencies(2))], [(0, 0, "")] * 2, tensors)
    w.identity([("model", "m")])
    w.chains = True
    append_all(w, 0, 4)
    if change:
        change(w)
    w.fork(1, 0, n)
    w.commit()
    if behind:
        append_all(w, 1, 1)
    w.index()
    w.footer()
    return bytes(w.out)


def append_all(w, track, n, **segment):
    w.segment(track, n, ids=[5] * n, **segment)
    for _, _, i, t in sorted(
            (t["layer"], t["kind"], i, t)
            for i, t in enumerate(w.geometry_parts[2])
            if t["track"] == track):
        w.chunk(i, range(n * t["heads"] * t["channels"]))
    w.commit()


def bad(name, text, **how):
    vector("fork-" + name, text)(lambda: forked(**how))


def fields_of(*numbers):
    return {("FORK", 0): lambda _: b"".join(map(varint, numbers))}


bad("track", "a FORK of a track that is not there",
    edits=fields_of(2, 0, 3), behind=False)
bad("from", "a FORK that takes tokens of a track that is not there",
    edits=fields_of(1, 2, 3))
bad("itself", "a FORK that takes tokens of its own track",
    edits=fields_of(0, 0, 3), behind=False)
bad("nothing", "a FORK of no tokens", edits=fields_of(1, 0, 0), behind=False)
bad("more", "a FORK of more tokens than there are", edits=fields_of(1, 0, 5),
    behind=False)
bad("left", "a FORK of more tokens than a rewind has left", behind=False,
    edits=fields_of(1, 0, 4), change=lambda w: append_all(w, 0, 1, t0=2))
bad("cut", "a FORK that ends inside of a field",
    edits={("FORK", 0): lambda content: content[:2]})
bad("long", "a byte behind the last field of a FORK",
    edits={("FORK", 0): lambda content: content + b"\0"})
bad("critical", "a FORK that is not critical",
    edits={("FORK", 0): {"flags": 0}})
bad("commit", "a COMMIT with the tokens before a FORK",
    edits={("COMMIT", 1): lambda content: content[:18] + b"\0" + content[19:]},
    behind=False)
bad("index", "the INDEX entry of a FORK of fewer tokens", edits={
    ("INDEX", 0): lambda content: content.replace(
        b"\1\0\3", b"\1\0\2", 1)})


@vector("fork-in-segment", "a FORK between a SEGMENT and its chunks")
def _():
    w = tracks(2)
    append(w, 0, 2)
    w.segment(0, 1, ids=[1])
    w.fork(1, 0, 2)
    for _, i in sorted((t["kind"], i) for i, t in enumerate(
            w.geometry_parts[2]) if t["track"] == 0):
        t = w.geometry_parts[2][i]
        w.chunk(i, range(t["heads"] * t["channels"]))
    w.close()
    return bytes(w.out)


@vector("fork-t0", "a SEGMENT behind the tokens that a FORK took")
def _():
    w = tracks(2)
    w.chains = False
    append(w, 0, 4)
    w.fork(1, 0, 2)
    append(w, 1, 1, t0=3)
    w.index()
    w.footer()
    return bytes(w.out)


@vector("fork-chain", "a chain value behind a FORK that cuts a segment, with the "
        "number of the track that took it")
def _():
    def make(named):
        w = tracks(2)
        append(w, 0, 4)
        w.fork(1, 0, 3)
        t0, n, before, positions, ids, *_ = w.state[1][0]
        cut = linked(before, named, positions[:3], ids[:3])
        w.segment(1, 1, ids=[7], chain=linked(cut, 1, [3], [7]))
        for _, i in sorted((t["kind"], i) for i, t in enumerate(
                w.geometry_parts[2]) if t["track"] == 1):
            t = w.geometry_parts[2][i]
            w.chunk(i, range(t["heads"] * t["channels"]))
        w.close()
        return w
    assert make(0).state[1][-1][5] == make(0).before(1)
    return bytes(make(1).out)


def pairs(name, text, **fields):
    """The value of track 1 has other fields."""
    made = [tensor(0, kind, (BF16, U8)[kind], 2, 2, track=i)
            for i in range(2) for kind in (KEY, VALUE)]
    changed = dict(made[3], **fields)
    vector("fork-pairs-" + name, "tensors that are no pairs: " + text)(
        lambda: forked(tensors=made[:3] + [changed], behind=False))


pairs("layer", "the layer", layer=1)
pairs("kind", "the kind", kind=3)
pairs("role", "the role", role=1)
pairs("dtype", "the dtype", dtype=I8)
pairs("heads", "the heads", heads=1, total_heads=1)
pairs("channels", "the channels", channels=3)
pairs("rope", "the rope", rope=1)
pairs("shard", "the first head", first_head=1, total_heads=3)
pairs("flags", "the flags", flags=2)
pairs("source-type", "the source type", source_type=256)
pairs("of", "what it belongs to", of=3, group=1)
vector("fork-pairs-missing", "tracks with more and with fewer tensors")(
    lambda: forked(tensors=[
        tensor(0, KEY, BF16, 2, 2), tensor(0, VALUE, U8, 2, 2),
        tensor(0, KEY, BF16, 2, 2, track=1)], behind=False))
