#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What a store promises, through the command: store_laws.sh, in the build folder.
#
# Archives that are cut, damaged, exchanged, copied back and received again; an index of another
# host; services that cannot keep the promise, with s3_faults.py and Redis. Each was an attack that
# lost versions once. KVARC is the command (./kvarc). What is not there is skipped, by name.
set -u

here=$(cd "$(dirname "$0")" && pwd)
srcdir=${srcdir:-$here/..}
. "$here/libraries_lock.sh"
libraries_lock -s
kvarc=${KVARC:-$PWD/kvarc}
python=${PYTHON3:-python3}
build=$PWD
case $srcdir in /*) ;; *) srcdir=$PWD/$srcdir ;; esac
tmp=$(mktemp -d) || exit 99
service=
stop() {
	[ -z "$service" ] || kill "$service" 2> /dev/null
	rm -rf "$tmp"
}
trap stop EXIT
cd "$tmp" || exit 99
XDG_CACHE_HOME=$tmp/cache HOME=$tmp KVARC_CACHE=off
export XDG_CACHE_HOME HOME KVARC_CACHE
unset KVARC_STORE KVARC_MODEL_PATH KVARC_PROFILE_PATH

passed=0 failed=0 skipped=
# must WHAT COMMAND...: the command succeeds
must() {
	what=$1
	shift
	if "$@" > out 2> err; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "not: $what: $(tail -n 2 err)"
	fi
}
# must_not WHAT COMMAND...: it fails with status 1 and says why
must_not() {
	what=$1
	shift
	"$@" > out 2> err
	status=$?
	if [ $status -eq 1 ] && [ -s err ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "not: $what: status $status, $(tail -n 2 err)"
	fi
}
skip() { # NAME WHY
	skipped="$skipped $1"
	echo "skipped: $1: $2"
}
k() { "$kvarc" "$@" --store "${store:-A}"; }
save() { k session save -q "$@"; }
# loads VERSION FILE [OPTION...]
loads() {
	version=$1 file=$2
	shift 2
	k session load -q -f -o back "$version" "$@" && cmp back "$file"
}
# The archives of a store, the one that was put first in front.
archives() { find A/packs -name '*.kva' -exec stat -c '%.Y %n' {} + | sort | cut -d ' ' -f 2; }
# Bytes of 0xff in the middle of a file.
burst() {
	printf '\377\377\377\377\377\377\377\377' |
		dd of="$1" bs=1 seek=$(($(wc -c < "$1") / 2)) conv=notrunc 2> /dev/null
}
# A session of 100 tokens in one archive, $first; others that share it in $second.
two_archives() {
	rm -rf A B back
	if [ -d two ]; then
		cp -a two A
	else
		save a t100
		first=$(archives)
		sleep 0.02
		save c t160
		second=$(archives | grep -v "$first")
		save b t40 --namespace other
		cp "$first" first.good
		cp "$second" second.good
		cp -a A two
	fi
}

"$kvarc" pack -q -o all.kva "$srcdir/tests/data/sample/smollm2-135m-f16-160.slot" || exit 99
for n in 10 40 60 80 100 120 140 160; do
	"$kvarc" unpack -q --to llama --tokens "0-$((n - 1))" -o t$n all.kva || exit 99
done
save probe t10 || { echo 'no stores in this build' && exit 77; }
rm -rf A

# ----- an archive that was cut, or is not there as a whole
damage() { # KIND FILE: what happens to an archive
	case $1 in
	cut) truncate -s 1000000 "$2" ;;
	end) truncate -s -1680 "$2" ;;
	zeros) truncate -s -4096 "$2" && truncate -s +4096 "$2" ;;
	empty) : > "$2" ;;
	gone) rm "$2" ;;
	folder) rm "$2" && mkdir "$2" ;;
	link) rm "$2" && ln -s "$tmp/first.good" "$2" ;;
	exchanged) mv "$first" x && mv "$second" "$first" && mv x "$second" ;;
	burst) burst "$2" ;;
	esac
}
for kind in cut end zeros empty gone exchanged burst; do
	two_archives
	damage $kind "$first"
	must_not "$kind: verify names it" k store verify
	# a load that succeeds gives the bytes
	if k session load -q -f -o back a 2> err; then
		must "$kind: what loads" cmp back t100
	fi
	must "$kind: save" save c t140
	must "$kind: load behind it" loads c t140
	must "$kind: save of a new session" save new t120
	must "$kind: load of it" loads new t120
	must "$kind: save of the same" save a t100
	must "$kind: load of that" loads a t100
done
# something else has the key: what is acknowledged loads
for kind in folder link; do
	two_archives
	damage $kind "$first"
	must_not "$kind: verify names it" k store verify
	! save c t140 2> err || must "$kind: load behind it" loads c t140
	must "$kind: load of what does not need it" loads b t40 --namespace other
done
# the same at once, without verify, which has taught the index
for kind in cut zeros empty gone; do
	two_archives
	damage $kind "$first"
	must "$kind: save at once" save c t140
	must "$kind: load behind it" loads c t140
done

# ----- gc beside what is cut: nothing goes that a copy needs
for bytes in 64 400 1000 1600 5000 100000; do
	two_archives
	k session rm -q a
	truncate -s $bytes "$second"
	k store gc --grace 0 > out 2> err
	must "gc, cut to $bytes: what it needs" [ -e "$first" ]
	cp second.good "$second"
	must "gc, cut to $bytes, copied back" loads c t160
done

# ----- copied back
for kind in cut+rebuild cut+index empty+rebuild burst+rebuild burst+load gone+rebuild; do
	two_archives
	damage ${kind%+*} "$first"
	case $kind in
	*+rebuild) k store rebuild -q 2> err ;;
	*+index) rm -f A/index.sqlite* ;;
	esac
	k session load -q -f -o back c 2> err
	cp first.good "$first"
	must "copied back, $kind: load" loads c t160
	must "copied back, $kind: load of a" loads a t100
	must "copied back, $kind: verify" k store verify
done

# ----- received and imported over what is damaged
damaged_receiver() { # KIND
	rm -rf B
	store=A
	two_archives
	k session send c > stream 2> err
	k store export -q -o export.tar 2> err
	store=B
	"$kvarc" session receive -q c --store B < stream
	for f in B/packs/*/*.kva; do damage "$1" "$f"; done
}
for kind in burst empty cut end; do
	damaged_receiver $kind
	k session load -q -f -o back c 2> err
	must "$kind: receive again" "$kvarc" session receive -q c --store B stream
	must "$kind: load behind it" loads c t160
	damaged_receiver $kind
	must "$kind: receive as another" "$kvarc" session receive -q d --store B stream
	must "$kind: load of that" loads d t160
	damaged_receiver $kind
	must "$kind: import" "$kvarc" store import -q --store B export.tar
	must "$kind: load of what was imported" loads c t160
	store=
