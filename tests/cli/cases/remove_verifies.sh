# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# --rm has what is written decoded and compared before the source is removed.
needs SQLITE3
seen() {
	"$SEE_VERIFY" "$@"
}
cp "$SLOT" a
seen pack -q a
seen pack -q -f --verify a
seen pack -q -f --rm a
mkdir in
cp "$SLOT" in/b.bin
touch -d 2026-01-01 in/b.bin
seen watch -q --once in
seen watch -q --once --store store in
seen watch -q --once --rm --store store in
cp "$SLOT" in/b.bin
touch -d 2026-01-01 in/b.bin
seen watch -q --once --rm in
ls
ls in
