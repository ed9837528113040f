# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Levels that are reserved say what they will need.
kv pack -2 x
kv pack -9 x
kv pack --level 5 x
kv pack --level 10 x
