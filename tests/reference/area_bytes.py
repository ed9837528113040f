# SPDX-License-Identifier: BSD-3-Clause
"""What a writer says of its items (kvarc-format.md 10, rule R10.12).

    area_bytes.py REFERENCE ARCHIVE...

REFERENCE is the folder of kvarc_ref.py. Every byte of every area of the
archives must be that of one element: exit 1 otherwise, or when no archive has
an area.
"""

import sys

sys.dont_write_bytecode = True


def shared(piece, tensors, element_bytes):
    """How many bytes of an area do not belong to exactly one element."""
    seen = bytearray(piece.bytes)
    for v in piece.views:
        t = tensors[v.tensor]
        for i in range(piece.n):
            for c in range(t.heads * t.channels):
                at = v.place(i, c)
                for b in range(at, at + element_bytes[t.dtype]):
                    seen[b] = min(seen[b] + 1, 2)
    return sum(n != 1 for n in seen)


def main():
    sys.path.insert(0, sys.argv[1])
    import kvarc_codecs
    import kvarc_ref
    areas = wrong = 0
    for path in sys.argv[2:]:
        text, status, archive = kvarc_ref.answer(kvarc_ref.content(path), "info")
        if status:
            sys.exit("%s: %s" % (path, text))
        for item in archive.items:
            for piece in item.pieces:
                if piece.type != 1:
                    continue
                areas += 1
                n = shared(piece, archive.geometry.tensors,
                           kvarc_codecs.ELEMENT_BYTES)
                if n:
                    print("%s: %d bytes of an area" % (path, n))
                    wrong += 1
    print("%d areas, %d wrong" % (areas, wrong))
    return 1 if wrong or not areas else 0


sys.exit(main())
