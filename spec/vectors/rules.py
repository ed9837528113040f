# SPDX-License-Identifier: BSD-3-Clause
"""The rules of the specification and what shows each.

A rule is item n of the numbered list of a section of kvarc-format.md (R10.4 is
item 4 of the list of section 10) or of frames.md (R12.4), or a mark in a
sentence ([R7.1], of codecs/rans.md [R-rans.1]). Every sentence with MUST, or
that calls a file "data", is a rule or has a mark, and every rule has a row
here: vectors, or tests by their path. README.md has the table.
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
        "bad-segment-flags bad-chunk-mask-flags "
        "bad-chunk-mask-padding bad-chunk-section-padding "
        "bad-chunk-plane-after bad-commit-flags bad-chain-index-flags "
        "bad-layers-flags bad-layers-absent-flags bad-layers-reserved",
    ],
    "1.8": [
        "tests/vectors.sh",
        "bad-frame-check bad-chunk-raw-check tests/flips.c "
        "tests/flips_vectors.c",
        "fuzz/target_decode.c fuzz/target_sealed.c tests/flips.c",
        "tests/vectors.sh tests/flips.c tests/flips_vectors.c",
        "tests/vectors.sh",
    ],
    "1.9": [
        "good-later good-skipped",
        "good-extensions bad-extensions-cut-segment "
        "bad-extensions-order-segment bad-chunk-extensions-long",
    ],
    "2": [
        "bad-magic bad-nothing bad-magic-cut bad-superblock-nothing "
        "bad-superblock-cut bad-superblock-check unsupported-version-2 "
        "unsupported-incompat bad-superblock-reserved",
        "tests/cli/cases/pre_release.sh tests/vectors.sh",
    ],
    "3.2": [
        "bad-frame-header-check",
        "bad-frame-payload-size bad-frame-decoded-size "
        "tests/hostile_memory.sh",
        "bad-frame-check",
        "bad-frame-place bad-frames-swapped bad-frame-twice "
        "bad-frame-sequence bad-frame-of-another-file",
    ],
    "3.3": [
        "bad-frame-not-critical bad-frame-critical bad-frame-parity-critical "
        "bad-frame-encrypted-skipped bad-frame-pad-critical "
        "bad-profile-critical",
        "bad-frame-type-0",
    ],
    "3.4": [
        "bad-order-no-geometry bad-order-two-geometries",
        "bad-order-restore-in-segment bad-order-restore-behind-chunk "
        "good-items-late",
        "bad-order-blob-early",
        "bad-profile-interrupted bad-profile-alone",
        "bad-order-params-late",
        "bad-order-chunk-after-commit bad-order-chunk-early",
        "bad-order-value-first bad-order-chunk-twice "
        "bad-order-chunk-missing bad-order-head-first "
        "bad-order-head-skipped bad-order-head-twice good-order "
        "good-head-groups",
        "bad-order-no-commit good-commits",
        "bad-footer-uncommitted good-appended",
        "bad-cut-after-chunk bad-cut-after-geometry good-open "
        "tests/cli/cases/compact.sh",
        "bad-list-in-segment",
    ],
    "4": [
        "good-scales bad-belongs-missing bad-belongs-chain "
        "bad-belongs-track bad-belongs-group-small",
    ],
    "4.2": ["bad-geometry-rotary-wide"],
    "5.2": [
        "bad-linear-params bad-linear-earlier bad-linear-kind-0 "
        "bad-transformer-codec-7 good-linear-predictor-between",
        "bad-transformer-kind-1 bad-transformer-earlier "
        "good-transformer-predictor-between",
        "bad-profile-gap bad-profile-overlap bad-profile-longer "
        "bad-profile-shorter",
        "bad-profile-empty",
        "bad-predictor-digest",
        "predictor-missing predictor-other predictor-layer",
    ],
    "5.3": [
        "bad-segment-chain-flags",
        "bad-chain-behind-none",
        "bad-chain-value bad-chain-first bad-chain-rewind bad-fork-chain "
        "good-chains good-rewind good-fork",
        "bad-chain-identity bad-chain-namespace",
        "tests/unit/test_session.c",
    ],
    "6.1": ["bad-segment-run-not-maximal bad-segment-run-empty"],
    "6.3": [
        "bad-fork-in-segment good-fork-open",
        "bad-fork-track bad-fork-from bad-fork-itself",
        "bad-fork-nothing bad-fork-more bad-fork-left good-fork-rewind",
        "bad-fork-pairs-missing bad-fork-pairs-dtype bad-fork-pairs-heads "
        "bad-fork-pairs-rope bad-fork-pairs-of",
    ],
    "7": [
        "bad-chunk-raw-check bad-streams-raw-check "
        "bad-streams-raw-check-whole",
        "bad-streams-check bad-streams-checks-exchanged bad-streams-checks-0 "
        "tests/unit/test_stream_parts.c",
        "bad-chunk-segment bad-chunk-n bad-chunk-t0 bad-linear-params "
        "bad-klt-params bad-transformer-params",
    ],
    "8": [
        "bad-chunk-params bad-chunk-params-heads bad-chunk-codec "
        "bad-cells-params-tensor bad-cells-params-near good-cells-params",
        "bad-params-codec-0 bad-params-codec-3 bad-params-codec-4 "
        "bad-params-codec-7 "
        "bad-params-codec-8 bad-params-codec-9 bad-params-codec-11 "
        "bad-params-codec-14 bad-params-codec-16 bad-cells-params-own "
        "bad-cells-params-unused "
        "unsupported-params-codec",
        "bad-index-copy-itself bad-index-copy-later good-params-copy",
    ],
    "9.2": [
        "bad-list-part bad-list-missing bad-list-segment bad-list-tensor "
        "bad-list-empty",
        "bad-list-twice bad-list-unlisted bad-list-number bad-index-missing "
        "good-lists good-lists-follow good-lists-tracks good-indexes",
        "bad-index-codecs bad-index-codecs-more good-indexes good-lists",
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
        "tests/unit/test_track_forks.c",
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
        "key-encrypted-work good-encrypted-slots",
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
        "store-storeref-digest store-storeref-ids store-storeref-dtype "
        "good-storeref-order",
        "bad-storeref-chain bad-storeref-rewind-chain good-storeref-chain "
        "good-storeref-rewind",
        "bad-storeref-chunk bad-storeref-repeat bad-storeref-rewind-repeat",
    ],
    "-profile": [
        "bad-profile-file-magic bad-profile-file-check "
        "unsupported-profile-file-version unsupported-profile-file-incompat "
        "bad-profile-file-reserved",
        "bad-profile-file-digest bad-predictor-digest",
        "bad-model-rotary-wide bad-model-basis-rotary",
        "bad-model-lower-kind bad-model-same-kind bad-model-scale-kind "
        "bad-model-basis-lower-missing",
    ],
    "-cells": [
        "bad-cells-bits-zero bad-cells-bits-zero-f16 bad-cells-bits-cell",
        "bad-cells-second-more bad-cells-second-less "
        "bad-cells-second-counted-padding bad-cells-second-huge "
        "bad-cells-second-streams",
        "bad-cells-escapes-more bad-cells-escapes-less "
        "bad-cells-escapes-huge bad-cells-escapes-streams",
        "bad-cells-escapes-padding bad-cells-words-padding "
        "bad-cells-stream-padding",
        "bad-cells-long bad-cells-long-16 bad-cells-long-f32 "
        "bad-cells-long-planes bad-cells-nothing-long",
    ],
    "-klt": [
        "bad-klt-codec-7",
        "predictor-klt-layer predictor-klt-channels predictor-klt-shard "
        "predictor-klt-no-rope",
        "bad-klt-below-missing bad-klt-below-halves",
    ],
    "-layers": [
        "bad-layers-tops-block-padding bad-layers-1-block-padding "
        "bad-layers-2-block-padding bad-layers-3-block-padding "
        "bad-layers-4-block-padding bad-layers-plane-4-block-padding "
        "bad-layers-plane-2-block-padding bad-layers-plane-1-block-padding "
        "bad-layers-second-block-padding bad-cells-first-block-padding "
        "bad-cells-first-2-block-padding bad-cells-second-block-padding",
        "bad-layers-byte-low bad-layers-byte-high bad-layers-tops-byte-low "
        "bad-layers-tops-byte-high",
        "bad-layers-count-2-more bad-layers-count-2-less "
        "bad-layers-count-3-more bad-layers-count-3-less "
        "bad-layers-count-4-more bad-layers-count-4-less "
        "bad-layers-count-bytes-more bad-layers-count-bytes-less "
        "bad-layers-tops-count bad-layers-counts-huge "
        "bad-layers-count-between-streams",
        "bad-layers-rest-padding bad-layers-values-padding",
        "bad-layers-long bad-layers-long-4 bad-layers-nothing-long",
        "bad-layers-base bad-layers-base-one-top",
    ],
    "-linear": [
        "predictor-layer predictor-heads predictor-channels "
        "predictor-no-rope predictor-linear-role predictor-linear-shard "
        "predictor-linear-shard-first",
        "bad-linear-source bad-linear-source-role bad-linear-source-shard "
        "bad-linear-source-rope bad-linear-groups good-linear-shown",
    ],
    "-lossy": [
        "tests/vectors.sh tests/unit/test_lossy.c",
        "bad-had-generation bad-had-flags bad-had-exact-none "
        "bad-had-exact-all bad-had-rates-1 bad-had-rates-empty bad-klt-after "
        "bad-vq-long",
        "bad-had-params-rope bad-had-params-rope-values",
        "tests/unit/test_salvage.c",
        "bad-had-near1-high bad-had-near1-low bad-had-near2-high "
        "bad-had-near2-low bad-klt-near",
    ],
    "-model": [
        "predictor-transformer-check predictor-transformer-loop",
        "bad-transformer-second bad-transformer-layer bad-transformer-no-ids "
        "bad-transformer-lost-ids bad-transformer-token "
        "bad-transformer-position bad-transformer-groups "
        "bad-transformer-lost-groups",
    ],
    "-predicted": [
        "bad-transformer-predicted-repeat",
        "predictor-transformer-predicted-check "
        "predictor-transformer-predicted-check-patch",
    ],
    "-rans": [
        "bad-chunk-state bad-streams-words-left bad-streams-words-missing "
        "bad-cells-state-high bad-cells-state-unused bad-cells-words-left "
        "bad-cells-words-missing-0",
        "bad-chunk-state-low bad-streams-state bad-vq-state "
        "bad-cells-state-low bad-cells-state-0",
        "bad-chunk-one-stream-size bad-streams-size-one "
        "bad-linear-stream-size bad-transformer-stream-size "
        "bad-layers-one-stream-size bad-cells-one-stream-size",
    ],
    "-raw": ["bad-chunk-raw-long bad-chunk-raw-short"],
    "-repeat": [
        "bad-transformer-repeat bad-transformer-predicted-repeat",
    ],
    "-state": [
        "bad-state-of-reference bad-state-of-repeat",
        "bad-state-repeated",
    ],
    "-store": ["tests/reference/store_folder.sh"] * 6,
    "-tokens": [
        "bad-transformer-tokens-announced bad-transformer-tokens-no-ids "
        "bad-transformer-tokens-word bad-transformer-tokens-position "
        "unsupported-transformer-tokens-later",
        "predictor-transformer-tokens-check predictor-transformer-tokens-bit",
        "bad-transformer-tokens-after bad-transformer-tokens-zero",
    ],
    "-tsc": [
        "bad-tsc-kappa-0 bad-tsc-kappa-high bad-tsc-block-0 bad-tsc-most-0 "
        "bad-tsc-most-high",
        "bad-tsc-step-0 bad-tsc-step-subnormal bad-tsc-step-infinite "
        "bad-tsc-step-nan bad-tsc-step-negative",
        "bad-tsc-code-key bad-tsc-code bad-tsc-code-minus-128",
    ],
    "-vq": [
        "bad-vq-dim-1 bad-vq-dim-16 bad-vq-parts-0 bad-vq-parts-2 "
        "bad-vq-stages-0 bad-vq-stages-4",
    ],
}

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
# Pages in the order of the table: path in spec/, prefix of marks.
PAGES = [("kvarc-format.md", ""), ("frames.md", "")] + [
    (name + ".md", "-" + name)
    for name in ("store", "profile", "arithmetic", "errata", "examples",
                 "implementing")]


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
        for sentence in re.split(r"(?<=[^.]\.)[\"*)]* (?=[A-Za-z`*(\"])", text):
            parts = sentence.split("; ")
            if '"data"' in sentence and not re.search(r"\bR[-\d]", sentence) \
                    or any("MUST" in p and "[R" not in p for p in parts):
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
