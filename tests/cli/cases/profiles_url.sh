# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Profiles of a server: found by their digest, by no other one, and never without a word.
needs LIBCURL
python=${PYTHON3:-python3}
command -v "$python" > /dev/null || exit 77
HOME=$PWD/home
export HOME
unset http_proxy HTTP_PROXY
mkdir www
kv train -q -2 -o www/model.kvp "$SLOT" 2> /dev/null
echo 'not a profile' > www/page.kvp
"$python" -c '
import functools, http.server
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if not self.path.startswith("/to/"):
            return super().do_GET()
        self.send_response(302)
        self.send_header("Location", "file:///" if self.path == "/to/file" else
                         "http://127.0.0.1:%d/model.kvp" % s.server_port)
        self.end_headers()
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0),
                                    functools.partial(Handler, directory="www"))
print(s.server_port, flush=True)
s.serve_forever()' > port 2> /dev/null &
server=$!
while [ ! -s port ]; do sleep 0.05; done
url=http://127.0.0.1:$(cat port)
digest=$(kv info --json www/model.kvp | sed 's/.*"digest":"\([0-9a-f]*\)".*/\1/')
zero=00000000000000000000000000000000
hide() {
	sed -E "s|$digest|DIGEST|g; s|$PWD|HERE|g; s|$url|URL|g; s|[0-9.]+ kB|N kB|"
}
# nobody says that it is the one
kv profiles install "$url/model.kvp" 2>&1 < /dev/null | hide
kv profiles install --digest $zero "$url/model.kvp" 2>&1 | hide
kv profiles install "$url/page.kvp" 2>&1 | hide
kv profiles install "$url/none.kvp" 2>&1 | hide
kv profiles install http://example.org/model.kvp
# redirects that lead to something else than https
for to in file http; do
	kv profiles install --digest "$digest" "$url/to/$to" 2>&1 |
		sed -E 's/: [^:]*(rotocol).*/: p\1 .../' | hide
done
kv profiles install --digest $zero www/model.kvp 2>&1 | hide
kv profiles install --digest $zero www/model.kvp www/page.kvp
kv profiles list --digest $zero
[ ! -e home ] || echo 'something was installed'
kv profiles install --digest "$digest" "$url/model.kvp" 2>&1 | hide
kv profiles install --digest "$(echo "$digest" | tr a-f A-F)" "$url/model.kvp" 2>&1 | hide
cmp www/model.kvp "home/.local/share/kvarc/profiles/$digest.kvp" && echo 'the same'
kill $server
kv profiles install --digest "$digest" "$url/model.kvp" 2>&1 | sed "s/model.kvp: .*/model.kvp: .../" | hide
