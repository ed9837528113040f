# SPDX-License-Identifier: BSD-3-Clause
"""Runs the reference decoder over many files in one process.

    ref_all.py REFERENCE OUT FILE...

REFERENCE is the folder of kvarc_ref.py. For each FILE, OUT gets NAME.out and
NAME.rc: what `kvarc_ref.py digest FILE` prints, and its exit status. A .kvp
beside FILE is its profile.
"""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])

import kvarc_ref  # noqa: E402

for path in sys.argv[3:]:
    profiles = []
    beside = os.path.splitext(path)[0] + ".kvp"
    if os.path.exists(beside):
        with open(beside, "rb") as f:
            profiles.append(f.read())
    with open(path, "rb") as f:
        text, status, _ = kvarc_ref.answer(f.read(), "digest", profiles)
    out = os.path.join(sys.argv[2], os.path.basename(path))
    with open(out + ".out", "w") as f:
        f.write(text)
    with open(out + ".rc", "w") as f:
        f.write("%d\n" % status)
