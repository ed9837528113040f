# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Slot files are packed when they are complete, also those that are written slowly.
needs SQLITE3
sizes() {
	sed 's/[0-9.]* [kM]*B written (.*/BYTES written (file: BYTES)/' >&2
}
# until COMMAND...: for 20 seconds
until_true() {
	n=0
	until "$@" 2> /dev/null; do
		n=$((n + 1))
		[ $n -lt 200 ] || {
			echo "never: $*"
			return 1
		}
		sleep .1
	done
}
# is_whole ARCHIVE FILE
is_whole() {
	[ -e "$1" ] && "$KVARC" unpack -q -f -o was "$1" && cmp -s was "$2"
}
is_gone() {
	[ ! -e "$1" ]
}
mkdir in out
cp "$SLOT" in/a.bin
head -c 300000 "$SLOT" > in/cut.bin
echo text > in/readme
cp "$SLOT" in/.hidden
mkdir in/folder
touch -d '2026-01-01' in/a.bin in/cut.bin in/readme
kv watch --once in 2>&1 | sizes
ls in
is_whole in/a.bin.kva "$SLOT" && echo "the same"
# nothing is new
kv watch --once in 2>&1 | sizes
rm in/cut.bin
kv watch --once --store store in 2>&1 | sizes
kv session log --store store a | wc -l
kv watch --once --rm -o out/ in 2>&1 | sizes
ls in out
# what is not saved stays: each of several, after an error, too
mkdir names
cp "$SLOT" names/x@3.bin
cp "$SLOT" ./names/-o.bin
kv watch --once --rm --store store names 2>&1 | sort >&2
ls names
# slowly, with a pause, and moved in; the command ends when it is asked to
for how in "" --poll; do
	"$KVARC" watch -q $how -o out/ --rm in 2> err &
	watcher=$!
	sleep .3
	{
		head -c 400000 "$SLOT"
		sleep 1.5
		tail -c +400001 "$SLOT"
	} > in/slow.bin
	cp "$SLOT" in/.moved
	mv in/.moved in/moved.bin
	until_true is_whole out/slow.bin.kva "$SLOT"
	until_true is_whole out/moved.bin.kva "$SLOT"
	until_true is_gone in/slow.bin
	until_true is_gone in/moved.bin
	kill -TERM $watcher
	{ wait $watcher; } 2> /dev/null
	cat err >&2
	ls in out
	rm out/slow.bin.kva out/moved.bin.kva
done
# a writer that stays, and one whose end is lost among more events than the system keeps
most=$(cat /proc/sys/fs/inotify/max_queued_events 2> /dev/null || echo 0)
"$KVARC" watch -q -o out/ in &
watcher=$!
sleep .5
exec 3> in/open.bin 4> in/lost.bin
cat "$SLOT" >&3
cat "$SLOT" >&4
sleep .5
kill -STOP $watcher
n=0
while [ $n -le "$most" ]; do
	: >> in/.x
	: >> in/.y
	n=$((n + 2))
done
exec 4>&-
kill -CONT $watcher
until_true is_whole out/lost.bin.kva "$SLOT"
until_true is_whole out/open.bin.kva "$SLOT"
exec 3>&-
kill -TERM $watcher
{ wait $watcher; } 2> /dev/null
ls out
kv watch
kv watch missing
kv watch --level 5 in
kv watch -o missing in
kv watch --namespace x in
kv watch --store s -o out/ in
