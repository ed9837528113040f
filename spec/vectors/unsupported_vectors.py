# SPDX-License-Identifier: BSD-3-Clause
"""Archives that are valid but newer than version 1.0 (kvarc-format.md 1.6)."""

from bad_base import (
    G_TENSOR, P, base, chunk, edit, poke, splice, vector)


# -------------------------------------------------------------- unsupported

vector("version-2", "version_major 2", "unsupported")(
    lambda: bytes(base(major=2).out))
vector("version-0", "version_major 0", "unsupported")(
    lambda: bytes(base(major=0).out))
vector("incompat", "feature_incompat bit 2", "unsupported")(
    lambda: bytes(base(incompat=4).out))
vector("incompat-31", "feature_incompat bit 31", "unsupported")(
    lambda: bytes(base(incompat=1 << 31).out))
edit("packed-method", "packing method 2", "IDENTITY", {"method": 2},
     "unsupported")


def extra_frame(number, flags):
    def make():
        w = base({("private", 0): {"type": number, "flags": flags}},
                 close=False)
        w.frame("private", b"")
        w.close()
        return bytes(w.out)
    return make


vector("frame-critical", "a critical frame of a type not known",
       "unsupported")(extra_frame(0x7fff, 1))
vector("frame-private", "a critical frame of private use", "unsupported")(
    extra_frame(0x8001, 1))
edit("dtype", "dtype 192", "GEOMETRY", poke(G_TENSOR + 3, 192), "unsupported")
edit("axes", "axes head, token, channel", "GEOMETRY",
     splice(G_TENSOR + 5, 4, b"\1\1\0\0"), "unsupported")
edit("axes-4", "four axes", "GEOMETRY",
     splice(G_TENSOR + 4, 1, b"\4\4\1"), "unsupported")
edit("axis-token", "a token axis with an extent", "GEOMETRY",
     poke(G_TENSOR + 6, 5), "unsupported")
edit("pairing", "rope pairing 2", "GEOMETRY", poke(1, 2), "unsupported")
chunk("codec-17", "codec 17", 24, 17, answer="unsupported")
edit("params-codec", "PARAMS of codec 17", "PARAMS", poke(8, 17),
     "unsupported")
edit("table-set", "grid table set 255", "PARAMS", poke(P + 1, 255),
     "unsupported")
edit("piece-type", "piece type 3", "RESTORE", poke(6, 3), "unsupported")


@vector("predictor-parameters", "kind 0 with parameters")
def _():
    w = base(close=False)
    w.frame("PREDICTOR", b"\0\1a")
    w.close()
    return bytes(w.out)


@vector("short-predictor", "content ends a byte early")
def _():
    w = base(close=False)
    w.frame("PREDICTOR", b"\0")
    w.close()
    return bytes(w.out)
