# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Files that are missing, folders, stdin twice.
mkdir folder
cp "$SLOT" a
cp "$SLOT" b
kv pack
kv pack missing
kv pack folder
kv pack - a
kv pack -c a b > out
kv pack --json -c a > out
kv pack --rm -c a > out
kv pack -o c a b
kv pack -o missing/out a
kv test
kv test missing
kv list - a
kv info --plot x.svg a b
kv unpack missing.kva
names
