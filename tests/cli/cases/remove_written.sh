# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# A source that another process maps writable, or has open for writing, stays.
needs SQLITE3
cp "$SLOT" a
status=0
"$MAP_WHILE" a "$KVARC" pack --rm a 2> why || status=$?
[ $status -ne 77 ] || skip "the file system gives no leases"
echo "exit $status"
grep 'not removed' why >&2
exec 3<> a
kv pack -f --rm a 3>&- 2>&1 | grep 'not removed\|exit' >&2
exec 3>&-
rm a.kva
mkdir in
cp "$SLOT" in/b.bin
for to in '' '--store store'; do
	# shellcheck disable=SC2086
	"$MAP_WHILE" in/b.bin "$KVARC" watch --once --rm $to in 2> why || echo "exit $?"
	grep 'not removed' why >&2
done
names | grep -v store/
# nobody has them now
kv pack -q -f --rm a
kv watch -q --once --rm in
names | grep -v store/
