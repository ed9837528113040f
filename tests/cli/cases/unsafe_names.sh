# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Names in an archive cannot lead out of the folder.
escape=$(printf 'a\033[31mred')
mkdir -p deep/er
cd deep/er || exit 1
for name in ../up /tmp/kvarc-test-root .. . a/../../b a//b /a sub/ok; do
	"$MAKE_NAMED" "$name" > a.kva
	kv unpack -q -o in/ a.kva
	kv unpack -q a.kva
	(cd ../.. && find . ! -name a.kva -type f -exec sh -c 'echo "$1 -> $2"' sh "$name" {} \; -exec rm {} \;)
	[ ! -e /tmp/kvarc-test-root ] || echo "written to /tmp"
done
"$MAKE_NAMED" "$escape" > a.kva
kv unpack -q -o in/ a.kva
kv info a.kva | grep red
kv info --json a.kva | grep -o '"name":"[^"]*"'
# Two items of one name: none is written.
ln -s "$top/spec/vectors/good-restore-two-names.kva" two.kva
kv unpack -q -o two/ two.kva
[ ! -e two/same ] || echo "one was written over the other"
