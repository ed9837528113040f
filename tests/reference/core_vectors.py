# SPDX-License-Identifier: BSD-3-Clause
"""The core reader on all vectors.

    core_vectors.py SPEC

SPEC is the folder of the specification. core.py, xxh3.py and the tables are
copied to a folder of their own: there is nothing else that core.py could use.
The answer that a vector must get comes from its frames:

- good ones have the digests of their .txt, also at each checkpoint, unless
  there is a chunk that a core reader does not have;
- bad ones of class reader are refused, unless such parts or frames that are
  passed over are what is wrong with them, or ACCEPTED says why not;
- all others have an answer of kvarc-format.md 1.6.
"""

import ast
import glob
import importlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

MOST = 500      # lines of code: not blank, no comment, no docstring
CORE = (0, 1, 2, 3, 4, 5, 6, 16)
LOSSY = (10, 11, 12, 13, 14)
PARAMS, SEGMENT, CHUNK, PREDICTOR, FORK = 5, 6, 7, 11, 19

# Of class reader and of core parts, and yet not refused.
ACCEPTED = {
    "bad-geometry-extension": "extension fields are the last: nothing is read",
    "bad-varint-53": "in an extension field, too",
    "bad-short-footer": "FOOTER and INDEX are for readers that seek",
    "bad-short-index": "FOOTER and INDEX are for readers that seek",
    "bad-items-tokens": "an item of an earlier checkpoint: nobody asked for it",
    "bad-items-blob-late": "an item of an earlier checkpoint, too",
}


def parts(core, data):
    """Of a file, as far as it can be read: what a core reader answers to the
    first chunk or FORK that it does not have, None if there is none; and whether
    there are parts that it passes over."""
    if data[20:24] != bytes(4):
        return "unsupported", True
    at, answer, passed = 64, None, False
    while at + 32 <= len(data):
        kind, _, size, _, decoded = struct.unpack(
            "<HHIQI", data[at + 8:at + 28])
        payload = data[at + 32:at + 32 + size]
        frame = core.Record(payload=payload, decoded=decoded)
        try:
            if kind == CHUNK and len(payload) > 24 \
                    and payload[24] not in CORE and answer is None:
                answer = "lossy" if payload[24] in LOSSY else "unsupported"
            elif kind == FORK:
                answer = answer or "unsupported"
            elif kind == PARAMS:
                passed |= core.packed(frame).take(9)[8] not in (5, 6)
            elif kind == SEGMENT:       # ids that a model has coded
                passed |= bool(core.packed(frame).fields("vvvB")[3] & 2)
        except core.Bad:
            pass
        passed |= kind == PREDICTOR
        at += 32 + (size + 15) // 16 * 16 + 16
    return answer, passed


def reads(core, data, checkpoint=0):
    """The answer, and the digests where that is "good"."""
    try:
        return "good", "".join(core.Archive(data, checkpoint).digest())
    except core.Bad as error:
        return error.args[0], ""


def check_vector(core, class_of, path):
    """None, or what is wrong; whether the digests were compared."""
    stem = os.path.splitext(path)[0]
    name = os.path.basename(stem)
    with open(path, "rb") as f:
        data = f.read()
    kind = name.split("-")[0]
    (missing, passed), (answer, text) = parts(core, data), reads(core, data)
    if answer not in ("good", "format", "unsupported", "lossy", "data"):
        return "gets the answer " + answer, False
    if kind == "good" and missing:
        return None if answer == missing else "gets the answer " + answer, False
    if kind == "good":
        for then in [stem + ".txt"] + glob.glob(stem + "@*.txt"):
            number = then[len(stem) + 1:-4] if "@" in then else "0"
            with open(then) as f:
                if reads(core, data, int(number)) != ("good", f.read()):
                    return "has other digests than " + then, True
        return None, True
    right = ("good", "unsupported", "lossy")        # of parts it has not
    if kind == "bad":
        right += ("data", "format")
        if class_of(name) == "reader" and not missing and not passed:
            right = ("good",) if name in ACCEPTED else ("data", "format")
    elif kind == "unsupported" and not passed:
        right = ("unsupported", "lossy")
    return None if answer in right else "gets the answer " + answer, False


