#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Servers that compute as one did whose slot was saved, and servers with other weights.

canary.py MODEL.gguf FOLDER [NAME...]: all, or those that are named. MODEL `hybrid`: one of random
weights, with states beside attention. The command is $KVARC. The layers of WEIGHTS are those of a
model of 30; others have theirs at the same share of the depth.
$KV_OTHER_BUILD: a Python that has another build of the server, an honest variant.

A server saves slots of several texts, with a fingerprint and without one. Then each variant of it
asks `kvarc session check` whether these fit. Honest variants compute the same, in other batches or
with other threads; changed ones have other weights or another RoPE setting under the same name and
size. Prints a row for each: of the answers with a fingerprint and without. Exit status 1: an honest
one was refused, a changed one was exact with a fingerprint, or without one, of those that rows can
show, one was exact or fewer than 75 % were refused.
"""
import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request

LIMIT_SECONDS = 120
TEXTS = (
    'A cache of keys and values is what a language model remembers of a text. It grows with every '
    'word, and it is the same for the same words. ' * 8,
    'int main(void)\n{\n\tfor (int i = 0; i < 10; i++)\n\t\tprintf("%d\\n", i * i);\n}\n' * 8,
    '| year | births | deaths |\n|---|---|---|\n' + ''.join(
        '| %d | %d | %d |\n' % (1900 + i, 7 * i * i + 11, 5 * i * i + 3) for i in range(40)),
)
BUSY = 'neighbour-at-work'  # the other slot generates all the time
HONEST = {
    'same': [], 'one-thread': ['cpuparams.n_threads=1', 'cpuparams_batch.n_threads=1'],
    'three-threads': ['cpuparams.n_threads=3', 'cpuparams_batch.n_threads=3'],
    'batches-of-64': ['n_ubatch=64'], 'batches-of-7': ['n_ubatch=7'],
    'two-slots': ['n_parallel=2', 'n_ctx=4096', 'kv_unified=1'],
    BUSY: ['n_parallel=2', 'n_ctx=4096', 'kv_unified=1'],
}
SERVED = {
    'rope-scale-0.98': ['rope_freq_scale=0.98'], 'rope-scale-0.999': ['rope_freq_scale=0.999'],
    'rope-scale-0.5': ['rope_freq_scale=0.5'], 'rope-base-1.1': ['rope_freq_base=x1.1'],
    'rope-base-1.01': ['rope_freq_base=x1.01'], 'rope-base-10': ['rope_freq_base=x10'],
}


# What lies behind the last keys and values: no row shows it.
BEHIND = ('flip-ffn_down.29', 'flip-attn_output.29', 'x1.01-ffn_down.29', 'x1.01-output_norm')


# Blocks of the types that models have: bytes, the f16 scales and minimums (first byte and number),
# first and last byte of what holds no scale.
BLOCKS = {'Q4_0': (18, 0, 1, 2, 18), 'Q4_1': (20, 0, 2, 4, 20), 'Q5_0': (22, 0, 1, 2, 22),
          'Q5_1': (24, 0, 2, 4, 24), 'Q8_0': (34, 0, 1, 2, 34), 'Q4_K': (144, 0, 2, 16, 144),
          'Q5_K': (176, 0, 2, 16, 176), 'Q6_K': (210, 208, 1, 0, 192)}


def flip(data, kind):
    """2 % of the bytes that are not scales."""
    size, _, _, begin, end = BLOCKS[kind]
    at = begin
    while at < len(data):
        data[at] ^= 0x5a
        at += 50
        while not begin <= at % size < end:
            at += 1


def stretch(factor):
    """All scales and minimums of blocks, or all elements of f32, times a factor."""
    def change(data, kind):
        import numpy
        if kind == 'F32':
            x = data.view(numpy.float32)
            x *= numpy.float32(factor)
        else:
            size, begin, n, _, _ = BLOCKS[kind]
            blocks = data.reshape(-1, size)[:, begin:begin + 2 * n]
            x = blocks.copy().view(numpy.float16)
            x *= numpy.float16(factor)
            blocks[:] = x.view(numpy.uint8)
    return change


# Layers' tensors that an adapter of random numbers is for, and its size next to the weights'.
ADAPTERS = {
    'adapter-v-1%': (('attn_v',), .01), 'adapter-qv-1%': (('attn_q', 'attn_v'), .01),
    'adapter-qv-10%': (('attn_q', 'attn_v'), .1), 'adapter-q-1%': (('attn_q',), .01),
}
WEIGHTS = {
    'flip-attn_k.5': ('blk.5.attn_k.weight', flip),
    'flip-ffn_down.15': ('blk.15.ffn_down.weight', flip),
    'flip-ffn_down.28': ('blk.28.ffn_down.weight', flip),
    'flip-attn_q.20': ('blk.20.attn_q.weight', flip),
    'flip-ffn_down.29': ('blk.29.ffn_down.weight', flip),
    'flip-attn_output.29': ('blk.29.attn_output.weight', flip),
    'x1.01-attn_k.10': ('blk.10.attn_k.weight', stretch(1.01)),
    'x1.01-attn_v.10': ('blk.10.attn_v.weight', stretch(1.01)),
    'x1.01-ffn_down.10': ('blk.10.ffn_down.weight', stretch(1.01)),
    'x1.01-ffn_down.29': ('blk.29.ffn_down.weight', stretch(1.01)),
    'x1.01-attn_norm.0': ('blk.0.attn_norm.weight', stretch(1.01)),
    'x1.01-output_norm': ('output_norm.weight', stretch(1.01)),
}


def rope_base(model):
    import gguf
    fields = gguf.GGUFReader(model).fields
    return float(next(f for name, f in fields.items() if name.endswith('rope.freq_base')).contents())


def serve(model, folder, url_file, settings):
    """The server's own process."""
    import xllamacpp as x
    p = x.CommonParams()
    p.model.path = model
    p.n_ctx, p.n_parallel, p.n_predict, p.warmup = 2048, 1, 1, False
    p.n_batch = p.n_ubatch = 512
    p.slot_save_path = os.path.join(folder, '')
    p.endpoint_slots = True
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 2
    for setting in settings:
        name, value = setting.split('=')
        if name == 'lora':
            adapter = x.CommonAdapterLoraInfo()
            adapter.path, adapter.scale = value, 1.
            p.lora_adapters = [adapter]
            continue
        at = p
        *path, last = name.split('.')
        for part in path:
            at = getattr(at, part)
        setattr(at, last, float(value) if '.' in value else int(value))
    server = x.Server(p)
    with open(url_file + '.new', 'w') as f:
        f.write(server.listening_address)
    os.rename(url_file + '.new', url_file)
    threading.Event().wait()


