# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The manual lists each option, with its letter, its argument and its verbs.
man=$top/man/kvarc.1
kv --option-table | awk -F '\t' '{ v[$2 " " $3] = v[$2 " " $3] (v[$2 " " $3] ? ", " : "") $1; a[$2 " " $3] = $4 }
	END { for (k in v) print k, (a[k] == "-" ? "no" : "yes"), v[k] }' | sort > table
awk '/^\.It Fl/ {
		letter = "-"; name = ""; arg = "no"
		for (i = 3; i <= NF; i++) {
			if ($i ~ /^-[a-z]/) name = substr($i, 2)
			else if ($i == "Ar") arg = "yes"
			else if ($i ~ /^[A-Za-z]$/ && i == 3) letter = "-" $i
		}
		item = letter " " name " " arg
		getline
		if ($1 == ".Pq") sub(/^\.Pq /, "", $0); else $0 = "*"
		print item, $0
	}' "$man" | sort > manual
# Options of (nearly) all verbs say so by naming none.
sed -E 's/ pack, unpack, test, list, info, cut, append, log, compact, train, bench, eval(, profiles)?(, weights)?(, repair)?(, keygen)?(, session, store)?(, watch)?(, help)?$/ */' table > table2
diff table2 manual
if command -v mandoc > /dev/null; then
	for page in "$top"/man/*.[135]; do
		mandoc -T lint "$page" 2> /dev/null | grep -v 'referenced manual not found'
		# quotes of macros that nest where they should follow one another
		case $page in */kvarc_*) continue ;; esac # code of headers
		mandoc -T ascii "$page" | grep '""'
	done
fi
for verb in pack unpack test list info cut append log compact train bench eval profiles weights repair keygen session store watch help; do
	grep -q "^\.It Cm $verb" "$man" || echo "no $verb"
done
