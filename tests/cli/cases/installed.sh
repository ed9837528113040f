# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Levels 2 and 3 without --profile: the installed profile that fits, the same for each verb.
needs SQLITE3
KVARC_STORE=store
KVARC_PROFILE_PATH=$PWD/profiles
HOME=/
export KVARC_STORE KVARC_PROFILE_PATH HOME
cp "$SLOT" slot
hide() {
	sed -E 's/[0-9a-f]{32}/DIGEST/; s/[0-9.]+ [kM]?B/BYTES/g; s|, /.*||; s|^/.*/||' >&2
}
# none: pack tries to fit one, versions have level 1
kv pack -2 -o none.kva slot
kv append -2 none.kva slot 2>&1 | hide
kv session save -3 none slot 2>&1 | hide
# a broken one is passed over
mkdir profiles
cp slot profiles/broken.kvp
kv profiles install "$top/tests/data/sample/smollm2-135m-level2.kvp" 2>&1 | sed 's/:.*//; s|.*/||' >&2
kv pack -2 -o two.kva slot 2>&1 | hide
kv pack -3 -o three.kva slot 2>&1 | hide
kv append -2 more.kva slot 2>&1 | hide
kv session save -2 --namespace other two slot 2>&1 | hide
for archive in two three more; do
	kv info $archive.kva | grep -E 'predictor|codecs' | hide
	kv unpack -f -o back $archive.kva && cmp back slot
done
kv session load -q -f --namespace other two -o back && cmp back slot
# level 1 and files of other caches take none
kv pack -1 -o one.kva slot
kv pack -2 -o hybrid.kva "$top/tests/data/import/engine-hybrid.bin" 2>&1 | sed 's|.*/||' >&2
KVARC_PROFILE_PATH=$PWD/nowhere kv unpack -f -o back two.kva 2>&1 | sed 's/:.*is needed.*/: needed/' >&2
