#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes all files of spec/vectors/ and their README.md.

    make_vectors.py DIR          writes good-*, bad-*, unsupported-*, README.md
    make_vectors.py --check DIR  exit 1 when a file there is not what it makes

Same output on every machine. good-X.txt says what `kvarc_ref.py digest` must
print for good-X.kva; it comes from the data that went in, not from a decoder.
"""

import argparse
import os
import sys

sys.dont_write_bytecode = True

import bad_base  # noqa: E402
import bad_chunks  # noqa: E402,F401 (adds to bad_base.VECTORS)
import bad_container  # noqa: E402,F401
import bad_metadata  # noqa: E402,F401
import good_codecs  # noqa: E402
import good_container  # noqa: E402
import unsupported_vectors  # noqa: E402,F401

README_HEAD = """<!-- SPDX-License-Identifier: BSD-3-Clause -->
# Test vectors

Made by `make_vectors.py` (do not edit; `make check` compares). Every decoder
of the format must treat them so:

- `good-*.kva` decode, and the digests are those of the `.txt` beside them: a
  line `tensor first-head heads t0 n XXH3-128` for each chunk in file order
  (of its decoded bytes), then `item bytes XXH3-128` for each restored file.
- `bad-*.kva` are answered "format" where the table says so, else "data"
  (kvarc-format.md 1.6). All checks in them are right except where the check
  itself is attacked, so that only the named fault is there to be found.
- `unsupported-*.kva` are answered "unsupported".

"""


def table(title, head, rows):
    out = "## %s\n\n| file | %s |\n|---|---|\n" % (title, head)
    return out + "".join("| %s | %s |\n" % row for row in rows) + "\n"


def all_files():
    files, goods, bads, news = {}, [], [], []
    for name, text, make in good_container.VECTORS + good_codecs.VECTORS:
        w = make()
        files["good-%s.kva" % name] = bytes(w.out)
        files["good-%s.txt" % name] = w.expected().encode()
        goods.append(("good-" + name, text))
    for name, text, make, expected in bad_base.VECTORS:
        kind = "unsupported" if expected == "unsupported" else "bad"
        files["%s-%s.kva" % (kind, name)] = make()
        if kind == "bad":
            bads.append(("bad-" + name, text + " | " + expected))
        else:
            news.append(("unsupported-" + name, text))
    readme = (README_HEAD
              + table("Good", "what it shows", goods)
              + table("Bad", "what is wrong | answer", bads).replace(
                  "|---|---|", "|---|---|---|", 1)
              + table("Unsupported", "what is new", news))
    files["README.md"] = (readme.rstrip("\n") + "\n").encode()
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("folder")
    args = parser.parse_args()
    files, wrong = all_files(), 0
    there = {n for n in os.listdir(args.folder)
             if n.split("-")[0] in ("good", "bad", "unsupported")}
    for name in sorted(there - set(files)):
        print("%s is not one of the vectors" % name)
        wrong += 1
    for name, content in sorted(files.items()):
        path = os.path.join(args.folder, name)
        if not args.check:
            with open(path, "wb") as f:
                f.write(content)
            continue
        try:
            with open(path, "rb") as f:
                same = f.read() == content
        except FileNotFoundError:
            same = False
        if not same:
            print("%s differs from what make_vectors.py makes" % name)
            wrong += 1
    print("%d files, %d bytes" % (len(files), sum(map(len, files.values()))))
    return 1 if wrong else 0


sys.exit(main())
