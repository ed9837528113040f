# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The picture is well-formed and has a dot for each layer and kind.
kv pack -o a.kva "$SLOT"
kv info -q --plot bits.svg a.kva
grep -c '<circle.*layer' bits.svg
grep -o 'layer 0 key' bits.svg
sed -n 's/.*>\(bits per element\)<.*/\1/p' bits.svg
if [ -n "${PYTHON3-}" ]; then
	"$PYTHON3" -c 'import xml.dom.minidom; xml.dom.minidom.parse("bits.svg")' || exit 1
fi
kv info -q --plot - a.kva | cmp - bits.svg
kv info -q --plot bits.svg a.kva
