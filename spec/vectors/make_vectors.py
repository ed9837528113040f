#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes all files of spec/vectors/ and their README.md.

    make_vectors.py DIR          writes good-*, bad-*, unsupported-*,
                                 predictor-*, README.md
    make_vectors.py --check DIR  exit 1 when a file there is not what it makes

Same output on every machine. good-X.txt says what `kvarc_ref.py digest` must
print for good-X.kva; it comes from the data that went in, not from a decoder.
"""

import argparse
import os
import sys

sys.dont_write_bytecode = True

import bad_base  # noqa: E402
from bad_base import vector  # noqa: E402
import bad_chunks  # noqa: E402,F401 (adds to bad_base.VECTORS)
import bad_container  # noqa: E402,F401
import bad_frames  # noqa: E402,F401
import bad_klt  # noqa: E402,F401
import bad_linear  # noqa: E402,F401
import bad_lossy  # noqa: E402,F401
import bad_metadata  # noqa: E402,F401
import bad_tokens  # noqa: E402,F401
import bad_transformer  # noqa: E402,F401
import cells_vectors  # noqa: E402
import classes  # noqa: E402
import fork_vectors  # noqa: E402
import frame_vectors  # noqa: E402
import good_codecs  # noqa: E402
import good_container  # noqa: E402
import good_klt  # noqa: E402
import good_linear  # noqa: E402
import good_lossy  # noqa: E402
import good_sessions  # noqa: E402
import good_tokens  # noqa: E402
import good_transformer  # noqa: E402
import later_vectors  # noqa: E402
import layer_vectors  # noqa: E402
import limit_vectors  # noqa: E402
import near_vectors  # noqa: E402
import rate_vectors  # noqa: E402
import rules  # noqa: E402
import state_vectors  # noqa: E402
import steps  # noqa: E402
import stored_vectors  # noqa: E402
import transformer_data  # noqa: E402
import tsc_vectors  # noqa: E402
import unsupported_vectors  # noqa: E402,F401
import vq_vectors  # noqa: E402

README_HEAD = """<!-- SPDX-License-Identifier: BSD-3-Clause -->
# Test vectors

Made by `make_vectors.py` (do not edit; `make check` compares). Every decoder
of the format must treat them so:

- `good-*.kva` decode, and the digests are those of the `.txt` beside them: a
  line `tensor first-head heads t0 n XXH3-128` for each chunk in file order
  (of its decoded bytes), then `item bytes XXH3-128` for each restored file.
  Where a rewind has cut a segment, n and the digest are of the tokens that are
  left, and there are no lines of segments that it replaced. `good-*@N.txt` is
  the same for checkpoint N (kvarc-format.md 9.5).
  A digest is printed most significant digit first; files store its low half
  first (kvarc-format.md 1.4).
- `bad-*.kva` are answered "format" where the table says so, else "data"
  (kvarc-format.md 1.6). All checks in them are right except where the check
  itself is attacked, so that only the named fault is there to be found.
  The column "class" says who must refuse the file: every reader, or a
  verifier alone, by a line V1 to V9 of kvarc-format.md 1.8.
- `unsupported-*.kva` are answered "unsupported".
- `predictor-*.kva` are answered "predictor": the file is fine, its profile or
  its model is missing or does not fit.
- `key-*.kva` are answered "key", `store-*.kva` "store": the file is fine, its
  key or an object of its store is missing.

Files with `-encrypted` or `-storeref` in their names use optional parts
(frames.md): a decoder without the part answers "unsupported" to all of them,
whatever they begin with. A `.key` beside a file is what a decoder is given: a
line `key` and 64 hexadecimal digits, or `passphrase` and the passphrase. The
store is this folder: the object of a namespace and a key is
`object-NAMESPACE-KEY.kva`, an archive that has the segment, whatever else. KEY
is in hexadecimal, its first byte first. The segment is the one that has the
content digest of the STOREREF frame. (The folders of real stores: store.md.)

`bad-parity-*.kva` and `bad-encrypted-parity.kva` were damaged; the table
"Repair" says what becomes of them.

