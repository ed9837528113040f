# SPDX-License-Identifier: BSD-3-Clause
"""Every sentence of the specification that is easy to misread has a vector.

    misreadings.py SPEC

SPEC is the folder of the specification. Each row of misreadings.txt is put into
a copy of the reference decoder, alone, which then reads the vectors that the
row names: it must treat one of them in another way than the decoder as it is.
Exit 1 when a misreading passes, or when its text is not once in its file.
"""

import os
import shutil
import struct
import sys
import tempfile

sys.dont_write_bytecode = True

import ref_all  # noqa: E402


def read_table(path):
    """-> rows (name, file, old text, new text, vectors)."""
    rows = []
    with open(path) as f:
        blocks = f.read().split("\n== ")[1:]
    for block in blocks:
        head, old, new = block.split("\n-- ")
        name, head = head.split("\n", 1)
        file, vectors = head.split(": ")
        rows.append((name, file, old.split("\n", 1)[1].strip("\n"),
                     new.split("\n", 1)[1].strip("\n"), vectors.split()))
    return rows


def decoder(folder):
    """The module kvarc_ref of a folder, its companions read again."""
    names = {os.path.splitext(n)[0] for n in os.listdir(folder)}
    for name in names & set(sys.modules):
        del sys.modules[name]
    sys.path.insert(0, folder)
    try:
        import kvarc_ref
    finally:
        sys.path.pop(0)
    return kvarc_ref


def treats(folder, vectors, path):
    """What a decoder answers: digests, or the word of 1.6."""
    module, out = decoder(folder), []
    for name in vectors:
        try:
            text, status = ref_all.answer(
                module, os.path.join(path, name + ".kva"))
            out.append(text.split(":")[0] if status else text)
        except (ArithmeticError, AssertionError, LookupError, ValueError,
                TypeError, AttributeError, StopIteration, struct.error) as error:
            out.append("broken: %r" % error)
    return out


def main():
    spec = sys.argv[1]
    vectors = os.path.join(spec, "vectors")
    rows = read_table(os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "misreadings.txt"))
    names = sorted({v for row in rows for v in row[4]})
    right = dict(zip(names, treats(os.path.join(spec, "reference"), names,
                                   vectors)))
    wrong = 0
    for v in names:
        word = right[v].split("\n")[0]
        kind = v.split("-")[0]
        right_word = word == {"bad": "data"}.get(kind, kind)
        if (word.startswith("broken") if kind == "good" else not right_word):
            print("%s: %s" % (v, word))
            wrong += 1
    with tempfile.TemporaryDirectory() as work:
        os.symlink(os.path.abspath(os.path.join(spec, "tables")),
                   os.path.join(work, "tables"))
        for i, (name, file, old, new, named) in enumerate(rows):
            copy = os.path.join(work, "reference")
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(os.path.join(spec, "reference"), copy)
            with open(os.path.join(copy, file)) as f:
                text = f.read()
            if text.count(old) != 1 or old == new:
                print("%s: its text is %d times in %s" % (
                    name, text.count(old), file))
                wrong += 1
                continue
            with open(os.path.join(copy, file), "w") as f:
                f.write(text.replace(old, new))
            if treats(copy, named, vectors) == [right[v] for v in named]:
                print("%s: no vector shows it" % name)
                wrong += 1
    print("%d misreadings, %d wrong" % (len(rows), wrong))
    return 1 if wrong or len(rows) < 10 else 0


if __name__ == "__main__":
    sys.exit(main())
