#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Slots of the turns of one conversation, saved one after the other: peers_dedup.sh SLOT...
#
# $KVARC append, $KVARC session save, restic and borg (Debian: restic, borgbackup) each get the
# slots in this order, under one name, and keep all of them. Prints the bytes that each has stored
# in the end, the seconds of all saves, and those of loading the last slot. The plain files and
# zstd -3 of each stand beside. All loads are compared. A folder in $TMPDIR is used and removed.
set -eu

: "${KVARC:?the kvarc command}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export KVARC_STORE=$work/store RESTIC_REPOSITORY=$work/restic RESTIC_PASSWORD=x
export BORG_REPO=$work/borg BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes
export XDG_CACHE_HOME=$work/cache BORG_BASE_DIR=$work/borgbase
last=${!#}
slot=$work/slot.bin

bytes_in() { du -sb --apparent-size "$1" | cut -f1; }
now() { date +%s.%N; }
run() { # NAME PLACE SAVE LOAD
	local name=$1 place=$2 begin saved loaded i=0 s
	begin=$(now)
	for s in "${slots[@]}"; do
		i=$((i + 1))
		cp "$s" "$slot"
		"$3" "$i" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
	done
	saved=$(now)
	rm -f "$work/out.bin"
	"$4" "$i" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
	loaded=$(now)
	cmp "$work/out.bin" "$last"
	awk -v name="$name" -v bytes="$(bytes_in "$place")" -v full="$full" -v a="$begin" \
		-v b="$saved" -v c="$loaded" 'BEGIN { printf "%-24s %14d %8.2fx %9.2f s %9.2f s\n",
			name, bytes, full / bytes, b - a, c - b }'
}

append_save() { "$KVARC" append -q "$work/session.kva" "$slot"; }
append_load() { "$KVARC" unpack -q -f -o "$work/out.bin" "$work/session.kva"; }
store_save() { "$KVARC" session save -q chat "$slot"; }
store_load() { "$KVARC" session load -q chat -f -o "$work/out.bin"; }
restic_save() { restic backup -q "$slot"; }
restic_load() {
	restic restore -q latest --target "$work/restored"
	mv "$work/restored$slot" "$work/out.bin"
}
borg_save() { (cd "$work" && borg create --compression zstd,3 "::turn-$1" slot.bin); }
borg_load() { (cd "$work" && mkdir -p b && cd b && borg extract "::turn-$1" && mv slot.bin "$work/out.bin"); }
plain_save() { mkdir -p "$work/plain" && cp "$slot" "$work/plain/$1" && sync "$work/plain/$1"; }
plain_load() { cp "$work/plain/$1" "$work/out.bin"; }
zstd_save() { mkdir -p "$work/zstd" && zstd -q -3 -o "$work/zstd/$1" "$slot" && sync "$work/zstd/$1"; }
zstd_load() { zstd -q -d -o "$work/out.bin" "$work/zstd/$1"; }

slots=("$@")
full=0
for s; do
	full=$((full + $(stat -c %s "$s")))
done
echo "$# slots, $full bytes in all, the last one $(stat -c %s "$last")"
printf '%-24s %14s %9s %11s %11s\n' '' 'bytes stored' 'of files' 'all saves' 'last load'
run 'plain files' "$work/plain" plain_save plain_load
run 'zstd -3' "$work/zstd" zstd_save zstd_load
if command -v restic > /dev/null; then
	restic init -q
	run "restic $(restic version | cut -d' ' -f2)" "$work/restic" restic_save restic_load
fi
if command -v borg > /dev/null; then
	borg init --encryption=none
	run "$(borg --version | tr A-Z a-z), zstd 3" "$work/borg" borg_save borg_load
fi
run 'kvarc append' "$work/session.kva" append_save append_load
run 'kvarc session save' "$work/store" store_save store_load
