# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Archives of every release unpack to what was packed (tests/compat/make.py).
umask 077 # of keys
for release in "$top"/tests/compat/[0-9]*; do
	cp -R "$release" release
	while read -r digest archive options; do
		# shellcheck disable=SC2086 # words
		(cd release && kv unpack -q -f -o ../unpacked $options "$archive")
		[ "$(sha256sum < unpacked)" = "$digest  -" ] || echo "$release/$archive $options"
		rm -f unpacked
		# shellcheck disable=SC2086 # words
		(cd release && kv test -q ${options%%--checkpoint*} "$archive")
	done < release/list
	wc -l < release/list
	chmod -R u+w release
	rm -rf release
done
