# SPDX-License-Identifier: BSD-3-Clause
"""Numbered rules of kvarc-format.md and the vectors that show each.

A rule is item n of the numbered list of a section: R10.4 is item 4 of the list
of section 10. Every item has a row here, and every row its item; README.md has
the table.
"""

import os
import re

RULES = {
    "3.4": [
        "bad-order-no-geometry bad-order-two-geometries",
        "bad-order-restore-late bad-order-restore-after-blob",
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
        "bad-chain-value bad-chain-first good-chains",
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
        "bad-restore-track bad-restore-tokens",
        "bad-blob-offset bad-blob-item good-restore-opaque",
        "bad-blob-short bad-blob-long",
        "bad-blob-empty",
    ],
}


def numbered(section):
    """How many items the numbered list of a section has."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..",
                        "kvarc-format.md")
    with open(path) as f:
        text = f.read()
    head = r"^%s " if "." in section else r"^## %s\."
    start = re.search(head % re.escape(section), text, re.M)
    end = re.search(r"^(## |\d+\.\d+ )", text[start.end():], re.M)
    part = text[start.end():][:end.start() if end else None]
    items = [int(n) for n in re.findall(r"^(\d+)\. ", part, re.M)]
    assert items == list(range(1, len(items) + 1)), section
    return len(items)
