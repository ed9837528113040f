# SPDX-License-Identifier: BSD-3-Clause
"""Numbered rules of kvarc-format.md and the vectors that show each.

A rule is item n of the numbered list of a section: R10.4 is item 4 of the list
of section 10, R12.4 of those of frames.md. Every item has a row here, and every row its item; README.md has
the table.
"""

import os
import re

RULES = {
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
        "bad-storeref-t0 bad-storeref-no-commit bad-storeref-early",
        "bad-storeref-none bad-storeref-many bad-storeref-n-0 "
        "bad-storeref-n-257 bad-storeref-flags",
        "bad-storeref-bytes",
        "store-storeref-missing store-storeref-nothing "
        "store-storeref-digest store-storeref-ids store-storeref-dtype",
        "bad-storeref-chain good-storeref-chain",
        "bad-storeref-chunk bad-storeref-repeat",
    ],
}
# Sections with a page of their own.
PAGES = {"12": "frames.md"}


def numbered(section):
    """How many items the numbered list of a section has."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..",
                        PAGES.get(section, "kvarc-format.md"))
    with open(path) as f:
        text = f.read()
    if section in PAGES:
        items = [int(n) for n in re.findall(r"^(\d+)\. ", text, re.M)]
        assert items == list(range(1, len(items) + 1)), section
        return len(items)
    head = r"^%s " if "." in section else r"^## %s\."
    start = re.search(head % re.escape(section), text, re.M)
    end = re.search(r"^(## |\d+\.\d+ )", text[start.end():], re.M)
    part = text[start.end():][:end.start() if end else None]
    items = [int(n) for n in re.findall(r"^(\d+)\. ", part, re.M)]
    assert items == list(range(1, len(items) + 1)), section
    return len(items)