class Server:
    """A server in a process, in a with statement."""

    def __init__(self, model, folder, settings, python=sys.executable):
        self.slots = os.path.join(folder, 'slots')
        os.makedirs(self.slots, exist_ok=True)
        url_file = os.path.join(folder, 'url')
        if os.path.exists(url_file):
            os.unlink(url_file)
        self.log = open(os.path.join(folder, 'log'), 'w')
        self.process = subprocess.Popen(
            [python, __file__, '--serve', model, self.slots, url_file, *settings],
            stdout=self.log, stderr=self.log)
        end = time.monotonic() + LIMIT_SECONDS
        while not os.path.exists(url_file):
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                sys.exit('the server did not start: %s' % self.log.name)
            time.sleep(.05)
        with open(url_file) as f:
            self.url = f.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def post(self, path, body):
        r = urllib.request.Request(self.url + path, json.dumps(body).encode(),
                                   {'Content-Type': 'application/json'})
        return json.loads(urllib.request.urlopen(r, timeout=LIMIT_SECONDS).read())

    def fill(self, text):
        self.post('/completion', {'prompt': text, 'n_predict': 1, 'id_slot': 0,
                                  'cache_prompt': False, 'temperature': 0})

    def keep_busy(self, slot):
        """Has a slot generate until the server ends."""
        def generate():
            try:
                while True:
                    self.post('/completion', {'prompt': TEXTS[0], 'n_predict': 500, 'id_slot': slot})
            except (OSError, http.client.HTTPException, ValueError):
                pass
        threading.Thread(target=generate, daemon=True).start()
        while not self.get('/slots')[slot]['is_processing']:
            time.sleep(.02)

    def get(self, path):
        return json.loads(urllib.request.urlopen(self.url + path, timeout=LIMIT_SECONDS).read())

    def kvarc(self, store, *words):
        return subprocess.run(
            [os.environ['KVARC'], 'session', *words, '--store', store, '--server', self.url,
             '--slot-folder', self.slots], capture_output=True, text=True, check=False)


