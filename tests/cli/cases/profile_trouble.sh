# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Levels 2 and 3 when something is wrong: a damaged profile in the archive, a lost
# chunk that others need, full disks, little memory.
HOME=$PWD/home
export HOME
unset KVARC_PROFILE_PATH
cp "$SLOT" slot
kv train -q -2 -o p.kvp slot 2> /dev/null
digest=$(kv info --json p.kvp | sed 's/.*"digest":"\([0-9a-f]*\)".*/\1/')
kv pack -q --profile p.kvp --embed-profile -o a.kva slot

# The profile is lost; its file helps, given or found.
cp a.kva b.kva
flip b.kva 100000
kv test b.kva 2>&1 | sed -n '2p;$p' | hide_offsets
kv unpack -o back b.kva 2>&1 | hide_offsets
kv unpack -q --salvage --salvage-tokens zero -o back b.kva 2>&1 | tail -n 2 | hide_offsets
kv unpack -q --salvage --salvage-tokens zero --profile p.kvp -f -o back b.kva 2>&1 | tail -n 2 | hide_offsets
cmp back slot
mkdir -p home/.local/share/kvarc/profiles
cp p.kvp "home/.local/share/kvarc/profiles/$digest.kvp"
kv unpack -q --salvage --salvage-tokens zero -f -o back b.kva 2> /dev/null
cmp back slot
rm -r home

# A value's key is lost.
kv pack -q --profile p.kvp -o c.kva slot
flip c.kva $(($(wc -c < c.kva) / 2))
kv test --profile p.kvp c.kva 2>&1 | sed -n '1,2p' | sed -E 's/(key|value), tokens/KIND, tokens/' | hide_offsets

# Training from what needs a profile.
kv pack -q --profile p.kvp -o d.kva slot
kv train -q -2 -o q.kvp d.kva 2>&1 | sed -E "s/[0-9a-f]{32}/DIGEST/g; s/; looked.*; give/; give/"
kv train -q -2 -o q.kvp --profile p.kvp d.kva 2> /dev/null
cmp p.kvp q.kvp
kv train -q -2 -o r.kvp --profile p.kvp b.kva 2> /dev/null

# Nothing is left behind.
kv pack -q -f --profile p.kvp -o /dev/full slot
kv train -q -f -2 -o /dev/full slot 2>&1 | tail -n 2
kv pack -q -M 1M --profile p.kvp -o x.kva slot
kv test -q -M 3M a.kva
kv pack --profile p.kvp -c slot | kv unpack --profile p.kvp - | cmp - slot
names | sed "s/$digest/DIGEST/"
