# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# An archive with parts in a store: what it has is shown; the rest needs the store.
cp "$top/spec/vectors/good-storeref.kva" a.kva
kv info a.kva | grep -E '^  (tokens|store) '
kv info --json a.kva | grep -o '"stored_tokens":[0-9]*,'
kv list a.kva | grep -c 'lie in a store'
kv test a.kva
kv unpack -o out a.kva
kv unpack --salvage -o out a.kva
kv cut -o cut.kva a.kva
kv compact -o compact.kva a.kva
kv cut --tokens 15-16 -o own.kva a.kva; kv info own.kva | grep "^  tokens"
ls
