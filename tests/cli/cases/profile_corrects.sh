# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# A profile of levels 4 and up says where it corrects the model.
cp "$top/spec/vectors/good-linear-corrects.kvp" p.kvp
kv info p.kvp
kv info --json p.kvp | tr '{' '\n' | grep '"corrects":[15]'