Lossy chunks are welcome; a decoder that has not been told so must answer
"lossy" to `good-X-*.kva` with a lossy codec X (had, klt ...).

Where a file `X.kvp` is beside `X.kva`, that profile is given to the decoder;
what a decoder answers to the profile itself counts as its answer. So is the
model `X.gguf`, and where there is none and the name has `-transformer-` in it,
`transformer.gguf`, or `tokens.gguf` where `-tokens-` comes behind.

The table "Rules" names what shows each rule of the specification: vectors, or
tests by their path in the source tree.

"""


KINDS = ("good", "bad", "unsupported", "predictor", "key", "store")


def table(title, head, rows):
    out = "## %s\n\n| file | %s |\n|---|---|\n" % (title, head)
    return out + "".join("| %s | %s |\n" % row for row in rows) + "\n"


def all_files():
    """Names and contents; for each kind the rows of README.md."""
    files, rows = {}, {k: [] for k in KINDS}
    files["transformer.gguf"] = transformer_data.tiny()
    files["tokens.gguf"] = good_tokens.worded()

    def put(name, made):
        """made: an archive, or an archive and what stands beside it: a
        profile file, or {ending: content}."""
        assert name + ".kva" not in files, name
        if isinstance(made, tuple):
            made, beside = made
            if not isinstance(beside, dict):
                beside = {".kvp": beside}
            for ending, content in beside.items():
                files[name + ending] = content
        files[name + ".kva"] = made

    for name, text, make in (good_container.VECTORS + good_sessions.VECTORS
                             + fork_vectors.GOOD
                             + good_codecs.VECTORS
                             + later_vectors.GOOD
                             + layer_vectors.VECTORS
                             + cells_vectors.VECTORS
                             + good_linear.VECTORS
                             + limit_vectors.VECTORS
                             + good_transformer.VECTORS
                             + good_tokens.VECTORS
                             + near_vectors.VECTORS
                             + state_vectors.VECTORS
                             + good_lossy.VECTORS + good_klt.VECTORS
                             + tsc_vectors.GOOD + vq_vectors.GOOD
                             + rate_vectors.GOOD + frame_vectors.GOOD
                             + stored_vectors.VECTORS):
        name = "good-" + name
        made = make()
        w = made[0] if isinstance(made, tuple) else made
        put(name, (bytes(w.out), made[1]) if w is not made else bytes(w.out))
        files[name + ".txt"] = w.expected().encode()
        for number, text_then in w.states.items():
            files["%s@%d.txt" % (name, number)] = text_then.encode()
        rows["good"].append((name, text))
    files.update(frame_vectors.objects())
    files.update(stored_vectors.objects())
    files.update(fork_vectors.objects())
    repairs = []
    for name, text, make, repaired in frame_vectors.REPAIRS:
        repairs.append(("bad-" + name, repaired or "nothing"))
        vector(name, text)(make)
    for name, text, make, expected in bad_base.VECTORS:
        kind = expected if expected in KINDS else "bad"
        put("%s-%s" % (kind, name), make())
        name = "%s-%s" % (kind, name)
        rows[kind].append((name, "%s | %s | %s" % (
            text, classes.class_of(name), expected)
            if kind == "bad" else text))
    classes.check({name for name, _ in rows["bad"]})
    steps.check([name for name, _ in rows["good"]])
    readme = (README_HEAD
              + table("Good", "what it shows", rows["good"])
              + table("Bad", "what is wrong | class | answer",
                      rows["bad"]).replace("|---|---|", "|---|---|---|---|", 1)
              + table("Unsupported", "what is new", rows["unsupported"])
              + table("Predictor", "what is missing", rows["predictor"])
              + table("Key", "what is missing", rows["key"])
              + table("Store", "what is missing", rows["store"])
              + table("Repair", "what becomes of it", repairs)
              + table("Rules", "shown by", rules.rows(files)).replace(
                  "| file |", "| rule |", 1))
    files["README.md"] = (readme.rstrip("\n") + "\n").encode()
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("folder")
    args = parser.parse_args()
    files, wrong = all_files(), 0
    there = {n for n in os.listdir(args.folder)
             if n.split("-")[0] in KINDS + ("object",)}
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
