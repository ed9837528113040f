# SPDX-License-Identifier: BSD-3-Clause
"""Runs the reference decoder over many files in one process.

    ref_all.py REFERENCE OUT FILE...

REFERENCE is the folder of kvarc_ref.py. For each FILE, OUT gets NAME.out and
NAME.rc: what `kvarc_ref.py digest FILE` prints, and its exit status. So does
NAME@N where NAME@N.txt is beside FILE, of checkpoint N. A .kvp beside FILE is
its profile, a .gguf its model, a .key its key; names with -transformer- in them
have transformer.gguf, or tokens.gguf, when there is none. The store is the
folder of FILE.
"""

import os
import sys

sys.dont_write_bytecode = True


def answer(kvarc_ref, path, checkpoint=0):
    """Text and exit status of a module kvarc_ref for the file at path."""
    def beside(ending):
        name = os.path.splitext(path)[0] + ending
        return [kvarc_ref.content(name)] if os.path.exists(name) else []

    models = beside(".gguf")
    if not models and "-transformer-" in path:
        models = [kvarc_ref.content(os.path.join(
            os.path.dirname(path), "tokens.gguf" if "-tokens-" in path
            else "transformer.gguf"))]
    text, status, _ = kvarc_ref.answer(
        kvarc_ref.content(path), "digest", beside(".kvp"), models,
        [line.decode() for line in beside(".key")], os.path.dirname(path),
        checkpoint)
    return text, status


def main():
    sys.path.insert(0, sys.argv[1])
    import kvarc_ref
    for path in sys.argv[3:]:
        folder, name = os.path.split(path)
        stem = os.path.splitext(name)[0] + "@"
        then = [n[len(stem):-4] for n in os.listdir(folder)
                if n.startswith(stem) and n.endswith(".txt")]
        for n in ["0"] + then:
            text, status = answer(kvarc_ref, path, int(n))
            out = os.path.join(sys.argv[2], name if n == "0" else stem + n)
            with open(out + ".out", "w") as f:
                f.write(text)
            with open(out + ".rc", "w") as f:
                f.write("%d\n" % status)


if __name__ == "__main__":
    main()
