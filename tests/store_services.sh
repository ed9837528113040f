#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Stores in real services: store_services.sh FOLDER, in the build folder.
#
# Starts redis-server (Debian: redis-server) and moto's S3 server, which checks signatures, on
# free ports of the loopback, runs the calls of backends and blocks and the suite of the command
# against both, and stops them. FOLDER gets a virtual environment with moto once (network).
#
# KV_SERVICES=quick: Redis alone.
set -eu

folder=${1:?folder}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
work=$(mktemp -d)
redis=
moto=
stop() {
	[ -z "$redis" ] || kill "$redis" 2> /dev/null || :
	[ -z "$moto" ] || kill "$moto" 2> /dev/null || :
	rm -rf "$work"
}
trap stop EXIT

passed=0
failed=0
result() { # OK-OR-NOT WHAT
	if [ "$1" = ok ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
	fi
	echo "$1: $2"
}
free_port() {
	"${PYTHON3:-python3}" -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}
wait_for() { # COMMAND...
	for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		if "$@" > /dev/null 2>&1; then
			return 0
		fi
		sleep 0.5
	done
	echo "no answer: $*" >&2
	return 1
}
check() { # NAME URL
	for test in backends blocks; do
		if KVARC_TEST_STORES=$2 "tests/unit/test_$test" > "$work/log" 2>&1; then
			result ok "$1: the calls of $test"
		else
			tail -n 20 "$work/log"
			result not "$1: the calls of $test"
		fi
	done
	if "$here/store_suite.sh" "$2" > "$work/log" 2>&1; then
		result ok "$1: sessions, $(tail -n 1 "$work/log")"
	else
		tail -n 20 "$work/log"
		result not "$1: sessions"
	fi
}

command -v redis-server > /dev/null || { echo "no redis-server (Debian: redis-server)" >&2; exit 1; }
port=$(free_port)
redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$work" --requirepass secret \
	> "$work/redis.log" 2>&1 &
redis=$!
wait_for redis-cli -p "$port" -a secret ping
check Redis "redis://:secret@127.0.0.1:$port/3?prefix=test:"

if [ "${KV_SERVICES:-all}" = all ]; then
	if [ ! -e "$folder/ready-1" ]; then
		rm -rf "$folder/venv"
		"${PYTHON3:-python3}" -m venv "$folder/venv"
		timeout 600 "$folder/venv/bin/python" -m pip install -q --disable-pip-version-check \
			'moto[s3,server,iam]'
		touch "$folder/ready-1"
	fi
	port=$(free_port)
	MOTO_PORT=$port "$folder/venv/bin/python" "$here/moto_server.py" > "$work/moto.log" 2>&1 &
	moto=$!
	wait_for grep -q '^ready ' "$work/moto.log"
	# behind the lines of its own log
	sed -n 's/^ready //p' "$work/moto.log" > "$work/key"
	read -r AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY < "$work/key"
	export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
	check S3 "s3://bucket/a/prefix?endpoint=http://127.0.0.1:$port"
	# signatures are checked: another secret is refused
	if AWS_SECRET_ACCESS_KEY=wrong KVARC_TEST_STORES="s3://bucket?endpoint=http://127.0.0.1:$port" \
		tests/unit/test_backends > "$work/log" 2>&1; then
		result not "S3: a wrong secret key is accepted"
	elif grep -q ' 403 ' "$work/moto.log"; then
		result ok "S3: a wrong secret key is refused"
	else
		tail -n 20 "$work/log"
		result not "S3: a wrong secret key fails otherwise"
	fi
fi
echo "services: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
