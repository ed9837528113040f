# SPDX-License-Identifier: BSD-3-Clause
"""The steps of spec/implementing.md: each good vector is in one of them."""

import fnmatch
import os
import re

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..",
                    "implementing.md")


def check(names):
    """names: of all good vectors. One that is in no step or in two, and a
    pattern of none, end the program."""
    with open(PAGE) as f:
        rows = re.findall(r"^\d+\. .*?Vectors: (.*?)\.$", f.read(),
                          re.M | re.S)
    assert len(rows) > 10, "no steps in implementing.md"
    left = set(names)
    for row in rows:
        found = set()
        for pattern in re.findall(r"`([^`]+)`", row):
            some = set(fnmatch.filter(names, "good-" + pattern))
            assert some, "no good vector is " + pattern
            found |= some
        assert found <= left, "in two steps: %s" % (found - left)
        left -= found
    assert not left, "in no step of implementing.md: %s" % left
