# SPDX-License-Identifier: BSD-3-Clause
"""Which invalid files a verifier alone must refuse, by the lines V1 to V9 of
kvarc-format.md 1.8. All others every reader must refuse."""

import re

VERIFIER = {
    "V1": [     # how things are written, and bytes behind the last
        r"varint-(not-minimal|too-long)", r"string-too-long",
        r"identity-zero-byte", r"long-(geometry|restore|segment)",
        r"long-(params|chunk)-.*", r"segment-run-(empty|not-maximal)",
        r"(predictor|profile-content|profile-file|linear|transformer|near)-longer",
        r"predictor-parameters", r"(raw|repeat|storeref|encrypted-key)-long",
        r"chunk-(raw-long|zstd-garbage|constant-size|mask-(row-)?empty)",
        r"packed-zstd-(twice|skippable|window|single|garbage)",
        r"(had|klt|streams|transformer|transformer-predicted|had-rates)-after",
        r".*-after-(patch|exact)", r"had-(params|rates)-long", r"fork-long",
        r"had-exact-garbage", r"(tsc|vq)-(params-)?long", r"state-longer",
        r"(layers|cells)-(long.*|nothing-long)", r"layers-(tops-)?byte-.*",
        r"layers-base(-one-top)?", r"transformer-tokens-(long|after|zero)",
    ],
    "V2": [     # reserved bits and bytes, padding, fields without a use
        r".*-flags(-4)?", r".*padding", r".*-reserved(-2)?",
        r"model-flags-scope", r"params-grid-flags", r"transformer-mask",
        r"chunk-raw-(params|stream-size|section)", r"repeat-section", r"chunk-one-check",
        r"chunk-(one-)?stream-size", r"had-stream-size",
        r"chunk-plane-(after|cut|value|long|constant-bytes)",
        r"(linear|transformer|layers-one|cells-one)-stream-size",
        r"streams-size-one", r"chunk-state-unused", r"cells-state-unused",
        r"(layers|cells)-(section-bytes|nothing-size)", r"layers-params",
        r"encrypted-key-(salt|memory)", r"state-(head|offset-alone)",
    ],
    "V3": [     # flags, types, numbers and order of frames
        r"frame-((not-)?critical|parity-critical|pad-critical|type-0)",
        r"frame-(encrypted-skipped|sequence|removed|key|encrypted|storeref)",
        r"profile-critical", r"garbage-.*",
        r"encrypted-(footer|key-late)",
        r"encrypted-inner-(0|footer|parity|encrypted|key|critical)",
        r"order-(two-geometries|value-first|chunk-twice|no-commit)",
        r"order-head-(first|skipped)",
        r"order-(chunk-after-commit|params-late|restore-.*|blob-early)",
        r"storeref-(no-commit|early)", r"fork-(critical|in-segment)",
    ],
    "V4": [     # fields that repeat others
        r"chunk-(segment|t0|params-heads|decoded-bytes)",
        r"segment-t0(-high)?", r"chunk-section-(short|long|huge)",
        r"streams-(check|checks-exchanged)",
        r"(layers|cells)-(check|checks-exchanged)",
        r"(linear|klt|transformer)-(params|params-profile|params-segment)",
        r"(linear|transformer)-(earlier|kind-[01])",
        r"cells-params-(tensor|near)", r"encrypted-(key-)?decoded", r"encrypted-key-file-id",
        r"storeref-(t0|bytes)", r"storeref-rewind-t0", r"fork-t0",
    ],
    "V5": [     # which chunk a repeat or a reference names
        r"repeat-(of-repeat|offset|sequence)", r"streams-repeat-.*",
        r"linear-repeat", r"klt-below-repeat",
        r"state-(offset|sequence|of-reference|of-repeat|repeated)",
    ],
    "V6": [     # COMMIT, INDEX, LIST and FOOTER
        r"commit-(?!flags).*", r"(index|list|footer)-.*",
        r"(short|long)-(commit|index|footer)",
        r"chain-index(-none)?", r"storeref-(rewind-)?index",
        r"storeref-rewind-commit", r"fork-(commit|index)",
    ],
    "V7": [     # what no element depends on
        r"geometry-(ropes-65|window|shard|total-heads.*|source-type|layer)",
        r"geometry-extension", r"chunk-extension", r"varint-53",
        r"(chunk-)?extensions-(cut|order|twice|number|of)(-.*)?",
        r"belongs-.*", r"identity-(order|twice|many.*)",
        r"(short|long)-identity", r"predictor-where",
        r"chain-(value|first|behind-none|rewind|identity|namespace)",
        r"fork-chain",
        r"fork-pairs-(layer|kind|role|rope|shard|source-type|of)",
        r"storeref-(rewind-)?chain", r"params-codec-.+",
        r"cells-params-(own|unused)", r"params-tables-17",
        r"encrypted-key-(memory|passes)-.*",
    ],
    "V8": [     # numbers of a coded chunk that raw_check answers for
        r"(had|klt|tsc)-generation", r"(had-step|had-near[12])-.*",
        r"klt-(step|near)",
        r"had-(params-(nan|infinite))", r"tsc-(most-.*|code.*|step-.*)",
        r"tsc-kappa-high", r"vq-scale-.*", r"(had|chunk)-state-low",
        r"(near|vq|streams)-state", r"streams-words-left",
        r"layers-(tops-count|count-(2|3|4|bytes)-more)",
        r"cells-((second|escapes)-more|bits-.*|words-(left|missing-0))",
        r"model-(order|level-.*|lower-many|same-many|table-order)",
        r"model-corrects-(low|two)", r"model-basis-(own|scale|same|level-.*)",
        r"profile-(pairs-(order|many)|no-model|model-missing|file-size)",
    ],
    "V9": [     # sizes of items
        r"restore-(size|literal-0|views)", r"blob-(empty|long)",
        r"items-tokens",
    ],
}
_lines = {line: re.compile("bad-(%s)" % "|".join(patterns))
          for line, patterns in VERIFIER.items()}


def class_of(name):
    """Of an invalid file: who must refuse it, and the line that says so."""
    found = [line for line, pattern in _lines.items()
             if pattern.fullmatch(name)]
    return "verifier " + found[0] if found else "reader"


def check(names):
    """A pattern of no file, and a file of two lines, end the program."""
    for line, patterns in VERIFIER.items():
        for pattern in patterns:
            assert any(re.fullmatch("bad-(%s)" % pattern, n)
                       for n in names), "%s: nothing is %s" % (line, pattern)
    for n in names:
        lines = [line for line, p in _lines.items() if p.fullmatch(n)]
        assert len(lines) < 2, (n, lines)
