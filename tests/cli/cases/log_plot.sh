# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The picture of a session: a dot for each checkpoint and line, with the bytes that log shows.
needs JANSSON
kv pack -q -o all.kva "$SLOT"
for n in 59 99; do
	kv unpack -q --to llama --tokens 0-$n -o turn-$n all.kva
	kv append -q s.kva turn-$n
done
kv append -q s.kva "$SLOT"
kv log -q --plot turns.svg s.kva
# titles LINE: of its dots
titles() {
	sed -n "/<g class='$1'/,/<\/g>/ s/.*<title>\(.*\)<\/title>.*/\1/p" turns.svg
}
titles files
bytes=0
number=0
kv log --json s.kva | grep -o '"bytes":[0-9]*' | cut -d: -f2 > written
while read -r n; do
	bytes=$((bytes + n))
	number=$((number + 1))
	echo "checkpoint $number: $(awk "BEGIN { printf \"%.1f MB\", $bytes / 1e6 }")"
done < written > wanted
titles archive | cmp - wanted && echo "the bytes of log"
if [ -n "${PYTHON3-}" ]; then
	"$PYTHON3" -c 'import xml.dom.minidom; xml.dom.minidom.parse("turns.svg")' || exit 1
fi
kv log -q --plot - s.kva | cmp - turns.svg
# It is not overwritten, and log prints as ever.
kv log -q --plot turns.svg s.kva
kv log -f --plot turns.svg s.kva | wc -l
kv log --plot two.svg s.kva s.kva
kv log --plot none.svg all.kva
ls ./*.svg
