# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Encrypted archives: keys and passphrases in files, who may read them, what shows without.
kv keygen a.key
kv keygen a.key
kv keygen a b
[ "$(wc -c < a.key)" -eq 65 ] && grep -Eq '^[0-9a-f]{64}$' a.key && ls -l a.key | cut -c1-10
kv keygen b.key
cmp -s a.key b.key || echo "another key"
printf 'a passphrase\r\n' > pass
printf 'a passphrase' > same
chmod 600 pass same
kv pack -q --encrypt --key-file a.key -o key.kva "$SLOT"
kv pack -q --encrypt --passphrase-file pass --key-file b.key -o pass.kva "$SLOT"
ls -l key.kva pass.kva | cut -c1-10
# The file id is not that of the content.
kv pack -q --encrypt --key-file a.key -o again.kva "$SLOT"
kv info --json key.kva 2> /dev/null | grep -o '"file_id.*' > id
kv info --json again.kva 2> /dev/null | grep -o '"file_id.*' | cmp -s - id || echo "another file id"
# Nothing of it shows.
grep -c 'llama\|created_by' key.kva
kv test --key-file a.key key.kva
kv test --key-file b.key key.kva
kv test key.kva
kv test -v --passphrase-file same pass.kva 2>&1 | mask
kv test --key-file b.key pass.kva
kv test --key-file a.key --key-file b.key key.kva pass.kva
kv test -M 100M --passphrase-file pass pass.kva
kv unpack --passphrase-file pass -o back pass.kva && cmp back "$SLOT" && ls -l back | cut -c1-10
kv unpack --key-file a.key - < key.kva | cmp - "$SLOT" && echo "through a pipe"
kv list --key-file a.key key.kva | grep '^  size' | sed 's/->.*//'
kv list key.kva
kv info --key-file b.key pass.kva | grep encryption
hide() {
	sed -E 's/file id .*/file id HEX/; s/in [0-9]+ frames/in N frames/; s/[0-9.]+ MB in/SIZE in/'
}
kv info pass.kva | hide
kv info --json key.kva | mask
# cut and compact keep an archive encrypted.
kv cut -q --tokens 0-31 --key-file a.key -o cut.kva key.kva
kv test cut.kva
kv test --key-file a.key cut.kva
kv compact -q --key-file b.key -o compact.kva pass.kva
kv test compact.kva
kv compact -q --decrypt --key-file b.key -o plain.kva pass.kva
kv test plain.kva
kv compact -q --encrypt --key-file a.key -f -o plain.kva plain.kva && ls -l plain.kva | cut -c1-10
kv test plain.kva
kv compact -q --key-file a.key -f -o plain.kva --decrypt plain.kva
kv test --key-file a.key plain.kva
# An archive that grows: encrypted from its beginning, or not at all.
kv append -q --encrypt --key-file a.key grown.kva "$SLOT"
kv append -q grown.kva "$SLOT"
kv append -q --key-file a.key --label again grown.kva "$SLOT"
kv test --key-file a.key grown.kva
kv append -q --key-file a.key plain.kva "$SLOT"
# Damage, and salvage.
flip key.kva 1000000
kv test --key-file a.key key.kva 2>&1 | hide_offsets
kv unpack --salvage --key-file a.key -o saved key.kva 2>&1 | hide_offsets | amounts
# Keys that are none, or not private.
head -c 33 /dev/zero > long.key
: > empty
printf '%064d\n' 7 > digits.key
head -c 32 /dev/zero > raw.key
chmod 600 long.key empty digits.key raw.key
for key in long.key empty missing.key; do
	kv pack --encrypt --key-file $key -o x.kva "$SLOT"
done
kv pack --encrypt --passphrase-file empty -o x.kva "$SLOT"
for key in digits.key raw.key; do
	kv pack -q --encrypt --key-file $key -o $key.kva "$SLOT"
	kv test --key-file $key $key.kva
done
chmod 640 a.key
kv test --key-file a.key plain.kva
kv pack --key-file b.key "$SLOT"
kv pack --encrypt -o x.kva "$SLOT" < /dev/null
kv compact --encrypt --decrypt -o x.kva plain.kva
names
