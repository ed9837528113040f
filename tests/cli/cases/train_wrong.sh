# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What cannot be fitted ends in a message, and no profile appears.
kv train a
kv train -o p.kvp
kv train -o p.kvp missing
kv train -o . "$SLOT"
kv train --level 1 -o p.kvp "$SLOT"
kv train --level 5 -o p.kvp "$SLOT"
kv train --level 5 --model missing -o p.kvp "$SLOT"
kv train --held-out 60 -o p.kvp "$SLOT"
echo "1 2 3" > text.ids
kv train --level 2 -o p.kvp text.ids
kv train --level 5 --generate 100 -o p.kvp
kv train --generate 1 -o p.kvp
kv train --dtype e4m3 -o p.kvp text.ids
kv train --head-block --whole-layer -o p.kvp "$SLOT"
kv train --json -o - "$SLOT"
echo text > text
kv train -o p.kvp text
kv pack -q -o cut.kva "$SLOT"
kv cut -q --layers 0-9 -o ten.kva cut.kva
kv train -o p.kvp "$SLOT" ten.kva
kv train -M 2M -o p.kvp "$SLOT"
: > there.kvp
kv train -o there.kvp "$SLOT"
names
