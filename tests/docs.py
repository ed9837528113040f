#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the command blocks of README and docs, each in a folder that has the files it names.

docs.py [--model MODEL.gguf] [--server COMMAND] [PAGE.md...]

A block is what stands between two ``` without a language. The command is $KVARC. A block that names
model.gguf needs --model, one with a server --server, a command that takes the options of
llama-server and --port; without them it is skipped. `ssh HOST` runs its command in a folder with a
store of its own, `sudo` as it is. Above a block that other tests run, or that nothing runs, stands
a comment, which is believed: `<!-- run by FILE -->`, `<!-- not run: REASON -->`.

Prints a line for each block; exit 1 when a command fails. 2, a warning, is no failure.
"""
import argparse
import glob
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SAMPLE = os.path.join(TOP, 'tests', 'data', 'sample', 'smollm2-135m-')
IMPORT = os.path.join(TOP, 'tests', 'data', 'import', '')
LIMIT_SECONDS = 300
PRELUDE = """set -e -o pipefail
kvarc() { command kvarc "$@" || [ $? -eq 2 ]; }
"""
# A server that is ready and has computed a prompt in slot 0.
READY = """python3 - <<'READY_END'
import json, time, urllib.request
url = 'http://127.0.0.1:%d/'
for i in range(600):
    try:
        urllib.request.urlopen(url + 'health', timeout=5)
        break
    except OSError:
        time.sleep(.1)
body = {'prompt': 'A cache of keys and values is what a model remembers of a text. ' * 4,
        'n_predict': 4, 'id_slot': 0, 'cache_prompt': True}
urllib.request.urlopen(urllib.request.Request(url + 'completion', json.dumps(body).encode(),
                       {'Content-Type': 'application/json'}), timeout=120).read()
READY_END
"""


def blocks(path):
    """(line, text, comment) of each command block of a page."""
    found, inside, comment = [], None, ''
    with open(path, encoding='utf-8') as f:
        for number, line in enumerate(f, 1):
            if inside is not None:
                if line.startswith('```'):
                    if shell:
                        found.append((start, ''.join(inside), comment))
                    inside, comment = None, ''
                else:
                    inside.append(line)
            elif line.startswith('```'):
                inside, start, shell = [], number, line.strip() == '```'
            elif line.startswith('<!--'):
                comment = line.strip()
            elif line.strip():
                comment = ''
    return found


def put(path, data):
    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
    with open(path, 'wb') as f:
        f.write(data)


