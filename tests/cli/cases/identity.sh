# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# A demand that is not met is an error.
kv pack -o a.kva "$SLOT"
engine=$(kv info --json a.kva | sed 's/.*"engine":"\([^"]*\)".*/\1/')
echo "$engine"
kv info -q --identity "engine=$engine" a.kva
kv info -q --identity engine=other --identity weights=none a.kva
