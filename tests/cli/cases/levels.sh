# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Levels that are reserved say what they will need; only pack fits a profile.
kv cut -2 --layers 0 -o y x
kv bench -2 x
kv pack -9 x
kv pack --level 5 x
kv pack --level 10 x
