# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Stores of every release, with the index that they have and without; what they exported.
needs SQLITE3
loaded() {
	while read -r digest session; do
		kv session load -q -f --store "$1" -o unpacked "$session"
		[ "$(sha256sum < unpacked)" = "$digest  -" ] || echo "$1: $session"
		rm -f unpacked
	done < release/sessions
}
umask 077
for release in "$top"/tests/compat/[0-9]*; do
	cp -R "$release" release
	chmod -R u+w release
	loaded release/store
	rm release/store/index.sqlite
	loaded release/store
	kv store verify --store release/store
	kv store import -q --store imported release/store.tar
	for session in chat other; do
		kv session load -q --store imported -o unpacked $session
		kv session load -q --store release/store -o last $session
		cmp unpacked last && rm unpacked last
	done
	kv session save -q --store release/store chat "$TENSORS"
	kv session log --store release/store chat | wc -l
	rm -rf release imported
done
