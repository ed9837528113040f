#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""make_pages.py - manual pages of the calls from the comments of the public headers

usage: make_pages.py INCLUDE OUT    INCLUDE: the folder of kvarc.h
Writes OUT/kvarc_NAME.3 for each header kvarc/NAME.h ("make update-man"). What stands in a
header is said once, there; a test compares the pages with the headers.
"""
import os
import re
import sys
import textwrap

UMBRELLAS = ("tools",)
# Headers whose calls are in another library than libkvarc: its name, and what programs include.
LIBRARIES = {"store": ("libkvarc-store", "kvarc/store.h"),
             "server": ("libkvarc-store", "kvarc/server.h"),
             "exchange": ("libkvarc-store", "kvarc/exchange.h"),
             "blocks": ("libkvarc-store", "kvarc/blocks.h"),
             "canary": ("libkvarc-store", "kvarc/canary.h"),
             "device": ("libkvarc-device", "kvarc/device.h")}
for tool in ("train", "eval", "gate", "scores"):
    LIBRARIES[tool] = ("libkvarc-tools", "kvarc/tools.h")


def blocks(text):
    """(comment, declaration) pairs of a header, in order; comments keep their lines."""
    body = re.sub(r"\A(/\*.*?\*/\s*)+", "", text, flags=re.S)
    at, comment = 0, ""
    token = re.compile(r"/\*.*?\*/|^#.*?(?<!\\)$|^typedef (?:struct|enum) \w+ \{.*?^\} \w+;"
                       r"|^typedef [^;{]*;|^KVARC_API[^;]*;", re.S | re.M)
    while True:
        found = token.search(body, at)
        if not found:
            return
        piece, between = found.group(0), body[at:found.start()]
        at = found.end()
        if "\n\n" in between:
            comment = ""
        if piece.startswith("/*"):
            comment = piece
        elif piece.startswith("#"):
            name = re.match(r"#define (KVARC_\w+)(?!_H\b)", piece)
            if name and not name.group(1).endswith("_H"):
                yield comment, piece
                comment = ""
        else:
            yield comment, piece
            comment = ""


def prose(comment):
    """The sentences of a comment as lines of mdoc."""
    text = re.sub(r"^/\*+|\*/$", "", comment.strip())
    lines = [re.sub(r"^\s*\* ?", "", line).strip() for line in text.split("\n")]
    paragraphs = "\n".join(lines).strip().split("\n\n")
    out = []
    for paragraph in paragraphs:
        words = " ".join(paragraph.split())
        if not words:
            continue
        if out:
            out.append(".Pp")
        for sentence in re.split(r"(?<=[.:;]) (?=[A-Z])", words):
            out += [escape(line) for line in textwrap.wrap(
                sentence, 78, break_long_words=False, break_on_hyphens=False)]
    return out


def escape(line):
    line = line.replace("\\", "\\e")
    return "\\&" + line if line[:1] in (".", "'") else line


def literal(code):
    code = code.replace("KVARC_API ", "").replace("KVARC_MUST_CHECK ", "")
    code = re.sub(r"\n {8,}", "\n        ", code)  # continued arguments
    return [".Bd -literal -offset indent"] + [
        escape(line.expandtabs(8)) for line in code.split("\n")] + [".Ed"]


def name_of(declaration):
    if declaration.startswith("KVARC_API"):
        return re.search(r"\b(kvarc_\w+)\(", declaration).group(1)
    if declaration.startswith("#"):
        return re.match(r"#define (\w+)", declaration).group(1)
    callback = re.search(r"\(\*(kvarc_\w+)\)", declaration)
    return callback.group(1) if callback else re.search(r"(\w+);$", declaration).group(1)


def page(name, text, date):
    purpose = re.search(r"kvarc/%s\.h - (.*?)\s*\*/" % name, text, re.S).group(1)
    parts = list(blocks(text))
    calls = [name_of(d) for _, d in parts if d.startswith("KVARC_API")]
    names = ["kvarc_" + name] + [c for c in calls if c != "kvarc_" + name]
    library, header = LIBRARIES.get(name, ("libkvarc", "kvarc.h"))
    out = [".\\\" SPDX-License-Identifier: BSD-3-Clause",
           ".\\\" From include/kvarc/%s.h by man/make_pages.py." % name,
           ".Dd %s" % date, ".Dt KVARC_%s 3" % name.upper(), ".Os", ".Sh NAME"]
    out += [".Nm %s ," % n for n in names[:-1]] + [".Nm " + names[-1]]
    out += [".Nd " + " ".join(purpose.split()), ".Sh LIBRARY",
            "%s (-l%s)" % (library, library[3:]), ".Sh SYNOPSIS", ".In " + header,
            ".Sh DESCRIPTION"]
    constants = []
    for comment, declaration in parts:
        if declaration.startswith("#"):
            constants.append((comment, declaration))
            continue
        if constants:
            out += define_list(constants)
            constants = []
        out += [".Ss " + name_of(declaration)] + literal(declaration) + prose(comment)
    if constants:
        out += define_list(constants)
    out += [".Sh SEE ALSO", ".Xr libkvarc 3"]
    return "\n".join(out) + "\n"


def define_list(constants):
    out = [".Ss " + name_of(constants[0][1])]
    for comment, declaration in constants:
        out += literal(declaration) + prose(comment)
    return out


def main():
    include, folder = sys.argv[1:]
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "libkvarc.3")) as f:
        date = re.search(r"^\.Dd (.*)$", f.read(), re.M).group(1)
    for entry in sorted(os.listdir(os.path.join(include, "kvarc"))):
        name = entry[:-2]
        if not entry.endswith(".h") or name in UMBRELLAS:
            continue
        with open(os.path.join(include, "kvarc", entry)) as f:
            text = f.read()
        with open(os.path.join(folder, "kvarc_%s.3" % name), "w") as f:
            f.write(page(name, text, date))


main()
