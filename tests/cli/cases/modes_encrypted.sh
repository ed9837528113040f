# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What comes out of an encrypted archive is for its owner, whoever may read the archive.
needs SQLITE3
"$KVARC" keygen -q key
kv pack -q --encrypt --key-file key -o e.kva "$SLOT"
chmod 644 e.kva
kv unpack -q --key-file key -o plain e.kva
kv unpack -q --key-file key -o from_stdin - < e.kva
kv cut -q --key-file key --decrypt --tokens 0-4 -o cut.kva e.kva
kv compact -q --key-file key --decrypt -o compact.kva e.kva
kv session save -q --store st --encrypt --key-file key secret "$SLOT"
kv session load -q --store st --key-file key -o secret secret
stat -c '%a %n' plain from_stdin cut.kva compact.kva secret
