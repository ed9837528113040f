# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# A profile: used, embedded, missing, found by its digest, damaged, of another model.
HOME=$PWD/home
export HOME
unset KVARC_PROFILE_PATH
kv train -q -2 -o p.kvp "$SLOT" 2> /dev/null
digest=$(kv info --json p.kvp | sed 's/.*"digest":"\([0-9a-f]*\)".*/\1/')
hide() {
	sed -E "s|$digest|DIGEST|g; s|$PWD|HERE|g; s|/[^ ,;]*/share/kvarc/profiles; give|DATADIR; give|
		s/, [0-9.]+ [kM]?B/, N kB/; s/[0-9,]+ coefficients/N coefficients/"
}
kv info p.kvp | grep -E 'profile|level|RoPE' | hide
kv pack --profile p.kvp -o a.kva "$SLOT"
kv pack -2 --profile p.kvp --embed-profile -o e.kva "$SLOT"
kv pack -1 --profile p.kvp -o one.kva "$SLOT"
for file in a e one; do
	kv list $file.kva | grep -E 'predictor|digest|RoPE|^to read' | hide
	kv list --json $file.kva |
		sed -E 's/.*("predictor":.*),"checks".*("range_read":"[^"]*").*/\1 \2/' | hide
done

# Without it: the message says what is needed and where it was looked for.
for verb in test 'unpack -o x' 'cut --layers 0-1 -o x'; do
	# shellcheck disable=SC2086 # words
	kv $verb a.kva 2>&1 | hide
done
kv unpack - < a.kva 2>&1 | hide
KVARC_PROFILE_PATH=$PWD/one::$PWD/two kv test a.kva 2>&1 | hide
kv unpack -o e.bin e.kva
cmp e.bin "$SLOT"

# With it: given, in a folder, on a pipe.
kv unpack --profile p.kvp -o a.bin a.kva
cmp a.bin "$SLOT"
mkdir -p two home/.local/share/kvarc/profiles
cp p.kvp "two/$digest.kvp"
KVARC_PROFILE_PATH=$PWD/one:$PWD/two kv unpack -o - a.kva | cmp - "$SLOT"
mv "two/$digest.kvp" home/.local/share/kvarc/profiles
kv unpack - < a.kva | cmp - "$SLOT"
kv list a.kva | grep predictor | hide
kv cut -2 --profile p.kvp --layers 3-4 -o cut.kva a.kva
kv cut --profile p.kvp --layers 3-4 --embed-profile -o cut2.kva e.kva
kv test cut.kva
HOME=/ kv test cut2.kva

# What lies under the name is another profile, or none.
kv train -q -o other.kvp "$SLOT" 2> /dev/null
cp other.kvp "home/.local/share/kvarc/profiles/$digest.kvp"
kv test a.kva 2>&1 | hide
kv test --profile other.kvp a.kva 2>&1 | hide
cp "$SLOT" "home/.local/share/kvarc/profiles/$digest.kvp"
kv test a.kva 2>&1 | hide

# Wrong uses.
kv pack -3 --profile p.kvp -o x.kva "$SLOT"
kv pack --embed-profile -o x.kva "$SLOT"
kv pack -1 --profile p.kvp --embed-profile -o x.kva "$SLOT"
kv pack --profile "$SLOT" -o x.kva "$SLOT" 2>&1 | sed "s|$SLOT|SLOT|"
kv pack --profile none.kvp -o x.kva "$SLOT"
kv pack -2 --profile p.kvp --opaque -o opaque.kva "$SLOT" 2>&1 | sed "s|$SLOT|SLOT|"
kv info opaque.kva | grep predictor
names | hide
