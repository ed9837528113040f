# SPDX-License-Identifier: BSD-3-Clause
"""The rules of the specification and what shows each.

A rule is item n of the numbered list of a section of kvarc-format.md (R10.4 is
item 4 of the list of section 10) or of frames.md (R12.4), or a mark in a
sentence ([R7.1], of codecs/rans.md [R-rans.1]). Every sentence with MUST is a
rule or has a mark, and every rule has a row here: vectors, or tests by their
path. README.md has the table.
"""

import os
import re

RULES = {
    "1.2": [
        "bad-varint-not-minimal",
        "bad-varint-53 bad-varint-too-long",
    ],
    "1.3": ["good-metadata"],
    "1.5": [
        "bad-packed-zstd-longer bad-packed-zstd-shorter bad-chunk-zstd-size "
        "bad-had-exact-long bad-transformer-predicted-long",
        "bad-packed-zstd-dictionary good-zstd-forms",
        "bad-packed-zstd-window bad-packed-zstd-single",
        "bad-packed-zstd-checksum good-zstd-forms",
    ],
    "1.7": [
        "bad-superblock-reserved bad-frame-flags bad-frame-padding "
        "bad-segment-flags bad-chunk-reserved bad-chunk-mask-flags "
        "bad-chunk-mask-padding bad-chunk-section-padding "
        "bad-chunk-plane-padding bad-commit-flags bad-chain-index-flags",
    ],
    "1.8": [
        "tests/vectors.sh",
        "bad-frame-check bad-chunk-raw-check tests/flips.c "
        "tests/flips_vectors.c",
        "fuzz/target_decode.c fuzz/target_sealed.c tests/flips.c",
        "tests/vectors.sh tests/flips.c tests/flips_vectors.c",
    ],
    "3.2": [
        "bad-frame-header-check",
        "bad-frame-payload-size bad-frame-decoded-size "
        "tests/hostile_memory.sh",
        "bad-frame-check",
    ],
    "3.3": [
        "bad-frame-not-critical bad-frame-critical bad-frame-parity-critical "
        "bad-frame-encrypted-skipped bad-profile-critical",
    ],
    "3.4": [
        "bad-order-no-geometry bad-order-two-geometries",
        "bad-order-restore-in-segment bad-order-restore-behind-chunk "
        "good-items-late",
        "bad-order-blob-early",
        "bad-profile-interrupted bad-profile-alone",
        "bad-order-params-late",
        "bad-order-chunk-after-commit",
        "bad-order-value-first bad-order-chunk-twice "
        "bad-order-chunk-missing good-order",
        "bad-order-no-commit good-commits",
        "bad-footer-uncommitted good-appended",
        "bad-cut-after-chunk bad-cut-after-geometry good-open",
    ],
    "4.2": ["bad-geometry-rotary-wide"],
    "5.2": [
        "bad-linear-params bad-linear-earlier bad-linear-kind-0 "
        "bad-transformer-codec-7",
        "bad-transformer-kind-1 bad-transformer-earlier",
        "bad-profile-gap bad-profile-overlap bad-profile-longer "
        "bad-profile-shorter",
        "bad-profile-empty",
        "bad-predictor-digest",
        "predictor-missing predictor-other predictor-layer",
    ],
    "5.3": [
        "bad-segment-chain-flags",
        "bad-chain-behind-none",
        "bad-chain-value bad-chain-first bad-chain-rewind good-chains "
        "good-rewind",
        "bad-chain-identity bad-chain-namespace",
        "tests/unit/test_session.c",
    ],
    "6.1": ["bad-segment-run-not-maximal"],
    "7": [
        "bad-chunk-raw-check bad-streams-raw-check "
        "bad-streams-raw-check-whole",
        "bad-streams-check bad-streams-checks-exchanged bad-streams-checks-0",
        "bad-chunk-segment bad-chunk-n bad-chunk-t0 bad-linear-params "
        "bad-klt-params bad-transformer-params",
    ],
    "8": [
        "bad-chunk-params bad-chunk-params-heads bad-chunk-codec",
        "bad-index-copy-itself bad-index-copy-later good-params-copy",
    ],
    "9.3": ["bad-index-previous bad-index-previous-itself good-indexes"],
    "9.4": [
        "tests/unit/test_salvage.c tests/flips.c",
        "tests/unit/test_salvage.c tests/unit/test_predict.c",
        "good-params-copy good-params-copy-other tests/unit/test_salvage.c "
        "tests/unit/test_predict.c",
        "tests/unit/test_salvage.c tests/unit/test_predict.c",
        "tests/flips.c tests/flips_vectors.c",
        "tests/unit/test_salvage.c tests/cli/cases/lost.sh",
    ],
    "10": [
        "bad-restore-size good-restore-slot good-restore-blocks",
        "bad-restore-literal-0",
        "bad-restore-block-0",
        "bad-restore-tensor bad-restore-other-track",
        "bad-restore-outside bad-restore-outside-block "
        "bad-restore-huge-stride",
        "bad-restore-views good-restore-holes",
        "bad-restore-track bad-restore-tokens bad-items-tokens "
        "bad-items-tokens-rewound good-items-turns",
        "bad-blob-offset bad-blob-item good-restore-opaque",
        "bad-blob-short bad-blob-long bad-items-blob-late",
        "bad-blob-empty",
        "bad-items-reference-itself bad-items-reference-late "
        "bad-items-reference-outside bad-items-reference-of-reference "
        "good-items-turns",
        "good-restore-holes tests/reference/area_bytes.py",
    ],
    "10.1": [
        "good-restore-names tests/cli/cases/unsafe_names.sh",
        "good-restore-names tests/cli/cases/unsafe_names.sh",
        "good-restore-names tests/cli/cases/unsafe_names.sh",
        "tests/cli/cases/unpack_links.sh",
        "good-restore-two-names tests/cli/cases/unsafe_names.sh",
        "good-restore-opaque tests/cli/cases/folders.sh",
    ],
    "12": [
        "bad-frame-encrypted bad-frame-key",
        "bad-encrypted-not bad-encrypted-plain bad-encrypted-plain-index "
        "bad-encrypted-footer",
        "bad-encrypted-no-key bad-encrypted-key-late "
        "good-encrypted-passphrase",
        "bad-encrypted-key-passes-0 bad-encrypted-key-passes-65 "
        "bad-encrypted-key-memory-7 bad-encrypted-key-memory-huge "
        "bad-encrypted-key-salt good-encrypted-slots",
        "bad-encrypted-key-file-id",
        "key-encrypted-missing key-encrypted-other "
        "key-encrypted-passphrase-other bad-encrypted-key-tag "
        "good-encrypted-slots",
        "bad-encrypted-short",
        "bad-encrypted-inner-footer bad-encrypted-inner-encrypted "
        "bad-encrypted-inner-critical bad-encrypted-inner-reserved "
        "unsupported-encrypted-inner-new good-encrypted-skipped",
        "bad-encrypted-tag bad-encrypted-bit bad-encrypted-type "
        "bad-encrypted-moved bad-encrypted-sequence "
        "bad-encrypted-decoded-bytes bad-encrypted-other-file",
        "bad-encrypted-decoded",
        "good-parity good-parity-nonsense",
        "bad-parity-reserved bad-parity-row bad-parity-matrix "
        "bad-parity-long bad-parity-unaligned bad-parity-empty",
        "bad-parity-overlap bad-parity-order bad-parity-behind",
        "bad-parity-groups-next",
        "bad-parity-check bad-parity-chunk bad-parity-rows-three",
        "bad-frame-storeref",
        "bad-storeref-t0 bad-storeref-no-commit bad-storeref-early "
        "bad-storeref-rewind-t0 good-storeref-rewind",
        "bad-storeref-none bad-storeref-many bad-storeref-n-0 "
        "bad-storeref-n-257 bad-storeref-flags",
        "bad-storeref-bytes",
        "store-storeref-missing store-storeref-nothing "
        "store-storeref-digest store-storeref-ids store-storeref-dtype",
        "bad-storeref-chain bad-storeref-rewind-chain good-storeref-chain "
        "good-storeref-rewind",
        "bad-storeref-chunk bad-storeref-repeat bad-storeref-rewind-repeat",
    ],
    "-profile": [
        "bad-profile-file-digest bad-predictor-digest",
        "bad-model-rotary-wide bad-model-basis-rotary",
        "bad-model-lower-kind bad-model-same-kind bad-model-scale-kind "
        "bad-model-basis-lower-missing",
    ],
    "-klt": [
        "bad-klt-codec-7",
        "predictor-klt-layer predictor-klt-channels predictor-klt-shard "
        "predictor-klt-no-rope",
    ],
    "-linear": [
        "predictor-layer predictor-heads predictor-channels "
        "predictor-no-rope predictor-linear-role predictor-linear-shard "
        "predictor-linear-shard-first",
    ],
    "-lossy": [
        "tests/vectors.sh tests/unit/test_lossy.c",
        "bad-had-params-rope bad-had-params-rope-values",
        "tests/unit/test_salvage.c",
    ],
    "-model": ["predictor-transformer-check predictor-transformer-loop"],
    "-predicted": [
        "bad-transformer-predicted-repeat",
        "predictor-transformer-predicted-check "
        "predictor-transformer-predicted-check-patch",
    ],
    "-rans": [
        "bad-chunk-state bad-streams-words-left bad-streams-words-missing",
        "bad-chunk-state-low bad-streams-state bad-vq-state",
        "bad-chunk-one-stream-size bad-streams-size-one "
        "bad-linear-stream-size bad-transformer-stream-size",
        "bad-chunk-plane-padding bad-chunk-plane-constant-padding",
    ],
    "-raw": ["bad-chunk-raw-long bad-chunk-raw-short"],
    "-repeat": [
        "bad-transformer-repeat bad-transformer-predicted-repeat",
    ],
    "-tokens": [
        "predictor-transformer-tokens-check predictor-transformer-tokens-bit",
    ],
}

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
# Pages in the order of the table: path in spec/, prefix of marks.
PAGES = [("kvarc-format.md", ""), ("frames.md", "")] + [
    (name + ".md", "-" + name)
    for name in ("profile", "arithmetic", "errata", "examples")]


