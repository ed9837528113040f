#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reads sessions from the folder of a store, without its index: store.md.

    kvarc_store_folder.py FOLDER NAME[@N] -o DIR     item i as DIR/item-i

Without @N of the last version. --namespace NAME; --profile and --key FILE, and
exit statuses, as of kvarc_ref.py. Nothing in FOLDER is locked or changed.
"""

import argparse
import os
import re
import string
import sys

sys.dont_write_bytecode = True

import kvarc_ref as ref  # noqa: E402
from kvarc_codecs import Bad, Cursor, demand, packed_content  # noqa: E402
from kvarc_crypt import Keys, read_secret  # noqa: E402
from kvarc_profile import read_profile  # noqa: E402
from xxh3 import h128  # noqa: E402

PLAIN = (string.ascii_letters + string.digits + "-_.").encode()


def component(name):
    """1: of a key."""
    return "".join(
        "%%%02X" % c if c not in PLAIN
        or not i and (c == ord(".") or name.isdigit()) else chr(c)
        for i, c in enumerate(name))


def folder_of(namespace, name):
    """1: of the versions of a session."""
    space = [] if namespace == b"default" else ["=" + component(namespace)]
    return os.path.join("sessions", *space, *map(component, name.split(b"/")))


def read_manifest(text):
    """2: -> the values by their names."""
    lines, check = text[:-39], text[-39:]
    demand(check == b"check=%s\n" % h128(lines).hex().encode()
           and text.startswith(b"kvarc-session="), "a damaged manifest")
    demand(text.startswith(b"kvarc-session=1\n"), "a newer manifest",
           "unsupported")
    values = dict(line.partition(b"=")[::2] for line in lines.splitlines())
    demand(re.fullmatch(b"[0-9a-f]{32}", values.get(b"pack", b"")),
           "a manifest without its archive")
    return values


def keys_of(data, secrets):
    """3: (encrypted, namespace, chain value) of each segment that an archive
    holds; None in place of a chain value: it has none."""
    superblock, namespace = ref.read_superblock(data), b""
    keys = Keys(superblock, secrets)
    for f in map(keys.frame, ref.read_frames(data, superblock.file_id)):
        if f.type not in (ref.IDENTITY, ref.SEGMENT):
            continue
        cursor = Cursor(packed_content(f.payload, f.decoded))
        if f.type == ref.IDENTITY:
            pairs = dict((cursor.string(), cursor.string())
                         for _ in range(cursor.varint()))
            namespace = pairs.get(b"namespace", namespace)
        else:
            cursor.varint(), cursor.varint(), cursor.varint()
            flags = cursor.u8()
            for _ in range(2 * cursor.varint()):
                cursor.varint()
            yield (superblock.incompat & 1, namespace,
                   cursor.take(16) if flags & 4 else None)


class Store:
    def __init__(self, folder, profiles=(), secrets=()):
        self.folder, self.profiles = folder, profiles
        self.secrets = secrets
        self.archives = {}      # by id; None: it cannot be read, or not yet
        self.holders = {}       # ids by the keys of what they hold
        for _, _, names in os.walk(os.path.join(folder, "packs")):
            for ident in (name[:-4] for name in names):
                try:
                    for key in keys_of(self.pack(ident), secrets):
                        self.holders.setdefault(key, {})[ident] = 1
                except Bad:
                    pass        # removed, damaged, or of another key

    def content(self, *path):
        try:
            return ref.content(os.path.join(self.folder, *path))
        except OSError as error:
            raise Bad("store", str(error)) from error

    def pack(self, ident):
        return self.content("packs", ident[:2], ident + ".kva")

    def version(self, namespace, name, number):
        """Its archive. number 0: of the last version."""
        folder = folder_of(namespace, name)
        if not number and os.path.isdir(os.path.join(self.folder, folder)):
            number = max((int(n) for n in os.listdir(os.path.join(
                self.folder, folder)) if re.fullmatch("[1-9][0-9]*", n)),
                default=0)
        manifest = read_manifest(self.content(folder, str(number)))
        archive = self.archive(manifest[b"pack"].decode())
        demand(b"needs" not in manifest or archive.super.incompat & 1,
               "the archive of the version was exchanged", "store")
        return archive

    def archive(self, ident):
        self.archives[ident] = None
        data = self.pack(ident)
        superblock = ref.read_superblock(data)
        demand(superblock.file_id.hex() == ident, "it was exchanged")
        self.archives[ident] = ref.Archive(
            data, self.profiles, (), self.secrets,
            lambda *key: self.find(superblock.incompat & 1, *key))
        return self.archives[ident]

    def find(self, encrypted, namespace, key):
        """3: archives that may hold a segment."""
        for chain in (key, None):
            for ident in self.holders.get((encrypted, namespace, chain), []):
                try:
                    if ident not in self.archives:
                        self.archive(ident)
                except Bad:
                    pass        # another may hold the segment, too
                if self.archives[ident]:
                    yield self.archives[ident]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("session")
    parser.add_argument("-o", dest="output", required=True)
    parser.add_argument("--namespace", default="default")
    for option in ("--profile", "--key"):
        parser.add_argument(option, action="append", default=[],
                            type=ref.content)
    args = parser.parse_args()
    name, number = re.fullmatch("(.+?)(?:@([0-9]+))?", args.session).groups()
    try:
        store = Store(args.folder, list(map(read_profile, args.profile)),
                      [read_secret(key.decode()) for key in args.key])
        archive = store.version(os.fsencode(args.namespace), os.fsencode(name),
                                int(number or 0))
    except Bad as error:
        print("%s: %s" % (error.kind, error))
        return ref.STATUS.get(error.kind, 1)
    ref.unpack(archive, args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
