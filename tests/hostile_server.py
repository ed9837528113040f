#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Saves a slot of a server that puts something else where the slot belongs: one line each, at once.

    hostile_server.py KVARC SLOT

Exit status 1 when the command waits, saves what it must not, or prints more than a line. Python
standard library.
"""
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading

WAIT = 30  # seconds that nothing takes
PROPS = {'build_info': 'b1', 'model_path': 'm.gguf', 'total_slots': 1,
         'default_generation_settings': {'n_ctx': 4096}}
MODELS = {'data': [{'meta': {'n_vocab': 49152, 'n_params': 1, 'size': 1}}]}
SLOTS = [{'id': 0, 'n_ctx': 4096, 'is_processing': False}]


def regular(path, slot):
    with open(slot, 'rb') as f, open(path, 'wb') as to:
        to.write(f.read())


# What is put, a word of the line that is printed, and how to put it.
CASES = (
    ('a slot', None, regular),
    ('a pipe', 'pipe with a name', lambda path, slot: os.mkfifo(path)),
    ('a link to a slot', 'symbolic link', lambda path, slot: os.symlink(slot, path)),
    ('a link to a device', 'symbolic link', lambda path, slot: os.symlink('/dev/zero', path)),
    ('a link to nothing', 'symbolic link', lambda path, slot: os.symlink('nothing', path)),
    ('a folder', 'folder', lambda path, slot: os.mkdir(path)),
    ('nothing', 'not here', lambda path, slot: None),
)


class Server(http.server.BaseHTTPRequestHandler):
    put = slot = folder = None
    mark = ''       # of the file in whose place something is put
    restored = 0    # how often the slot was restored

    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer({'/props': PROPS, '/slots': SLOTS}.get(self.path, MODELS))

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        if self.path == '/completion':
            self.answer({'timings': {'prompt_n': len(asked['prompt']), 'cache_n': 0}})
        elif self.path.endswith('=restore'):
            Server.restored += os.path.isfile(os.path.join(Server.folder, asked['filename']))
            self.answer({'n_restored': 160})
        else:
            put = Server.put if Server.mark in asked['filename'] else regular
            put(os.path.join(Server.folder, asked['filename']), Server.slot)
            self.answer({'n_saved': 160})

    def log_message(self, *arguments):
        pass


def check(kvarc, folder, url, what, word):
    """Whether it is refused with one line that has the word; None: saved. Here the slot of the
    fingerprint has tokens that nobody asked for: a line, which -q hides. The slot is given
    back where it was disturbed.
    """
    Server.restored = 0
    command = [kvarc, 'session', 'save', '-q', 'x', '--server', url, '--slot-folder', Server.folder,
               '--store', os.path.join(folder, 'store')]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=WAIT)
    except subprocess.TimeoutExpired:
        print(f'{what}: not after {WAIT} s')
        return False
    lines = done.stderr.splitlines()
    good = done.returncode == 0 and not lines if word is None else \
        done.returncode == 1 and len(lines) == 1 and word in lines[0]
    good = good and Server.restored == (word is None or Server.mark == 'canary')
    left = [x for x in os.listdir(Server.folder)
            if not os.path.isdir(os.path.join(Server.folder, x))]
    print(f'{what}: {done.returncode} {done.stderr.strip()}{"" if good else ": WRONG"}'
          f'{f", LEFT {left}" if left else ""}')
    return good and not left


def main(kvarc, slot):
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f'http://127.0.0.1:{server.server_address[1]}'
    good = True
    with tempfile.TemporaryDirectory() as folder:
        Server.slot, Server.folder = os.path.abspath(slot), os.path.join(folder, 'slots')
        os.mkdir(Server.folder)
        for Server.mark in ('guest', 'canary'):
            for what, word, put in CASES:
                Server.put = staticmethod(put)
                good = check(kvarc, folder, url, f'{what} as {Server.mark}', word) and good
    return 0 if good else 1


if __name__ == '__main__':
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