def pages():
    """(path, prefix) of all pages."""
    folder = os.path.join(TOP, "spec", "codecs")
    return PAGES + [
        ("codecs/" + name, "-" + name[:-3])
        for name in sorted(os.listdir(folder)) if name.endswith(".md")]


def blocks(text):
    """(section, item or None, text) of each paragraph and list item that is
    not code; sections by the numbers that headings and paragraphs begin with."""
    section, out = "", []
    for part in re.sub(r"^```.*?^```$", "\n", text, flags=re.M | re.S).split("\n\n"):
        for piece in re.split(r"\n(?=\d+\. |- |\|)", part.strip("\n")):
            head = re.match(r"(?:## )?(\d+(?:\.\d+)?)\.? (?=\D)", piece)
            if head and (piece.startswith("#") or "." in head[1]):
                section = head[1]
            item = re.match(r"(\d+)\. ", piece)
            out.append((section, item and int(item[1]), " ".join(piece.split())))
    return out


def rules_of(path, prefix):
    """The rules of a page, and its sentences with MUST that state none."""
    with open(os.path.join(TOP, "spec", path)) as f:
        parts = blocks(f.read())
    rules, unmarked = [], []
    for section, item, text in parts:
        if path == "kvarc-format.md" and not section:
            continue            # what the words mean stands before section 1
        if path == "frames.md":
            section = "12"
        if item and not prefix:
            rules.append("R%s.%d" % (section, item))
        rules += re.findall(r"(?<=\[)R[^]]+(?=\])", text.replace("`", ""))
        if item and not prefix:
            continue
        for sentence in re.split(r"(?<=[.;])[\"*)]* (?=[A-Za-z`*(\"])", text):
            if "MUST" in sentence and "[R" not in sentence:
                unmarked.append("%s: %s" % (path, sentence))
    return rules, unmarked


def stated():
    """All rules in the order of the pages. A sentence with MUST that is none, a
    rule that is there twice or a list that does not count from 1 ends the
    program."""
    out = []
    for path, prefix in pages():
        rules, unmarked = rules_of(path, prefix)
        assert not unmarked, "no rule, add a mark: " + "; ".join(unmarked)
        out += rules
    counts = {}
    for rule in out:
        section, n = rule.rsplit(".", 1)
        counts.setdefault(section, []).append(int(n))
    for section, numbers in counts.items():
        assert numbers == list(range(1, len(numbers) + 1)), (section, numbers)
    return out


def rows(vectors):
    """(rule, what shows it) for README.md. vectors: names of all files. A rule
    that nothing shows, or that is not in the text, ends the program."""
    shown = {"R%s.%d" % (section, n): names.split()
             for section, each in RULES.items()
             for n, names in enumerate(each, 1)}
    order = stated()
    assert set(order) == set(shown), set(order) ^ set(shown)
    for rule, names in shown.items():
        assert names, rule
        for name in names:
            there = os.path.exists(os.path.join(TOP, name)) \
                if "/" in name else name + ".kva" in vectors
            assert there, "%s: no %s" % (rule, name)
    return [(rule, ", ".join(shown[rule])) for rule in order]