done
store=

# ----- numbers
rm -rf A
for n in 40 60 80; do save chat/x t$n; done
k session rm -q chat/x
must 'save behind rm' k session save chat/x t100 --json
cp out json
must 'a number is used once' grep -q '"version":4' json
must 'load of version 4' loads chat/x@4 t100

# ----- an index of another host, or none
two_archives
k session list --index B.sqlite > out 2> err
save c t140
save a t80
for index in B.sqlite new.sqlite; do
	must "$index: load" loads c t140 --index $index
	must "$index: load of the first" loads c@1 t160 --index $index
	must "$index: verify" k store verify --index $index
	must "$index: gc" k store gc --grace 0 --index $index
	must "$index: load behind gc" loads a@1 t100 --index $index
done
if "$python" -c 'import sqlite3' 2> err; then
	for table in segments packs refs; do
		two_archives
		"$python" -c "import sqlite3
c = sqlite3.connect('A/index.sqlite')
c.execute('delete from $table where rowid = (select min(rowid) from $table)')
c.commit()"
		must "a row of $table is lost: load" loads c t160
		must "a row of $table is lost: verify" k store verify
	done
else
	skip rows 'no sqlite3 of Python'
fi

# ----- a budget on two hosts
library=
for file in /usr/lib/*/faketime/libfaketime.so.1; do
	[ ! -e "$file" ] || library=$file
done
case ${CFLAGS-} in *-fsanitize*) library= ;; esac # it has to be loaded first
if [ -n "$library" ]; then
	early() { LD_PRELOAD=$library FAKETIME=-5h "$@"; }
	rm -rf A
	for n in 40 60 80; do early "$kvarc" session save -q a t$n --store A --index A.sqlite; done
	early "$kvarc" session list --store A --index B.sqlite > out
	must 'load on this host' loads a@1 t40 --index A.sqlite
	# all was used lately, which is a warning: the budget is not met
	warns() { k "$@"; [ $? -eq 2 ]; }
	must 'gc --budget on another host' warns store gc --budget 1K --index B.sqlite
	must 'what was loaded lately is there' loads a@1 t40 --index A.sqlite
else
	skip budget 'no libfaketime (Debian: libfaketime)'
fi

# ----- services that cannot keep the promise
built() { grep -q "^#define HAVE_$1 1" "$build/config.h"; }
wait_for() { # COMMAND...
	for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		"$@" > out 2>&1 && return
		sleep 0.2
	done
	echo "not: no answer: $*"
}
# weak WHAT: a save is refused with one line, unless the user insists
weak() {
	must_not "$1: refused" save chat t40
	must "$1: in one line" test "$(wc -l < err)" -eq 1
	must_not "$1: nothing is there" loads chat t40
	must "$1: accepted" save chat t40 --accept-weak-store
	must "$1: load" loads chat t40
	must "$1: the second save" save chat t60 --accept-weak-store
}
if built LIBCURL && "$python" -c '' 2> err; then
	"$python" "$here/s3_faults.py" > s3 2> s3.log &
	service=$!
	wait_for grep -q '^ready ' s3
	port=$(sed -n 's/^ready //p' s3)
	faults() {
		"$python" -c 'import sys, urllib.request
urllib.request.urlopen(sys.argv[1]).read()' "http://127.0.0.1:$port/_faults?$1"
	}
	store="s3://bucket/a?endpoint=http://127.0.0.1:$port"
	must 'S3: save' save chat t40
	must 'S3: load' loads chat t40
	faults weak=1
	store="s3://bucket/b?endpoint=http://127.0.0.1:$port"
	weak 'S3 without conditions'
	store=
	kill "$service"
	service=
else
	skip S3 'no libcurl, or no Python'
fi
if built HIREDIS && command -v redis-server > out; then
	port=$("$python" -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
	redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$tmp" > redis.log 2>&1 &
	service=$!
	wait_for redis-cli -p "$port" ping
	redis() { redis-cli -p "$port" "$@" > out; }
	store=redis://127.0.0.1:$port/1
	must 'Redis: save' save a t100
	# what is shared is evicted alone, or all is
	redis -n 1 flushdb
	must 'Redis, emptied: save' save a t160
	must 'Redis, emptied: load' loads a t160
	save b t160 --label shared
	key=$(redis-cli -p "$port" -n 1 --raw keys '*packs*' | head -n 1)
	redis -n 1 del "$key"
	k session load -q -f -o back a 2> err
	must 'Redis, an archive is evicted: save' save a t140
	must 'Redis, an archive is evicted: load' loads a t140
	redis config set maxmemory 200mb
	redis config set maxmemory-policy allkeys-lru
	store=redis://127.0.0.1:$port/2
	weak 'Redis that evicts'
	redis config set maxmemory-policy noeviction
	store=redis://127.0.0.1:$port/3
	must 'Redis with a limit that refuses: save' save chat t40
	store=
else
	skip Redis 'no redis-server, or no hiredis'
fi

echo "laws: $passed passed, $failed failed${skipped:+, skipped:$skipped}"
[ "$failed" -eq 0 ]
