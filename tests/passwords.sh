#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Passwords in URLs: no verb that takes a URL of a store or a server shows one, in its output, in its
# JSON or in its command line, whatever the service answers. KVARC is the command (./kvarc).
#
# Services: ports that nobody listens on, one that says nothing, a server that answers every request
# with an error, and Redis with a password, where redis-server is installed.
set -eu

kvarc=${KVARC:-./kvarc}
srcdir=${srcdir:-$(dirname "$0")/..}
. "$srcdir/tests/libraries_lock.sh"
libraries_lock -s
python=${PYTHON3:-python3}
command -v "$python" > /dev/null || {
	echo "passwords.sh: no Python" >&2
	exit 77
}
case $kvarc in */*) kvarc=$(cd "$(dirname "$kvarc")" && pwd)/${kvarc##*/} ;; esac
slot=$(cd "$srcdir" && pwd)/tests/data/sample/smollm2-135m-f16-160.slot
tmp=$(mktemp -d)
pids=
stop() {
	for pid in $pids; do kill "$pid" 2> /dev/null || :; done
	rm -rf "$tmp"
}
trap stop EXIT
cd "$tmp"
HOME=$tmp XDG_CACHE_HOME=$tmp/cache
export HOME XDG_CACHE_HOME
unset KVARC_STORE AWS_ENDPOINT_URL
secret=Hk7pZq3w

fail() {
	echo "passwords.sh: $*" >&2
	exit 1
}

