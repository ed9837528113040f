#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""One life of a llama.cpp server whose slots go into a store of kvarc and come back.

session.py MODEL.gguf FOLDER TYPE STREAMS ACTION

TYPE is the cache type, STREAMS the number of parallel sequences. The store is FOLDER/store, the
command $KVARC. Actions: "save NAME" reads a prompt into slot 0 and saves it as NAME; "life" does
that, forgets the slot, restores it by NAME and continues: the tokens must be those of the life
that never stopped, from the cache. Files of slots are in the same sessions. What a slot held stays in its folder when it cannot be brought
back. Then NAME of another server in $OTHERS are refused, and the
server still works. Prints "ok" or what is wrong; listens on loopback only.
"""
import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request

from engine import PROMPT, QUESTION

LIMIT_SECONDS = 240


def fail(text):
    print(text)
    sys.stdout.flush()
    os._exit(1)


def start(model, folder, kind, streams):
    import xllamacpp as x
    p = x.CommonParams()
    p.model.path = model
    p.n_ctx, p.n_parallel, p.n_predict, p.warmup = 1024 * streams, streams, 1, False
    p.slot_save_path = os.path.join(os.path.abspath(folder), '')
    p.endpoint_slots = True
    p.cpuparams.n_threads = 2
    p.cache_type_k = p.cache_type_v = getattr(x.ggml_type, 'GGML_TYPE_' + kind.upper())
    p.flash_attn_type = x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    return x.Server(p)


def without_restores(url):
    """The URL of a server that passes all requests on to another one, but refuses to restore."""
    class Between(http.server.BaseHTTPRequestHandler):
        def answer(self):
            n = int(self.headers.get('Content-Length') or 0)
            body, status = self.rfile.read(n) if n else None, 200
            if 'action=restore' in self.path:
                status, said = 500, b'{"error": {"message": "made to fail"}}'
            else:
                try:
                    request = urllib.request.Request(url + self.path, body,
                                                     {'Content-Type': 'application/json'})
                    said = urllib.request.urlopen(request, timeout=120).read()
                except urllib.error.HTTPError as e:
                    status, said = e.code, e.read()
            self.send_response(status)
            self.send_header('Content-Length', str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = answer

        def log_message(self, *_):
            pass
    between = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Between)
    threading.Thread(target=between.serve_forever, daemon=True).start()
    return 'http://127.0.0.1:%d' % between.server_port


def one_identity(folder, slots, post, kvarc):
    """The same slot from the server and from its file is the same session."""
    run = [os.environ['KVARC'], 'session', '--store', os.path.join(folder, 'store')]
    held = os.path.join(folder, 'held.bin')
    post('/slots/0?action=save', {'filename': 'held'})
    os.rename(os.path.join(slots, 'held'), held)

    def of_file(*words):
        done = subprocess.run(run + list(words), capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    kvarc('save', 'served')
    said = {'a file after a server': of_file('save', 'served', held, '--label', 'x'),
            'a server after a file': None, 'another session': of_file('save', 'filed', held)}
    said['a server after a file'] = kvarc('save', 'filed', '--label', 'y')
    for what, text in said.items():
        if ' 0 kept' in text or ' 0 new' not in text:
            fail('%s: %s' % (what, text))
    for how, text in (('a file', of_file('find', held)), ('a slot', kvarc('find'))):
        if 'served@2' not in text or 'filed@2' not in text:
            fail('find by %s: %s' % (how, text))
    text = kvarc('load', 'served@2')  # which a file has made: no server is known
    if 'tokens restored' not in text or 'which model' not in text:
        fail('a load does not say what it did: ' + text)
    os.unlink(held)


def main(model, folder, kind, streams, action, name):
    watch = threading.Timer(LIMIT_SECONDS, lambda: os._exit(3))
    watch.daemon = True
    watch.start()
    slots = os.path.join(folder, 'slots')
    os.makedirs(slots, exist_ok=True)
    server = start(model, slots, kind, int(streams))
    url = server.listening_address
    if not url.startswith('http://127.0.0.1:'):
        fail('not on loopback: ' + url)

    def post(path, body):
        request = urllib.request.Request(url + path, json.dumps(body).encode(),
                                         {'Content-Type': 'application/json'})
        return json.loads(urllib.request.urlopen(request, timeout=120).read())

    def kvarc(*words, status=0):
        run = subprocess.run(
            [os.environ['KVARC'], 'session', *words, '--store', os.path.join(folder, 'store'),
             '--server', url, '--slot-folder', slots], capture_output=True, text=True, check=False)
        if run.returncode != status:
            fail('kvarc session %s: exit %d: %s' % (' '.join(words), run.returncode, run.stderr))
        if os.listdir(slots):
            fail('kvarc session %s left %s' % (' '.join(words), os.listdir(slots)))
        return run.stderr + run.stdout

    def resume():
        r = post('/completion', {
            'prompt': PROMPT + QUESTION, 'n_predict': 16, 'temperature': 0, 'cache_prompt': True,
            'id_slot': 0, 'return_tokens': True})
        return r['tokens'], r['timings']['cache_n']

    kvarc('save', 'empty', status=1)
    post('/completion', {'prompt': PROMPT, 'n_predict': 1, 'id_slot': 0, 'cache_prompt': True,
                         'temperature': 0})
    kvarc('save', name)
    if action == 'save':
        print('ok')
        sys.stdout.flush()
        os._exit(0)
    tokens, _ = resume()
    if 'kept' not in kvarc('save', name, '-v'):
        fail('a save does not say what it kept')
    one_identity(folder, slots, post, kvarc)
    if 'nothing is new' not in kvarc('save', name, '-v'):
        fail('a save of the same state does not say so')
    for other in os.environ['OTHERS'].split():
        text = kvarc('check', other, status=1) + kvarc('load', other, status=1)
        if 'not restored' not in text:
            fail('%s is refused otherwise: %s' % (other, text))
    post('/slots/0?action=save', {'filename': 'held'})
    run = subprocess.run(
        [os.environ['KVARC'], 'session', 'check', name, '--store', os.path.join(folder, 'store'),
         '--server', without_restores(url), '--slot-folder', slots],
        capture_output=True, text=True, check=False)
    kept = [f for f in os.listdir(slots) if f != 'held']
    if len(kept) != 1 or kept[0] not in run.stderr or run.returncode == 0:
        fail('what the slot held is not kept: %s, exit %d, %s' % (kept, run.returncode, run.stderr))
    with open(os.path.join(slots, kept[0]), 'rb') as a, \
            open(os.path.join(slots, 'held'), 'rb') as b:
        if a.read() != b.read():
            fail('what the slot held is kept otherwise')
    for f in ('held', kept[0]):
        os.unlink(os.path.join(slots, f))
    post('/slots/0?action=erase', {})
    kvarc('check', name + '@1')
    kvarc('load', name + '@1')
    again, cached = resume()
    if again != tokens:
        fail('other tokens: %s, %s' % (tokens, again))
    if cached < 80:
        fail('only %d tokens came from the cache' % cached)
    print('ok: %d tokens from the cache' % cached)
    sys.stdout.flush()
    os._exit(0)


if __name__ == '__main__':
    if len(sys.argv) != 7:
        sys.exit(__doc__)
    main(*sys.argv[1:])
