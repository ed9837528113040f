#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Processes in one store of each kind: store_processes.sh [SECONDS [KIND...]], in the build folder.
#
# SECONDS for each kind (STORE_SECONDS, or 2). Kinds: folder; indexes (two index files, as of two
# machines); clocks (half an hour early and late, by libfaketime); s3 (s3_faults.py: 500, cut and
# lost answers, wrong ranges); redis (killed and started again, with every write on its disk);
# emptied (Redis that somebody empties: nothing that was acknowledged before is asked for).
# What a kind needs and is not there is skipped, by name.
set -u

here=$(cd "$(dirname "$0")" && pwd)
seconds=${1:-${STORE_SECONDS:-2}}
[ $# -eq 0 ] || shift
kinds=${*:-folder indexes clocks s3 redis emptied}
python=${PYTHON3:-python3}
program=$PWD/tests/store_processes
[ -x "$program" ] || exit 77
work=$(mktemp -d "${TMPDIR:-/tmp}/kvarc-stores.XXXXXX") || exit 99
redis_port=
s3=
stop() {
	[ ! -e "$work/redis.pid" ] || kill "$(cat "$work/redis.pid")" 2> /dev/null
	[ -z "$s3" ] || kill "$s3" 2> /dev/null
	# a server that ends writes once more
	rm -rf "$work" 2> /dev/null || { sleep 0.5 && rm -rf "$work"; }
}
trap stop EXIT

passed=0 failed=0 skipped=
skip() { # KIND WHY
	skipped="$skipped $1"
	echo "skipped: $1: $2"
}
check() { # KIND OPTION...
	kind=$1
	shift
	if "$program" "seconds=$seconds" "$@" > "$work/out" 2>&1; then
		passed=$((passed + 1))
		echo "ok: $kind: $(tail -n 1 "$work/out")"
		tail -n 2 "$work/out" | head -n 1
	else
		failed=$((failed + 1))
		echo "not: $kind: $(tail -n 1 "$work/out")"
		head -n 30 "$work/out"
	fi
}
built() { grep -q "^#define HAVE_$1 1" config.h; }

faketime_library() {
	for library in /usr/lib/*/faketime/libfaketime.so.1 /usr/lib*/faketime/libfaketime.so.1; do
		[ ! -e "$library" ] || { echo "$library" && return; }
	done
}

start_s3() {
	"$python" "$here/s3_faults.py" "$1" > "$work/s3" 2> "$work/s3.log" &
	s3=$!
	for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		grep -q '^ready ' "$work/s3" && break
		sleep 0.2
	done
	s3_port=$(sed -n 's/^ready //p' "$work/s3")
	[ -n "$s3_port" ]
}

# A server whose every write is on its disk when it answers.
make_redis() {
	redis_port=$("$python" -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
	cat > "$work/redis.sh" <<- END
		case \$1 in
		restart)
			kill -KILL "\$(cat "$work/redis.pid")"
			for i in 1 2 3 4 5 6 7 8 9 10; do # until it has gone
				kill -0 "\$(cat "$work/redis.pid")" 2> "$work/redis.err" || break
				sleep 0.1
			done
			;;
		empty) exec redis-cli -p $redis_port flushall > "$work/flushed" ;;
		esac
		redis-server --port $redis_port --bind 127.0.0.1 --save '' --appendonly yes \\
			--appendfsync always --dir "$work" --daemonize yes --logfile "$work/redis.log" \\
			--pidfile "$work/redis.pid" || exit 1
		for i in \$(seq 200); do # it reads all that was written
			case \$(redis-cli -p $redis_port ping 2> "$work/redis.err") in
			PONG) exit 0 ;;
			esac
			sleep 0.3
		done
		tail -n 5 "$work/redis.log"
		exit 1
	END
	sh "$work/redis.sh" start
}

for kind in $kinds; do
	case $kind in
	folder) check folder ;;
	indexes) check indexes indexes=2 seed=2 ;;
	clocks)
		library=$(faketime_library)
		case ${CFLAGS-} in *-fsanitize*) library= ;; esac # it has to be loaded first
		if [ -z "$library" ]; then
			skip clocks 'no libfaketime (Debian: libfaketime)'
		else
			check clocks "clocks=$library" seed=3
		fi
		;;
	s3)
		if ! built LIBCURL || ! "$python" -c '' 2> /dev/null; then
			skip s3 'no libcurl, or no Python'
		elif ! start_s3 "${S3_FAULTS:-.02}"; then
			failed=$((failed + 1))
			echo "not: s3: $(cat "$work/s3.log")"
		else
			set_faults="$python -c 'import urllib.request as r, sys
sys.stdout.write(r.urlopen(sys.argv[1]).read().decode())' http://127.0.0.1:$s3_port/_faults"
			check s3 "url=s3://bucket/prefix?endpoint=http://127.0.0.1:$s3_port" faults=1 \
				"calm=$set_faults?p=0" indexes=2 seed=4
			sed -n 's/^{.*/s3: &/p' "$work/out"
			kill "$s3"
			s3=
		fi
		;;
	redis | emptied)
		if ! built HIREDIS || ! command -v redis-server > /dev/null; then
			skip "$kind" 'no redis-server, or no hiredis'
		elif [ -z "$redis_port" ] && ! make_redis; then
			failed=$((failed + 1))
			echo "not: $kind: $(cat "$work/redis.log")"
		elif [ "$kind" = redis ]; then
			check redis "url=redis://127.0.0.1:$redis_port/1" faults=1 every=2 \
				"run=sh $work/redis.sh restart" seed=5
		else
			check emptied "url=redis://127.0.0.1:$redis_port/2" faults=1 every=2 \
				"void=sh $work/redis.sh empty" seed=6
		fi
		;;
	*)
		echo "store_processes.sh: no kind of store is called $kind" >&2
		exit 1
		;;
	esac
done
echo "processes in stores: $passed passed, $failed failed${skipped:+, skipped:$skipped}"
[ "$failed" -eq 0 ]