# ports FILE: a socket that says nothing, an HTTP server of errors, and a port that is closed
cat > services.py <<'END'
import http.server, socket, sys, threading
silent = socket.create_server(("127.0.0.1", 0), backlog=64)
class Errors(http.server.BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b'{"error": {"message": "no"}}'
        self.send_response(503 if self.path.startswith("/bucket") else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer
    def log_message(self, *arguments):
        pass
errors = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Errors)
with socket.create_server(("127.0.0.1", 0)) as closed:
    ports = silent.getsockname()[1], errors.server_address[1], closed.getsockname()[1]
with open("ports.part", "w") as f:
    print(*ports, file=f)
import os
os.rename("ports.part", "ports")
errors.serve_forever()
END
"$python" services.py &
pids="$pids $!"
tries=0
while [ ! -e ports ] && [ $tries -lt 200 ]; do
	sleep 0.05
	tries=$((tries + 1))
done
read -r silent errors closed < ports || fail "the services do not start"

runs=0
# One command; its output is kept. The exit status may be any, but that of a signal.
try() {
	runs=$((runs + 1))
	echo "# $runs: $(echo "$*" | sed "s/$secret/SECRET/g")" >> all
	status=0
	timeout -k 1 60 "$kvarc" "$@" > out 2>&1 < /dev/null || status=$?
	cat out >> all
	[ $status -lt 124 ] || fail "exit $status: $*"
	! grep -q "$secret" out || fail "$(echo "$*" | sed "s/$secret/SECRET/g") shows the password: $(cat out)"
}
mkdir watched slots
# try_all OPTION...: every verb that takes a store, with these options
try_all() {
	cp "$slot" watched/one.bin
	: > tar
	try session save chat "$slot" "$@"
	try session load chat -f -o loaded "$@"
	try session log chat "$@"
	try session list "$@"
	try session fork chat "fork$runs" "$@"
	try session rm "fork$runs" "$@"
	try session find "$slot" "$@"
	try session send chat -f -o sent "$@"
	try session receive again sent "$@"
	try store stat "$@"
	try store verify "$@"
	try store gc "$@"
	try store rebuild "$@"
	try store have "$@"
	try store export -f -o tar "$@"
	try store import tar "$@"
	try session check chat --server "http://user:$secret@127.0.0.1:$closed" --slot-folder slots "$@"
}

# Redis that is not there, and URLs that are not right.
for url in "redis://:$secret@127.0.0.1:$closed" "redis://user:$secret@127.0.0.1:$closed/1" \
	"redis:/:$secret@127.0.0.1" "rediss://:$secret@127.0.0.1" "redis://:$secret/x@127.0.0.1:$closed" \
	"redis://:$secret?x@127.0.0.1:$closed" "redis%3A%2F%2F:$secret%40127.0.0.1" \
	"s3://user:$secret@bucket" "s3://bucket?endpoint=$secret:x@127.0.0.1:$closed" \
	"s3://bucket?endpoint=http://user:$secret/x@127.0.0.1:$closed" \
	"s3://bucket?endpoint=http%3A%2F%2Fuser%3A$secret%40127.0.0.1%3A$closed" \
	"s3://bucket?endpiont=http://user:$secret@127.0.0.1:$closed"; do
	try store stat --store "$url"
	try session save chat "$slot" --json -v --store "$url"
	KVARC_STORE=$url try store gc -v
	case $url in *://*) try pack "$url" ;; esac
done
try_all --store "redis://:$secret@127.0.0.1:$closed"
try_all --json -v --store "redis://:$secret@127.0.0.1:$closed"
try watch --once --store "redis://:$secret@127.0.0.1:$closed" watched
# S3 that is not there, and one that answers with errors; the endpoint of the environment.
for port in $closed $errors; do
	url="s3://bucket/p?region=r&endpoint=http://user:$secret@127.0.0.1:$port"
	try session save chat "$slot" --store "$url"
	try session list --json -v --store "$url"
	try store verify --store "$url"
	AWS_ENDPOINT_URL=http://user:$secret@127.0.0.1:$port try store stat --store s3://bucket
	AWS_ACCESS_KEY_ID=id AWS_SECRET_ACCESS_KEY=$secret AWS_SESSION_TOKEN=$secret \
		try store gc --store "s3://bucket?endpoint=http://127.0.0.1:$port"
	AWS_ACCESS_KEY_ID=id AWS_SECRET_ACCESS_KEY=$secret try store gc --store "$url"
done
# Servers.
for url in "http://user:$secret@127.0.0.1:$closed" "http://user:$secret@127.0.0.1:$errors" \
	"http://user:$secret/x@127.0.0.1:$closed" "user:$secret@127.0.0.1:$errors" \
	"http://user:$secret@127.0.0.1:$errors/$secret@" ; do
	for verb in save load check; do
		try session $verb chat --server "$url" --slot-folder slots --store local
		LLAMA_API_KEY=$secret try session $verb chat --json -v --server "$url" \
			--slot-folder slots --store local
	done
	try session save chat --server "$url" --store local
done
# Redis with a password: all works, a wrong password, and an AUTH that it does not know.
if command -v redis-server > /dev/null; then
	port=$("$python" -c 'import socket
with socket.create_server(("127.0.0.1", 0)) as s: print(s.getsockname()[1])')
	# start OPTION...
	start() {
		: > redis.log # what the one before has said is not read
		redis-server --port "$port" --bind 127.0.0.1 --save '' --daemonize no "$@" \
			> redis.log 2>&1 &
		redis=$!
		pids="$pids $redis"
		tries=0
		while ! grep -q "eady to accept" redis.log && [ $tries -lt 200 ]; do
			sleep 0.05
			tries=$((tries + 1))
		done
	}
	start --requirepass "$secret"
	try_all --store "redis://:$secret@127.0.0.1:$port"
	grep -q "version 1" all || fail "nothing was saved in Redis"
	try_all --json -v --store "redis://:$secret@127.0.0.1:$port"
	try watch --once --store "redis://:$secret@127.0.0.1:$port" watched
	try store stat --store "redis://:${secret}x@127.0.0.1:$port"
	try store stat --json -v --store "redis://:x$secret@127.0.0.1:$port"
	kill $redis
	{ wait $redis; } 2> /dev/null || :
	start --rename-command AUTH ''
	try store stat --store "redis://:$secret@127.0.0.1:$port"
	grep -q "repeats the password" out || fail "another answer to AUTH: $(cat out)"
else
	echo "passwords.sh: skipped, as there is no redis-server: a store that answers"
fi
# The command line, while the command waits for an answer.
for what in store server; do
	set -- session list --store "redis://:$secret@127.0.0.1:$silent"
	[ $what = store ] ||
		set -- session save chat --store local --slot-folder slots \
			--server="http://user:$secret@127.0.0.1:$silent"
	"$kvarc" "$@" > out 2>&1 &
	pid=$!
	pids="$pids $pid"
	tries=0
	until tr '\0' ' ' < /proc/$pid/cmdline | grep -q "//127.0.0.1:$silent" || [ $tries -eq 100 ]; do
		sleep 0.05
		tries=$((tries + 1))
	done
	[ $tries -lt 100 ] || fail "the command line of --$what: $(tr '\0' ' ' < /proc/$pid/cmdline | sed "s/$secret/SECRET/")"
	kill $pid
	{ wait $pid; } 2> /dev/null || :
done
# The URLs themselves were shown.
[ "$(grep -c "127.0.0.1:$closed" all)" -gt 40 ] || fail "the URLs do not show"
! grep -q "$secret" all || fail "the password shows"
echo "passwords.sh: $runs runs, none shows the password"
