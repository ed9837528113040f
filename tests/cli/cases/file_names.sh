# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Names that begin with a dash, hold blanks, newlines, or are very long.
cp "$SLOT" ./-dash
cp "$SLOT" 'two words'
newline=$(printf 'line\nbreak')
echo text > "$newline"
long=$(printf '%0250d' 0)
cp "$SLOT" "$long"
kv pack -- -dash
kv pack 'two words'
kv pack "$newline"
kv pack "$long" 2>&1 | sed 's/0000*/0000/' >&2
kv pack -o long.kva "$long"
kv unpack -o back long.kva
cmp back "$SLOT"
names | sed 's/00000*/0000/'
