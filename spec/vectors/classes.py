# SPDX-License-Identifier: BSD-3-Clause
"""Which invalid files a reader must refuse, and which only a verifier
(kvarc-format.md 1.8).

A reader must refuse a file when it would otherwise release other bytes, miss
bytes or leave its bounds. The faults below are of fields that repeat others, of
order, of reserved bits, of padding and of limits that no decoding depends on.
"""

import re

VERIFIER = [
    # 1.2, 1.3, 1.7: encodings of numbers and strings, bytes behind content
    r"varint-(not-minimal|too-long)", r"string-too-long", r"long-.*",
    r".*-flags(-4)?", r".*padding", r".*-reserved", r".*-(after|garbage)",
    r"(predictor|profile-content|profile-file|linear|transformer|near)-longer",
    r".*(raw|repeat|blob|params|rates)-long",
    r"(tsc|vq)-(params-)?long", r"packed-zstd-(twice|skippable|window|single)",
    r".*after-patch", r".*-predicted-after", r"had-after-exact",
    # 3: frames
    r"frame-(sequence|not-critical|critical|type-0)",
    r"frame-(parity-critical|pad-critical|encrypted-skipped)", r"frame-removed", r"garbage-.*",
    r"profile-critical", r"(commit|footer)-decoded-bytes",
    r"order-(two-geometries|value-first|chunk-twice|no-commit|params-late)",
    r"order-(chunk-after-commit|restore-.*|blob-early)",
    # 1.9, 4: extension fields, what belongs to what
    r"(chunk-)?extensions-(cut|order|twice|number|of)(-.*)?", r"belongs-.*",
    # 4 to 6: fields that decoding does not need
    r"geometry-(ropes-65|window|shard|total-heads.*|source-type|layer)",
    r"identity-.*", r"chain-.*", r"segment-(t0|run-empty|run-not-maximal)",
    r"predictor-(where|parameters)", r"profile-pairs-many",
    r"profile-pairs-order", r"profile-(no-model|model-missing)",
    # 7, 8: what repeats the SEGMENT, PARAMS or PREDICTOR before
    r"chunk-(segment|t0|params-heads|raw-(params|stream-size|section))",
    r"chunk-decoded-bytes",
    r"chunk-(one-)?stream-size", r"chunk-section-(short|long|huge)",
    r"(linear|transformer)-stream-size", r"chunk-one-check",
    r"streams-(check|checks-exchanged|size-one|repeat-.*|words-left|state)",
    r"streams-words-no-padding",
    r"chunk-(plane-(long|cut|value|reserved-2|constant-bytes))",
    r"chunk-(mask-empty|mask-row-empty|state-low|state-unused)",
    r"repeat-(of-repeat|offset|sequence)", r"params-codec-.+",
    r"params-tables-17",
    r"(linear|klt|transformer)-(params|params-profile|params-segment)",
    r"(linear|transformer)-(earlier|kind-[01])",
    # 9: accelerators
    r"(commit|index|footer)-.*",
    # 10: restored files
    r"restore-(size|literal-0|views)", r"blob-(empty|long)",
    # frames.md: what repeats, reserved fields, order; INDEX
    r"frame-(key|encrypted)", r"encrypted-key-(late|salt|memory|file-id)",
    r"encrypted-(decoded|footer)", r"encrypted-key-(long|memory-.*|passes-.*)",
    r"storeref-(t0|no-commit|early|chain|index|long|bytes)",
    r"storeref-rewind-(t0|chain|index|commit)",
    # profile.md 3: limits
    r"model-(order|level-.*|flags-scope|lower-many|same-many|table-order)",
    r"model-corrects-(low|two)", r"model-basis-(own|scale|same|level-.*)",
    r"profile-file-(reserved|size)",
    # codecs/layers.md: what has one way to be written, and what repeats
    r"layers-(tops-)?byte-.*", r"layers-count-(2|3|4|bytes)-more",
    r"layers-(tops-count|base|base-one-top|params|section-bytes)",
    r"layers-(long|long-4|nothing-(long|size)|one-stream-size)",
    r"layers-(check|checks-exchanged)",
    # codecs/cells.md: counts and bits that no decoding depends on
    r"cells-(second|escapes)-more", r"cells-(bits-.*|words-(left|missing-0))",
    r"cells-(state-unused|params-(tensor|near|own|unused)|section-bytes)",
    r"cells-(long.*|nothing-(long|size)|one-stream-size)",
    r"cells-(check|checks-exchanged)",
    # codecs: limits of numbers, and the end of streams: raw_check tells
    r"had-(generation|step-.*|near.*|params-(nan|infinite)|state-low)",
    r"klt-(generation|step|near)", r"tsc-(generation|most-.*|code.*|step-.*)",
    r"near-state", r"vq-(scale-.*|state)",
    r"state-(longer|head|offset|offset-alone|sequence|of-reference|of-repeat|repeated)",
    r"transformer-tokens-(long|zero)",
]
_pattern = re.compile("bad-(%s)" % "|".join(VERIFIER))


def class_of(name):
    """Of an invalid file: who must refuse it."""
    return "verifier" if _pattern.fullmatch(name) else "reader"
