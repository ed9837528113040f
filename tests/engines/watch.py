#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""One life of a llama.cpp server whose slot folder 'kvarc watch' looks at.

watch.py MODEL.gguf FOLDER TYPE archives|store

TYPE is the cache type. The server saves slot 0 after each of three turns as chat.bin, over the one
before, while `kvarc watch` ($KVARC) runs on its folder: with `archives` each becomes the next
checkpoint of chat.bin.kva, with `store` the next version of the session chat. Every turn must come
back byte for byte, and the last one, restored by the server, must continue with the same tokens as
the server that never stopped. Prints "ok" or what is wrong; listens on loopback only.
"""
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request

from engine import PROMPT, QUESTION
from session import start

LIMIT_SECONDS = 240
TURNS = (PROMPT, PROMPT + QUESTION, PROMPT + QUESTION + ' one that keeps every bit. ' + PROMPT)


class Wrong(Exception):
    """What is wrong."""


def wait_for(what, found):
    """Until found() is true."""
    for _ in range(600):
        if found():
            return
        time.sleep(0.1)
    raise Wrong('no ' + what)


def kvarc(*words):
    return subprocess.run([os.environ['KVARC'], *words], capture_output=True, text=True,
                          check=False)


class Archives:
    """Turns as checkpoints of an archive."""

    def __init__(self, folder, slots):
        self.slots, self.archive = slots, os.path.join(slots, 'chat.bin.kva')
        self.options = []

    def count(self):
        done = kvarc('log', '--json', self.archive)
        return done.stdout.count('"number"') if done.returncode == 0 else 0

    def restore(self, number, path):
        return kvarc('unpack', '-q', '-f', '--checkpoint', str(number), '-o', path, self.archive)


class Store:
    """Turns as versions of a session."""

    def __init__(self, folder, slots):
        self.url = os.path.join(folder, 'watch-store')
        self.options = ['--store', self.url]

    def count(self):
        done = kvarc('session', 'log', 'chat', '--store', self.url)
        return len(done.stdout.splitlines()) if done.returncode == 0 else 0

    def restore(self, number, path):
        return kvarc('session', 'load', 'chat@%d' % number, '-q', '-f', '-o', path, '--store',
                     self.url)


def live(url, slots, kept, watch):
    """The turns of a server; what came of them, or Wrong."""
    def post(path, body):
        request = urllib.request.Request(
            url + path, json.dumps(body).encode(),
            {'Content-Type': 'application/json'})
        return json.loads(urllib.request.urlopen(request, timeout=120).read())

    def complete(prompt, n):
        return post('/completion', {'prompt': prompt, 'n_predict': n, 'id_slot': 0,
                                    'cache_prompt': True, 'temperature': 0,
                                    'return_tokens': True})

    files = []
    for number, prompt in enumerate(TURNS, 1):
        complete(prompt, 1)
        post('/slots/0?action=save', {'filename': 'chat.bin'})
        with open(os.path.join(slots, 'chat.bin'), 'rb') as f:
            files.append(f.read())
        wait_for('turn %d in the archive or store' % number, lambda n=number: kept.count() == n)
    watch.send_signal(signal.SIGINT)
    said = watch.communicate(timeout=60)[1]
    if said:
        raise Wrong('kvarc watch says ' + said)
    back = os.path.join(slots, 'back.bin')
    for number, file in enumerate(files, 1):
        done = kept.restore(number, back)
        if done.returncode != 0:
            raise Wrong('turn %d does not come back: %s' % (number, done.stderr))
        with open(back, 'rb') as f:
            if f.read() != file:
                raise Wrong('turn %d comes back otherwise' % number)
    tokens = complete(TURNS[-1] + QUESTION, 16)['tokens']
    post('/slots/0?action=erase', {})
    post('/slots/0?action=restore', {'filename': 'back.bin'})
    again = complete(TURNS[-1] + QUESTION, 16)
    if again['tokens'] != tokens:
        raise Wrong('other tokens: %s, %s' % (tokens, again['tokens']))
    if again['timings']['cache_n'] < 80:
        raise Wrong('only %d tokens came from the cache' % again['timings']['cache_n'])
    return 'ok: %d turns, the last one with %d tokens from the cache' % (
        len(files), again['timings']['cache_n'])


def main(model, folder, kind, form):
    watchdog = threading.Timer(LIMIT_SECONDS, lambda: os._exit(3))
    watchdog.daemon = True
    watchdog.start()
    slots = os.path.join(os.path.abspath(folder), 'watched-' + form)
    os.makedirs(slots)
    server = start(model, slots, kind, 1)
    if not server.listening_address.startswith('http://127.0.0.1:'):
        sys.exit('not on loopback: ' + server.listening_address)
    kept = (Archives if form == 'archives' else Store)(os.path.abspath(folder), slots)
    watch = subprocess.Popen([os.environ['KVARC'], 'watch', '-q', *kept.options, slots],
                             stderr=subprocess.PIPE, text=True)
    status = 1
    try:
        print(live(server.listening_address, slots, kept, watch))
        status = 0
    except Exception as e:
        print(e)
    finally:
        watch.kill()
        sys.stdout.flush()
        os._exit(status)


if __name__ == '__main__':
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
