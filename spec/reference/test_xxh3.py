# SPDX-License-Identifier: BSD-3-Clause
"""Compares xxh3.py with the xxhsum command for all length classes.

Exit 0: equal; 1: not; 77: no xxhsum on this machine.
"""

import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import xxh3  # noqa: E402

# Every length to 300 meets each class below 241; then around the stripe
# (64) and block (1024) borders.
LENGTHS = sorted(set(range(0, 301)) | {
    n + d for n in (320, 512, 960, 1024, 1088, 2048, 3072, 5000)
    for d in (-65, -64, -63, -1, 0, 1, 63, 64, 65)})


def content(n):
    """Bytes without a pattern that a wrong offset would not change."""
    state, out = n + 1, bytearray()
    for _ in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(state >> 56)
    return bytes(out)


def xxhsum(names, algorithm):
    run = subprocess.run(["xxhsum", algorithm] + names, check=True,
                         stdout=subprocess.PIPE, text=True)
    sums = []
    for line in run.stdout.splitlines():
        # "HASH  name", or "XXH3_... (name) = HASH" in BSD style.
        sums.append(line.split()[-1] if "=" in line else line.split()[0])
    return [s.split("_")[-1] for s in sums]


def main():
    if not shutil.which("xxhsum"):
        print("no xxhsum command")
        return 77
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for n in LENGTHS:
            names.append(os.path.join(folder, str(n)))
            with open(names[-1], "wb") as f:
                f.write(content(n))
        for n, want in zip(LENGTHS, xxhsum(names, "-H2")):
            data = content(n)
            if xxh3.h128_hex(data) != want \
                    or "%016x" % xxh3.h64(data) != want[16:]:
                print("the hash of %d bytes differs" % n)
                wrong += 1
    print("%d lengths: %d wrong" % (len(LENGTHS), wrong))
    return 1 if wrong else 0


sys.exit(main())