def tensors(path, shapes):
    """A safetensors file of bf16 with these names and shapes."""
    header, at = {}, 0
    for name, shape in shapes.items():
        n = 2
        for extent in shape:
            n *= extent
        header[name] = {'dtype': 'BF16', 'shape': shape, 'data_offsets': [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    with open(SAMPLE + 'bf16-160.safetensors', 'rb') as f:
        f.seek(-at, os.SEEK_END)
        put(path, struct.pack('<Q', len(text)) + text + f.read(at))


def make_files(text, kvarc, environment):
    """What blocks name, in the current folder; text: the block."""
    slot, cache = SAMPLE + 'f16-160.slot', SAMPLE + 'bf16-160.safetensors'
    for name in ('slot.bin', 'session.bin', 'slots/session.bin', 'caches/a.bin', 'caches/b.bin'):
        os.makedirs(os.path.dirname(name) or '.', exist_ok=True)
        shutil.copy(slot, name)
    for name in ('prompt.safetensors', 'cache.safetensors', 'BLOCK.safetensors',
                 'CACHE_FOLDER/block.safetensors'):
        os.makedirs(os.path.dirname(name) or '.', exist_ok=True)
        shutil.copy(cache, name)
    shutil.copy(IMPORT + 'np-names.npz', 'cache.npz')
    shutil.copy(IMPORT + 'torch-cache.pt', 'cache.pt')
    for i in range(2):
        tensors(f'SHARED_STORAGE_PATH/PROMPT_HASH/model.layers.{i}.self_attn.attn.safetensors',
                {'kv_cache': [2, 64, 2, 64]})
    if '--kv-rule' in text:
        tensors('dump.safetensors', {f'net/{i}/attn_{kind}': [1, 2, 64, 64]
                                     for i in range(2) for kind in ('key', 'value')})
        tensors('other.safetensors', {f'cache.{i}': [2, 64, 2, 64] for i in range(2)})
    put('my.rules', b'net/{layer}/attn_{key|value}\n')
    with open(cache, 'rb') as f:
        elements = f.read()[-2 * 2 * 32 * 8 * 128 * 8:]
    put('page.bin', elements[:2 * 2 * 30 * 3 * 64 * 16])
    put('CHUNK.data', elements)
    put('tier/MODEL_0123456789ab/config.json', json.dumps({
        'model_name': 'MODEL', 'tokens_per_hash': 16, 'blocks_per_file': 1,
        'dtype': 'torch.bfloat16',
        'kv_cache_groups': [{'tokens_per_block': 16, 'layer_names': ['a', 'b']}]}).encode())
    put('tier/MODEL_0123456789ab_r0/abc/de_g0/HASH.bin', elements[:2 * 2 * 16 * 2 * 2 * 128])
    put('hicache/config.json', json.dumps({
        'num_hidden_layers': 2, 'num_key_value_heads': 2, 'num_attention_heads': 2,
        'hidden_size': 256, 'head_dim': 128, 'torch_dtype': 'bfloat16'}).encode())
    put('hicache/KEY_MODEL_0_1.bin', elements[:2 * 2 * 16 * 2 * 2 * 128])
    put('project/notes.txt', b'beside the cache\n')
    put('ids.txt', ' '.join(str(i * 7 % 1000) for i in range(600)).encode())
    os.makedirs('archive')
    os.makedirs('archives')
    # what came before: two checkpoints, a version of a session, and the session on the other host
    def run_kvarc(*words, **more):
        return subprocess.run([kvarc, *words], check=True, **{'env': environment, **more}).stdout
    run_kvarc('pack', '-q', '-o', 'whole.kva', 'slot.bin')
    for n in (64, 96):
        run_kvarc('unpack', '-q', '--to', 'llama', '--tokens', f'0-{n - 1}', '-o', f'{n}.bin',
                  'whole.kva')
        run_kvarc('append', '-q', '--attach', 'project', 'session.kva', f'{n}.bin')
    run_kvarc('session', 'save', '-q', 'chat/42', '64.bin')
    sent = run_kvarc('session', 'send', 'chat/42', stdout=subprocess.PIPE)
    run_kvarc('session', 'receive', '-q', 'chat/42', input=sent,
              env={**environment, 'KVARC_STORE': 'host/store'})
    for name in ('64.bin', '96.bin', 'whole.kva'):
        os.remove(name)


def command(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, 'w', encoding='utf-8') as f:
        f.write('#!/bin/bash\n' + text)
    os.chmod(path, 0o755)


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def script(text, folder, server):
    """The text of a block as it is run in a folder."""
    port = free_port()
    text = re.sub(r'(?<![\w.:/~])/(slots|archive|tier|hicache)\b', folder + r'/\1', text)
    text = re.sub(r'(localhost|127\.0\.0\.1):8080', f'127.0.0.1:{port}', text)
    start = re.compile(r'^llama-server .*&$', re.M)
    if server and not start.search(text):
        text = 'llama-server -m model.gguf --slot-save-path slots/ &\n' + text
    return PRELUDE + start.sub(lambda m: m[0][:-1] + f'--port {port} &\n' + READY % port, text)


def run(text, options, server):
    """The output of a block that failed, else None."""
    with tempfile.TemporaryDirectory() as folder:
        work, bin_folder = os.path.join(folder, 'work'), os.path.join(folder, 'bin')
        os.makedirs(bin_folder)
        os.makedirs(work)
        os.chdir(work)
        if options.model:
            os.symlink(os.path.abspath(options.model), 'model.gguf')
        os.symlink(options.kvarc, os.path.join(bin_folder, 'kvarc'))
        command(bin_folder, 'sudo', 'exec "$@"\n')
        command(bin_folder, 'ssh', 'shift; cd "$HOME/host" && KVARC_STORE=$HOME/host/store '
                                   'exec bash -c "$*"\n')
        command(bin_folder, 'llama-server', f'exec {options.server} "$@"\n')
        environment = dict(os.environ, HOME=work, PATH=bin_folder + ':' + os.environ['PATH'])
        for name in ('KVARC_STORE', 'XDG_DATA_HOME', 'XDG_CACHE_HOME'):
            environment.pop(name, None)
        os.makedirs('host')
        make_files(text, options.kvarc, environment)
        with open(os.path.join(folder, 'log'), 'w+', encoding='utf-8', errors='replace') as log:
            p = subprocess.Popen(['bash', '-c', script(text, work, server)], stdout=log, stderr=log,
                                 stdin=subprocess.DEVNULL, env=environment, start_new_session=True)
            try:
                status = p.wait(LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                status = f'more than {LIMIT_SECONDS} s'
            try: # servers
                os.killpg(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            p.wait()
            os.chdir(TOP)
            log.seek(0)
            return log.read() + f'status {status}\n' if status else None


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--model')
    parser.add_argument('--server')
    parser.add_argument('pages', nargs='*')
    options = parser.parse_args()
    options.kvarc = os.path.abspath(os.environ['KVARC'])
    counts = dict.fromkeys(('ok', 'elsewhere', 'not run', 'skip', 'FAILED'), 0)
    pages = options.pages or [os.path.join(TOP, 'README.md'),
                              *sorted(glob.glob(os.path.join(TOP, 'docs', '*.md')))]
    pages = [os.path.abspath(page) for page in pages]
    for page in pages:
        for line, text, comment in blocks(page):
            elsewhere = re.match('<!-- run by (.*) -->$', comment)
            never = re.match('<!-- not run: (.*) -->$', comment)
            server = bool(re.search(r'llama-server|--server http|^curl ', text, re.M))
            said, why = None, ''
            if elsewhere:
                result, why = 'elsewhere', elsewhere[1]
                for name in elsewhere[1].split():
                    if not os.path.exists(os.path.join(TOP, name)):
                        result, why = 'FAILED', f'there is no {name}'
            elif never:
                result, why = 'not run', never[1]
            elif server and not options.server:
                result, why = 'skip', 'no --server'
            elif 'model.gguf' in text and not options.model:
                result, why = 'skip', 'no --model'
            else:
                said = run(text, options, server)
                result = 'FAILED' if said else 'ok'
            counts[result] += 1
            print(f'{result} {os.path.basename(page)}:{line} {why}'.rstrip())
            if said:
                print(text + said)
            sys.stdout.flush()
    print('docs: ' + ', '.join(f'{n} {what}' for what, n in counts.items()))
    sys.exit(counts['FAILED'] > 0 or not counts['ok'])


if __name__ == '__main__':
    main()
