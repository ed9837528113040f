# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The picture is well-formed and has a dot for each layer and kind.
kv pack -o a.kva "$SLOT"
kv info -q --plot bits.svg a.kva
grep -c '<circle.*layer' bits.svg
grep -o 'layer 0 key' bits.svg
grep -c "class='cut'" bits.svg
sed -n 's/.*>\(bits per element, from [0-9.]* on\)<.*/\1/p' bits.svg
if [ -n "${PYTHON3-}" ]; then
	"$PYTHON3" -c 'import xml.dom.minidom; xml.dom.minidom.parse("bits.svg")' || exit 1
fi
kv info -q --plot - a.kva | cmp - bits.svg
kv info -q --plot bits.svg a.kva

# With a profile also its stages and residuals, if it is at hand.
kv train -q -2 -o p.kvp "$SLOT" 2> /dev/null
kv pack -2 --profile p.kvp -o two.kva "$SLOT"
kv info -q --profile p.kvp --plot stages.svg two.kva
grep -c '<circle.*layer' stages.svg
grep -o '<circle.*layer 7 value, + same layer: [0-9]*\.' stages.svg | sed 's/.*layer 7/layer 7/; s/[0-9]*\.$/N/'
sed -n 's/.*>\([^<>]*of \(each stage\|residuals\|the profile\)[^<>]*\)<.*/\1/p' stages.svg
grep -c '<path.*bits</title>' stages.svg
if [ -n "${PYTHON3-}" ]; then
	"$PYTHON3" -c 'import xml.dom.minidom; xml.dom.minidom.parse("stages.svg")' || exit 1
fi
kv info -q --profile p.kvp --plot - two.kva | cmp - stages.svg
HOME=/ KVARC_PROFILE_PATH='' kv info --plot less.svg two.kva 2> messages > printed
sed -E 's/[0-9a-f]{32}/DIGEST/' messages >&2
grep -c '<circle.*layer' less.svg