def check_command(core, folder, vectors):
    """The command itself: what is wrong."""
    program = os.path.join(folder, "reference", "core.py")

    def run(*args, **environment):
        done = subprocess.run([sys.executable, "-S", program, *args],
                              stdout=subprocess.PIPE, text=True,
                              env={**os.environ, **environment})
        return done.returncode, done.stdout

    def there(name):
        return os.path.join(vectors, name)

    def content(name):
        with open(name) as f:
            return f.read()

    for name, status, start in (
            ("good-restore-slot", 0, content(there("good-restore-slot.txt"))),
            ("good-empty", 0, ""), ("bad-nothing", 1, "format: "),
            ("bad-chunk-raw-check", 1, "data: "),
            ("unsupported-dtype", 3, "unsupported: "),
            ("good-vq-f16", 5, "lossy: ")):
        rc, out = run(there(name + ".kva"))
        if rc != status or (out != start if not rc else out[:len(start)]
                            != start):
            yield "digest of %s: exit %d, %s" % (name, rc, out)
    numbers = [n for n in os.listdir(vectors) if n.startswith("good-rewind@")]
    for name in numbers:
        number = name[len("good-rewind@"):-4]
        if run(there("good-rewind.kva"), number) \
                != (0, content(there(name))):
            yield "digest of checkpoint %s" % number
    if not numbers or run(there("good-rewind.kva"), "999")[0] != 3:
        yield "a checkpoint that is not there"
    items = os.path.join(folder, "items")
    os.mkdir(items)
    rc, _ = run(there("good-restore-slot.kva"), "0", items)
    with open(os.path.join(items, "item-0"), "rb") as f:
        item = f.read()
    line = "item %d %s\n" % (len(item), core.h128_hex(item))
    if rc or line not in content(there("good-restore-slot.txt")):
        yield "items of good-restore-slot: exit %d" % rc
    rc, out = run(there("good-zstd.kva"), PATH="/nonexistent")
    if rc != 3 or "zstd" not in out:
        yield "without the command zstd: exit %d, %s" % (rc, out)


def code_lines(text):
    """The number of lines that are not blank, no comment and no docstring."""
    lines = {i for i, line in enumerate(text.split("\n"), 1)
             if line.strip() and not line.lstrip().startswith("#")}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def main():
    spec = sys.argv[1]
    vectors = os.path.join(spec, "vectors")
    sys.path.insert(0, vectors)
    from classes import class_of
    with tempfile.TemporaryDirectory() as folder:
        reference = os.path.join(folder, "reference")
        os.mkdir(reference)
        for name in ("core.py", "xxh3.py"):
            shutil.copy(os.path.join(spec, "reference", name), reference)
        shutil.copytree(os.path.join(spec, "tables"),
                        os.path.join(folder, "tables"))
        sys.path.insert(0, reference)
        core = importlib.import_module("core")
        wrong = list(check_command(core, folder, vectors))
        n = decoded = 0
        for path in sorted(glob.glob(os.path.join(vectors, "*-*.kva"))):
            if os.path.basename(path).startswith("object-"):
                continue
            try:
                fault, compared = check_vector(core, class_of, path)
            except Exception as error:      # no answer at all
                fault, compared = "breaks it: %r" % error, False
            if fault:
                wrong.append("%s %s" % (os.path.basename(path), fault))
            n, decoded = n + 1, decoded + compared
        with open(os.path.join(reference, "core.py")) as f:
            text = f.read()
    size = code_lines(text)
    if size > MOST:
        wrong.append("core.py has %d lines of code" % size)
    if max(map(len, text.split("\n"))) > 100:
        wrong.append("core.py has lines of more than 100 columns")
    several = [node.lineno for node in ast.walk(ast.parse(text))
               if isinstance(node, ast.stmt)]
    if len(several) != len(set(several)):
        wrong.append("core.py has several statements on a line")
    for line in wrong:
        print("FAIL: " + line)
    print("core.py: %d lines of code of %d; %d vectors, of which %d decode, "
          "%d wrong" % (size, text.count("\n"), n, decoded, len(wrong)))
    return 0 if not wrong and decoded > 90 else 1


sys.exit(main())
