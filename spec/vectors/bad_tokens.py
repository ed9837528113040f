# SPDX-License-Identifier: BSD-3-Clause
"""Archives with token ids that no model has coded so (tokens.md)."""

import bad_base
import enc_gguf
from bad_base import poke
from bad_transformer import session
from enc_fields import Random
from good_tokens import worded

# Content of the SEGMENT: track, t0, n, flags, runs, first, count; then the
# check (8), code_bytes (1) and the code.
FLAGS, CHECK, SIZE, CODE = 3, 7, 15, 16


def code_of(content, code_bytes):
    """The content with another code."""
    return content[:SIZE] + bytes([len(code_bytes)]) + code_bytes


def vector(name, text, answer="data", edits=None, change=None, data=None,
           chunks=True, beside=None, **options):
    """Two segments of 3 and 2 tokens; change: of their flags and codes."""
    def make():
        s = session(edits, data or worded(), codes_ids=True, **options)
        for n in (3, 2):
            if change:
                change(s, n)
            s.segment(n, None, [7, 3, 8][:n])
            for number in range(len(s.tensors)):
                s.model(number) if chunks else s.raw(number)
            s.w.commit()
        model = beside or data
        made = s.w.close()
        return (made, {".gguf": model}) if model else made
    bad_base.vector("transformer-tokens-" + name, text, answer)(make)


def code(name, text, change, answer="data", count=0):
    vector(name, text, answer, {("SEGMENT", count): change}, chunks=False)


code("flags", "ids that are coded and not there", poke(FLAGS, 2))
code("flags-4", "a reserved flag of a SEGMENT with ids that are coded",
     poke(FLAGS, 7))
code("no-check", "a SEGMENT that ends in the check", lambda c: c[:CHECK + 7])
code("long", "a code of 27 bytes for 3 ids",
     lambda c: code_of(c, bytes(26) + b"\1"))
code("after", "a byte after the code that is not needed", lambda c:
     code_of(c, (c[CODE:] + bytes(26))[:25] + b"\1"))
code("zero", "a code that ends with a byte 0", lambda c: code_of(
    c, c[CODE:] + b"\0"))
code("check", "another check of the ids", lambda c: poke(
    CHECK, c[CHECK] ^ 1)(c), "predictor")
code("bit", "another bit in the code", lambda c: poke(
    CODE, c[CODE] ^ 1)(c), "predictor")
code("empty", "no code where there was one", lambda c: code_of(c, b""),
     "predictor", 1)
code("cut", "a code that is shorter than its code_bytes", lambda c: c[:-1])


def plain(s, n):
    """The first segment has its ids as they are."""
    s.codes = n == 2


vector("no-ids", "ids that are coded behind a segment without any",
       edits={("SEGMENT", 0): lambda c: poke(FLAGS, 0)(c[:CHECK])},
       change=plain, chunks=False)
vector("word", "ids that are coded behind one that is not a word",
       edits={("SEGMENT", 0): poke(CHECK + 1, 1)}, change=plain, chunks=False)
vector("announced", "ids that are coded, and no PREDICTOR that says so",
       edits={("PREDICTOR", 0): lambda c: poke(1, c[1] - 16)(
           poke(2, c[2] & 7)(c[:38] + c[54:]))}, chunks=False)
vector("head", "the model at hand has another head", "predictor",
       edits={("PREDICTOR", 0): lambda c: poke(38, c[38] ^ 1)(c)},
       chunks=False)
vector("headless", "the model at hand has no head", "predictor",
       predictor_fields={"flags": 1 | 2 | 8}, chunks=False,
       beside=enc_gguf.gated(
           Random(410), "llama", [enc_gguf.BF16], width=16, heads=2, kv=1,
           channels=8, ffn=24, words=40))
vector("position", "a token at a position that the model does not have",
       edits={("SEGMENT", 0): poke(5, 94)}, chunks=False,
       data=enc_gguf.gpt2(Random(413), head=True))
vector("rotary", "ids that are coded, keys that do not turn, of a model that "
       "turns them", "predictor", rotary=0, chunks=False)


def again(s, n):
    if n == 2:
        s.predict_with(5)


vector("later", "ids that are coded behind a PREDICTOR that comes after the "
       "first segment", "unsupported", change=again, chunks=False)