def changed_model(model, folder, tensor, change):
    """A copy of the model, of the same name and size, with one tensor changed."""
    import gguf
    import numpy
    tensors = gguf.GGUFReader(model).tensors
    layers = 1 + max(int(t.name.split('.')[1]) for t in tensors if t.name.startswith('blk.'))
    head, *rest = tensor.split('.')
    if head == 'blk':
        tensor = '.'.join(['blk', str(int(rest[0]) * layers // 30), *rest[1:]])
    copy = os.path.join(folder, os.path.basename(model))
    shutil.copyfile(model, copy)
    os.chmod(copy, 0o600)
    found = next(t for t in tensors if t.name == tensor)
    data = numpy.memmap(copy, numpy.uint8, 'r+', int(found.data_offset), int(found.n_bytes))
    change(data, found.tensor_type.name)
    data.flush()
    return copy


def make_adapter(model, path, names, size):
    """A LoRA of rank 4 for the named tensors of all layers."""
    import gguf
    import numpy
    random = numpy.random.default_rng(1)
    reader = gguf.GGUFReader(model)
    writer = gguf.GGUFWriter(path, str(reader.fields['general.architecture'].contents()))
    writer.add_string('general.type', 'adapter')
    writer.add_string('adapter.type', 'lora')
    writer.add_float32('adapter.lora.alpha', 4.)
    for t in reader.tensors:
        if t.name.split('.')[-2] not in names:
            continue
        columns, rows = (int(n) for n in t.shape)
        weights = gguf.quants.dequantize(t.data, t.tensor_type)
        a = random.standard_normal((4, columns)).astype(numpy.float32)
        b = random.standard_normal((rows, 4)).astype(numpy.float32)
        b *= numpy.float32(size * weights.std() / (b @ a).std())
        writer.add_tensor(t.name + '.lora_a', a)
        writer.add_tensor(t.name + '.lora_b', b)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def ask(server, store, session):
    """The answer on a session, and its text."""
    run = server.kvarc(store, 'check', session, '--json')
    if not run.stdout:
        sys.exit('session check %s: %s' % (session, run.stderr))
    found = json.loads(run.stdout)
    if run.returncode not in (0, 1) or (run.returncode == 0) != (found['refuse'] is None):
        sys.exit('session check %s: exit %d, %s' % (session, run.returncode, run.stdout))
    return found['canary'], found['refuse'] or found['canary_text'] or ''


def row(kind, name, server, store, counts):
    words = []
    kind = 'behind' if name in BEHIND else kind
    for mark in ('f', 'o'):
        answers = [ask(server, store, '%s/%d' % (mark, i)) for i in range(len(TEXTS))]
        for answer, _ in answers:
            counts[kind, mark, answer] = counts.get((kind, mark, answer), 0) + 1
        words += [' '.join(a for a, _ in answers), answers[0][1]]
    print('%-8s %-20s %s | %s\n%30s%s\n%30s%s'
          % (kind, name, words[0], words[2], '', words[1], '', words[3]))
    sys.stdout.flush()


def saved(server, store, marks):
    """Fills the slot with each text and saves it, with the options of each mark."""
    for i, text in enumerate(TEXTS):
        server.fill(text)
        for mark, more in marks.items():
            run = server.kvarc(store, 'save', '%s/%d' % (mark, i), *more)
            if run.returncode or run.stderr.count('warning'):
                sys.exit('session save: %d, %s' % (run.returncode, run.stderr))


def continued(server, store, mark):
    """Loads the sessions, and has the server continue: how many of their tokens it took over, and
    whether it says the same as when it computes all of them."""
    taken, same = [], 0
    for i, text in enumerate(TEXTS):
        run = server.kvarc(store, 'load', '%s/%d' % (mark, i), '--json')
        if run.returncode not in (0, 2) or not run.stdout:
            sys.exit('session load %s/%d: exit %d, %s' % (mark, i, run.returncode, run.stderr))
        ask_for = {'prompt': text + ' And', 'n_predict': 8, 'id_slot': 0, 'temperature': 0}
        with_cache = server.post('/completion', dict(ask_for, cache_prompt=True))
        without = server.post('/completion', dict(ask_for, cache_prompt=False))
        taken.append(with_cache['timings']['cache_n'])
        same += with_cache['content'] == without['content']
    return taken, same


def make_hybrid(path):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'data'))
    from engine_models import hybrid
    hybrid(path, vocabulary=True, context=2048, words=4096)
    return path


def main(model, folder, names):
    if model == 'hybrid':
        model = make_hybrid(os.path.join(folder, 'hybrid.gguf'))
    store = os.path.join(folder, 'store')
    counts = {}
    with Server(model, folder, []) as server:
        saved(server, store, {'f': [], 'o': ['--no-canary']})
    other = os.environ.get('KV_OTHER_BUILD')
    if other and (not names or 'other-build' in names):
        with Server(model, folder, [], other) as server:
            row('honest', 'other-build', server, store, counts)
            saved(server, store, {'own': []})
        with Server(model, folder, [], other) as server:
            own, ours = (continued(server, store, mark) for mark in ('own', 'f'))
        print('%30sit takes over %s and %s tokens of slots of its own and of this build, and says '
              'the same as without after %d and %d texts' % ('', own[0], ours[0], own[1], ours[1]))
        if ours[0] < own[0] or ours[1] < own[1]:
            sys.exit('another build takes over less of slots of this one')
    for kind, variants in (('honest', HONEST), ('changed', SERVED)):
        for name, settings in variants.items():
            settings = ['%s=%r' % (s[:s.index('=')], rope_base(model) * float(s[s.index('=x') + 2:]))
                        if '=x' in s else s for s in settings]
            if not names or name in names:
                with Server(model, folder, settings) as server:
                    if name == BUSY:
                        server.keep_busy(1)
                    row(kind, name, server, store, counts)
    for name, (tensors, size) in ADAPTERS.items():
        if not names or name in names:
            adapter = os.path.join(folder, 'adapter.gguf')
            make_adapter(model, adapter, tensors, size)
            with Server(model, folder, ['lora=' + adapter]) as server:
                row('changed', name, server, store, counts)
    for name, (tensor, change) in WEIGHTS.items():
        if not names or name in names:
            other = os.path.join(folder, 'other')
            os.makedirs(other, exist_ok=True)
            with Server(changed_model(model, other, tensor, change), folder, []) as server:
                row('changed', name, server, store, counts)
    wrong = []
    for mark in ('f', 'o'):
        all_changed = sum(n for (kind, m, _), n in counts.items() if (kind, m) == ('changed', mark))
        refused = counts.get(('changed', mark, 'not'), 0)
        print('%s a fingerprint: honest %s; changed %s; behind the last row %s' % (
            'with' if mark == 'f' else 'without', *({
                answer: n for (k, m, answer), n in counts.items() if (k, m) == (kind, mark)}
                for kind in ('honest', 'changed', 'behind'))))
        if counts.get(('honest', mark, 'not')):
            wrong.append('an honest one was refused')
        if counts.get(('changed', mark, 'exact')) or counts.get(('behind', 'f', 'exact')):
            wrong.append('a changed one was exact')
        if mark == 'o' and not names and refused < .75 * all_changed:
            wrong.append('%d of %d changed ones were refused' % (refused, all_changed))
    print('; '.join(wrong) or 'ok')
    return 1 if wrong else 0


if __name__ == '__main__':
    if len(sys.argv) > 4 and sys.argv[1] == '--serve':
        serve(*sys.argv[2:5], sys.argv[5:])
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], os.path.abspath(sys.argv[2]), sys.argv[3:]))
