#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A conversation that grows on a llama.cpp server, and its slot after each turn.

turns.py MODEL.gguf FOLDER TEXT make TURNS
turns.py MODEL.gguf FOLDER TEXT restore TURN FILE

make: each turn adds some 60 tokens of the file TEXT, from which the server continues with 24
tokens (greedy); then it saves slot 0, of type F16, as FOLDER/turn-NN.bin. FOLDER/turns.json has
the token ids of each request, and those that followed; a folder that has some turns gets the
others. restore: a new server restores FILE, which
is the slot of turn TURN, and gets the request of the next turn: exit 1 unless it continues with
the same tokens, and takes the restored ones from the cache. Prints a JSON line a turn. Listens on
loopback only; ends by itself.
"""
import json
import os
import sys
import threading
import time
import urllib.request

WORDS, PREDICTED, CONTEXT = 42, 24, 6144
LIMIT_SECONDS = 1800


class Server:
    def __init__(self, model, folder):
        import xllamacpp as x
        p = x.CommonParams()
        p.model.path = model
        p.n_ctx, p.n_parallel, p.n_predict, p.warmup = CONTEXT, 1, PREDICTED, False
        p.slot_save_path = os.path.join(os.path.abspath(folder), '')
        p.endpoint_slots = True
        p.cpuparams.n_threads = 2
        p.cache_type_k = p.cache_type_v = x.ggml_type.GGML_TYPE_F16
        p.flash_attn_type = x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self.server = x.Server(p)
        if not self.server.listening_address.startswith('http://127.0.0.1:'):
            sys.exit('not on loopback: ' + self.server.listening_address)

    def post(self, path, body):
        request = urllib.request.Request(
            self.server.listening_address + path, json.dumps(body).encode(),
            {'Content-Type': 'application/json'})
        return json.loads(urllib.request.urlopen(request, timeout=240).read())

    def tokens(self, text):
        return self.post('/tokenize', {'content': text})['tokens']

    def complete(self, ids):
        return self.post('/completion', {
            'prompt': ids, 'n_predict': PREDICTED, 'temperature': 0, 'cache_prompt': True,
            'id_slot': 0, 'return_tokens': True})

    def slot(self, action, name):
        self.post('/slots/0?action=' + action, {'filename': name})


def read_log(folder):
    try:
        with open(os.path.join(folder, 'turns.json'), encoding='utf-8') as f:
            return json.load(f)
    except FileNotFoundError:
        return []


def make(server, folder, text, turns):
    with open(text, encoding='utf-8') as f:
        words = f.read().split()
    log = read_log(folder)
    ids = log[-1]['ids'] + log[-1]['next'] if log else []
    if log:
        server.slot('restore', 'turn-%02d.bin' % len(log))
    for turn in range(len(log) + 1, turns + 1):
        ids += server.tokens(' ' + ' '.join(words[(turn - 1) * WORDS:turn * WORDS]))
        r = server.complete(ids)
        log.append({'ids': list(ids), 'next': r['tokens']})
        ids += r['tokens']
        start = time.monotonic()
        server.slot('save', 'turn-%02d.bin' % turn)
        print(json.dumps({'turn': turn, 'tokens': len(ids), 'cached': r['timings']['cache_n'],
                          'save_seconds': round(time.monotonic() - start, 4)}), flush=True)
        with open(os.path.join(folder, 'turns.json'), 'w', encoding='utf-8') as f:
            json.dump(log, f)


def restore(server, folder, turn, name):
    log = read_log(folder)
    had = len(log[turn - 1]['ids'])
    server.slot('restore', name)
    r = server.complete(log[turn]['ids'])
    same = r['tokens'] == log[turn]['next'] and r['timings']['cache_n'] >= had
    print(json.dumps({'turn': turn, 'same': same, 'cached': r['timings']['cache_n']}), flush=True)
    return same


def main(model, folder, text, action, *arguments):
    watch = threading.Timer(LIMIT_SECONDS, lambda: os._exit(3))
    watch.daemon = True
    watch.start()
    server = Server(model, folder)
    same = True
    if action == 'make':
        os.makedirs(folder, exist_ok=True)
        make(server, folder, text, int(arguments[0]))
    else:
        same = restore(server, folder, int(arguments[0]), arguments[1])
    os._exit(0 if same else 1)


if __name__ == '__main__':
    if len(sys.argv) < 6 or sys.argv[4] not in ('make', 'restore'):
        sys.exit(__doc__)
    main(*sys.argv[1:])
