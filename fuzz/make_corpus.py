#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Make the bare seeds of fuzz/corpus: make_corpus.py [--check] CORPUS [KVARC]

Small caches in every input format, and, when the command KVARC is given, the
archives it makes of them. The same every time. Findings of the fuzzers stand
beside them under other names and are not touched. --check: exit 1 when a file
in CORPUS is not what it makes; of containers only that there is one, as zlib
may compress in another way. Archives with chain values, rewinds, forks, checkpoints,
streams, encrypted frames, PARITY and STOREREF are those of spec/vectors, which
all targets for archives take as seeds.
"""
import io
import json
import os
import random
import struct
import subprocess
import sys
import tarfile
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests', 'data'))
import engine_writers  # noqa: E402

rng = random.Random(1)
F32, F16, Q4_0, Q8_0, BF16 = 0, 1, 2, 8, 30


def f16(x):
    return struct.pack('<e', x)


def bf16(x):
    return struct.pack('<f', x)[2:]


def row(kind, width, means):
    """One token of one tensor."""
    x = [m + rng.gauss(0, .3) for m in means[:width]]
    if kind == F32:
        return b''.join(struct.pack('<f', v) for v in x)
    if kind == F16:
        return b''.join(f16(v) for v in x)
    if kind == BF16:
        return b''.join(bf16(v) for v in x)
    out = b''
    for i in range(0, width, 32):
        block = x[i:i + 32]
        if kind == Q8_0:
            d = max(map(abs, block)) / 127 or 1
            out += f16(d) + bytes(round(v / d) & 255 for v in block)
        else:
            d = max(map(abs, block)) / 8 or 1
            q = [min(15, max(0, round(v / d + 8))) for v in block]
            out += f16(d) + bytes(q[k] | q[k + 16] << 4 for k in range(16))
    return out


def kv_blob(cells, layers, width, kind, v_trans, version):
    means = [rng.gauss(0, 1) for _ in range(width)]
    b = struct.pack('<II', 1, cells)
    for i in range(cells):
        b += struct.pack('<iIi', i, 1, 0)
    b += struct.pack('<II', v_trans, layers)
    if version >= 4:
        had = 64 if kind in (Q8_0, Q4_0) and width % 64 == 0 else 0
        b += struct.pack('<II', had, had)
    for part in range(2):
        for _ in range(layers):
            rows = [row(kind, width, means) for _ in range(cells)]
            if part and v_trans:
                n = len(rows[0]) // width
                b += struct.pack('<iII', kind, n, width)
                b += b''.join(r[c * n:c * n + n] for c in range(width)
                              for r in rows)
            else:
                b += struct.pack('<iQ', kind, len(rows[0])) + b''.join(rows)
    return b


def slot(cells, layers, width, kind, v_trans=0, version=4):
    ids = struct.pack('<%di' % cells, *[rng.randrange(9000)
                                        for _ in range(cells)])
    if version == 2:
        tokens = struct.pack('<I', cells) + ids
    else:
        blob = struct.pack('<iII', -1, 1, cells) + ids + struct.pack('<I', 0)
        tokens = struct.pack('<I', len(blob) // 4) + blob
    return (struct.pack('<4sI', b'qsgg', version) + tokens +
            kv_blob(cells, layers, width, kind, v_trans, version))


def session(cells, layers, width, kind):
    tokens = struct.pack('<I', cells) + struct.pack('<%di' % cells,
                                                    *range(cells))
    return (struct.pack('<4sI', b'nsgg', 9) + tokens +
            struct.pack('<I', 5) + b'llama' +
            kv_blob(cells, layers, width, kind, 0, 3))


def states(sizes):
    b = struct.pack('<IiIII', 1, 5, 0, 0, 4)
    for n in sizes:
        b += struct.pack('<iQ', F32, 4 * n) + values(n, lambda v: struct.pack('<f', v))
    return b


def checkpoints(memories):
    """What a server appends to a slot: (tokens, memory) of each."""
    b = struct.pack('<4sII', b'SCKP', 1, len(memories))
    for tokens, memory in memories:
        state = struct.pack('<Ii', 0xaf143cd8, 0) + memory
        b += struct.pack('<QiiQ', tokens, 0, tokens - 1, len(state)) + state + bytes(16)
    return b


def safetensors(tensors, meta=None):
    head, data = {}, b''
    if meta:
        head['__metadata__'] = meta
    for name, dtype, shape, raw in tensors:
        head[name] = {'dtype': dtype, 'shape': shape,
                      'data_offsets': [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    return struct.pack('<Q', len(text)) + text + data


def values(n, enc):
    return b''.join(enc(rng.gauss(1, .5)) for _ in range(n))


def cache(layers, heads, tokens, dim, dtype, enc):
    out = [('tokens', 'I32', [tokens],
            struct.pack('<%di' % tokens, *range(tokens)))]
    for i in range(layers):
        for what in ('key', 'value'):
            out.append(('layers.%d.%s' % (i, what), dtype,
                        [heads, tokens, dim],
                        values(heads * tokens * dim, enc)))
    return out


def npy(shape, descr, raw, fortran=False):
    text = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (
        descr, fortran, tuple(shape))
    text += ' ' * (-(len(text) + 11) % 64) + '\n'
    return b'\x93NUMPY\x01\x00' + struct.pack('<H', len(text)) + \
        text.encode() + raw


def gguf(pairs):
    def text(s):
        return struct.pack('<Q', len(s)) + s.encode()

    def value(v):
        if isinstance(v, str):
            return struct.pack('<I', 8) + text(v)
        if isinstance(v, bool):
            return struct.pack('<IB', 7, v)
        if isinstance(v, float):
            return struct.pack('<If', 6, v)
        if isinstance(v, list):
            return struct.pack('<IIQ', 9, 8, len(v)) + b''.join(map(text, v))
        return struct.pack('<II', 4, v)
    return b'GGUF' + struct.pack('<IQQ', 3, 0, len(pairs)) + b''.join(
        text(k) + value(v) for k, v in pairs)


def bundle(members, method=zipfile.ZIP_DEFLATED, prefix='', form=tarfile.PAX_FORMAT):
    z, t = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(z, 'w', method) as f:
        for name, data in members:
            f.writestr(zipfile.ZipInfo(name), data)
    with tarfile.open(fileobj=t, mode='w', format=form) as f:
        for name, data in members:
            info = tarfile.TarInfo(prefix + name)
            info.size = len(data)
            f.addfile(info, io.BytesIO(data))
    return z.getvalue(), t.getvalue()


def planes(values, size):
    """Numbers as zigzag planes, lowest bytes first (spec profile 3)."""
    packed = [struct.pack('<q', 2 * v ^ v >> 63)[:size] for v in values]
    return b''.join(bytes(p[i] for p in packed) for i in range(size))


def profile_model(level, layer, kind, heads, channels, rotary, flags, table,
                  width):
    """A value is predicted from its key, level 3 also from the layer below;
    above that it corrects a state of this width."""
    n = heads * channels
    lower = [(1, 0, layer & 1)] if level == 3 and layer else []
    same = [(0, 1)] if kind else []

    def rows(sources, earlier):
        got = []
        for c in range(n):
            most = sum(channels if scope else n for scope in sources)
            s, h = c % channels, c // channels
            s = s & ~1 if s < rotary else s
            most += 0 if not earlier else s if flags & 2 else s + h * channels
            got += [rng.randint(-200, 200) for _ in range(most)]
        return planes(got, 2)
    b = bytes([level, layer, kind, heads, channels, rotary > 0,
               flags | 8 * table | 16 * bool(width), len(lower)])
    b += b''.join(bytes(s) for s in lower) + bytes([len(same)])
    b += b''.join(bytes(s) for s in same)
    if flags & 4:
        b += bytes([9, 8 * kind]) + bytes(kind)
    steps = [rng.randint(-20, 0) for _ in range(n)]
    for c in range(n):
        if c % channels < rotary and c % channels % 2:
            steps[c] = steps[c - 1]
    b += planes(steps, 2) + planes([rng.randint(-9, 9) for _ in range(n)], 2)
    b += planes([rng.randint(-999, 999) for _ in range(n)], 4)
    if lower:
        b += bytes(n) + rows([s[2] for s in lower], False)
    if same or flags & 1:
        b += bytes([8]) * n + rows([s[1] for s in same], flags & 1)
    if table:
        b += bytes([2, 4, 3]) + planes([-1, 7, 300], 4) + rng.randbytes(3 * n)
    if width:
        got = [rng.randint(-200, 200) for _ in range(width * 2 * n)]
        b += bytes([width]) + bytes(range(width)) + planes(got, 2)
    return b


def profile(heads, channels, rotary, flags, table=False,
            levels=(2, 3), width=0):
    """A .kvp file, its content stored. The target makes the checks right."""
    b = bytes([1, 5]) + b'model' + bytes([1]) + b'M'
    b += bytes([1, rotary]) + rng.randbytes(4 * rotary) if rotary else bytes(1)
    shapes = [(level, layer, kind) for level in levels
              for layer in range(2) for kind in (0, 1)]
    b += bytes([len(shapes)])
    for level, layer, kind in shapes:
        b += profile_model(level, layer, kind, heads, channels,
                           0 if kind else rotary, flags, table,
                           width if kind and level > 3 else 0)
    return (b'\x89KVP\r\n\x1a\n' + struct.pack(
        '<HHIQQ', 1, 0, 0, len(b), len(b) + 1) + bytes(33) + b)


def model(*path):
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, '..', 'tests', 'data', 'models', *path), 'rb') as f:
        return f.read()


def compare(path, data):
    """Whether a seed is what is made here."""
    if not os.path.exists(path):
        print(path, 'is missing')
        return False
    if '/container/' in path:
        return True
    with open(path, 'rb') as f:
        same = f.read() == data
    if not same:
        print(path, 'is not what make_corpus.py makes')
    return same


def pickles():
    """What torch.save puts into data.pkl, put together by hand."""
    def text(s):
        return b'X' + struct.pack('<I', len(s)) + s

    def tensor(key, offset=0, size=(1, 2, 8, 16), stride=(256, 128, 16, 1), kind=b'BFloat16'):
        def numbers(x):
            return b'(' + b''.join(b'M' + struct.pack('<H', n) for n in x) + b't'
        return (b'ctorch._utils\n_rebuild_tensor_v2\n((' + text(b'storage') + b'ctorch\n' + kind +
                b'Storage\n' + text(key) + text(b'cpu') + b'M\0\4tQK' + bytes([offset]) +
                numbers(size) + numbers(stride) + b'\x89ccollections\nOrderedDict\n)RtR')
    pair = b'(' + tensor(b'0') + tensor(b'1') + b't'
    head = b'\x80\2'
    return [
        ('pair', head + b'(' + pair + b't.'),
        ('dict', head + b'}q\0(' + text(b'past_key_values') + b'(' + pair + b't' +
         text(b'input_ids') + tensor(b'1', 0, (1, 8), (8, 1), b'Long') + b'u.'),
        ('views', head + b'(' + tensor(b'0', 0, (1, 8, 2, 16), (256, 16, 128, 1)) + tensor(b'0') +
         b't.'),
        ('memo', head + b']q\0(h\0h\0eh\0a.'),
        ('object', head + b'cm\nC\n)\x81}' + text(b'layers') + b'](' + b'cm\nL\n)\x81}(' +
         text(b'keys') + tensor(b'0') + text(b'values') + tensor(b'1') + b'ubesb.'),
        ('protocol4', b'\x80\4\x95' + bytes(8) + b'\x8c\5torch\x8c\1x\x93\x94\x8a\2\xff\1' + b'\x86.'),
    ]


def kvc(payload, ids, crc=0):
    """As erllama writes it."""
    tags = b''.join(struct.pack('<BI', t, len(v)) + v for t, v in (
        (1, bytes(32)), (8, struct.pack('<I', len(ids))), (9, struct.pack('<%dI' % len(ids), *ids))))
    behind = struct.pack('<I', 5) + b'hello' + struct.pack('<I', len(tags)) + tags
    return (struct.pack('<3sBBBHIIIIQQQ', b'KVC', 1, 16, 1, 0, len(ids), 0, 512, 0, 1, 2, len(payload)) +
            struct.pack('<QQII', 72 + len(behind), len(payload), crc, 0) + behind + payload)


def more_imports(put):
    before = rng.getstate()
    for name, data in pickles():
        put('pickle', name, data + bytes(4))
    elements = rng.randbytes(2 * 2 * 3 * 4 * 2 * 8)
    for name, text in (('2LTHD', b'bf16,2LTHD,L=2,H=2,D=8'), ('pages', b'f16,L2PBHD,L=2,B=3,H=2,D=8'),
                       ('inner', b'bf16,PL2BHD,L=2,B=3,H=2,D=8'), ('latent', b'u8,TD,D=96'),
                       ('heads', b'f32,2HTLD,T=3,L=2,H=2,D=8'), ('wrong', b'bf16,2LTHD,L=5,H=2,D=8')):
        put('raw', name, text + bytes(1) + elements + bytes(4))
    group = '{"tokens_per_block":16,"layer_names":["a","b"]}'
    for name, text, config in (
            ('vllm', b'vllm,D=8', '{"dtype":"torch.bfloat16","blocks_per_file":2,"kv_cache_groups":[%s,%s]}' % (group, group)),
            ('model', b'sglang:page_first', '{"torch_dtype":"float16","num_hidden_layers":2,'
             '"num_attention_heads":4,"num_key_value_heads":2,"hidden_size":64}'),
            ('lmcache', b'lmcache,L=2,H=2,D=8', '')):
        put('raw', 'layout-' + name, text + bytes(1) + config.encode() + bytes([16, 0, 0, 0]))
    state = kv_blob(9, 2, 16, F16, 0, 4)
    put('kvc', 'state', kvc(state, range(9)) + bytes(4))
    put('kvc', 'magic', kvc(struct.pack('<II', 0xaf143cd8, 0) + state, range(9)) + bytes(4))
    put('kvc', 'other', kvc(b'not a state', []) + bytes(4))
    rng.setstate(before)


def imported(name):
    """A file of tests/data/import."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests', 'data', 'import')
    with open(os.path.join(folder, name), 'rb') as f:
        return f.read()


def main(corpus, kvarc=None, check=False):
    wrong = []

    def put(folder, name, data):
        path = os.path.join(corpus, folder, name)
        if check:
            wrong.extend([] if compare(path, data) else [path])
            return path
        os.makedirs(os.path.join(corpus, folder), exist_ok=True)
        with open(path, 'wb') as f:
            f.write(data)
        return path

    caches = [
        put('slot_import', 'f16.slot', slot(40, 2, 32, F16)),
        put('slot_import', 'f16-transposed.slot', slot(33, 2, 32, F16, 1)),
        put('slot_import', 'q8_0.slot', slot(20, 1, 64, Q8_0)),
        put('slot_import', 'q4_0.slot', slot(20, 1, 32, Q4_0, 0, 3)),
        put('slot_import', 'bf16-v2.slot', slot(35, 1, 16, BF16, 0, 2)),
        put('slot_import', 'f32-v3.slot', slot(5, 2, 8, F32, 1, 3)),
        put('slot_import', 'session.slot', session(12, 2, 16, F16)),
        put('slot_import', 'one-cell.slot', slot(1, 1, 2, F16)),
    ]
    for name in 'hybrid-idx-history', 'hybrid-idx-checkpoints', 'dsa-iswa', 'msa', 'deepseek4-checkpoint':
        put('slot_import', name + '.slot', imported('ggsq4-' + name + '.bin'))
    st = 'safetensors_import'
    caches += [
        put(st, 'bf16.safetensors', safetensors(
            cache(2, 2, 40, 16, 'BF16', bf16), {'made_by': 'a test'})),
        put(st, 'f32.safetensors', safetensors(
            cache(1, 1, 9, 8, 'F32', lambda x: struct.pack('<f', x)))),
        put(st, 'e4m3.safetensors', safetensors(
            cache(1, 2, 33, 8, 'F8_E4M3', lambda x: bytes([int(x * 9) & 255])))),
        put(st, 'other.safetensors', safetensors(
            [('weight', 'F16', [4, 3], values(12, f16)),
             ('empty', 'F32', [0], b''), ('scalar', 'I64', [], b'12345678')])),
    ]
    put(st, 'no-tensors.safetensors', safetensors([]))
    put(st, 'rule', b'model.{layer}.{k|v}\0thc\0' + safetensors(
        [('model.0.k', 'F16', [8, 2, 4], values(64, f16)),
         ('model.0.v', 'F16', [8, 2, 4], values(64, f16))]) + b'\x10\0\0\0')
    before = rng.getstate()
    window, other = (kv_blob(n, 2, 16, F16, 0, 4) for n in (9, 4))
    put('slot_import', 'checkpoints.slot', slot(20, 1, 16, F16) + window + checkpoints(
        [(9, other), (9, window), (9, b'not a memory')]))
    put('slot_import', 'checkpoints-transposed.slot', slot(6, 1, 8, F16, 1) + kv_blob(
        6, 1, 8, F16, 1, 4) + checkpoints([(6, kv_blob(6, 1, 8, F16, 1, 4))]))
    put('slot_import', 'states.slot', slot(5, 1, 8, F16) + states([24, 24, 96, 96]) +
        checkpoints([(4, states([24, 24, 96, 96]))]))
    # a slot of several segments, then the damage of its archive
    full = slot(100, 2, 16, F16)
    damaged = full + window + checkpoints([(40, other), (99, window)])
    for name, data, last in (('first', damaged, (0x30, 0, 4, 0, 0, 0, 128)),
                             ('second', damaged, (0x70, 0, 4, 0, 0, 0, 128)),
                             ('third', damaged, (0xa8, 0, 4, 0xc8, 0, 1, 128)),
                             ('window', damaged, (0xe8, 0, 4, 0, 0, 0, 0)),
                             ('cut', damaged, (0, 0, 0, 0, 0, 0, 90)),
                             ('full', full, (0x98, 0, 4, 0, 0, 0, 0)),
                             ('full-cut', full, (0, 0, 0, 0, 0, 0, 80)),
                             ('whole', damaged, (0, 0, 0, 0, 0, 0, 0))):
        put('salvage_slot', name, data + bytes(last) + bytes(4))
    rng.setstate(before)
    members = [('layers.%d.%s.npy' % (i, what),
                npy([2, 20, 8], '<f2', values(320, f16)))
               for i in range(2) for what in ('key', 'value')]
    caches.append(put('npy', 'f16.npy', members[0][1]))
    put('npy', 'f32-fortran.npy', npy(
        [3, 5, 4], '<f4', values(60, lambda x: struct.pack('<f', x)), True))
    put('npy', 'bytes.npy', npy([7], '|u1', b'1234567'))
    z, t = bundle(members)
    caches += [put('container', 'cache.npz', z),
               put('container', 'cache.tar', t)]
    z, t = bundle([('a/x.slot', slot(8, 1, 4, F16)), ('README', b'text')])
    put('container', 'mixed.zip', z)
    put('container', 'mixed.tar', t)
    z, t = bundle(members[:2], zipfile.ZIP_STORED, 'n' * 120 + '/')
    put('container', 'stored.npz', z)
    put('container', 'pax.tar', t)
    z, t = bundle(members[:2], zipfile.ZIP_STORED, 'n' * 120 + '/', tarfile.GNU_FORMAT)
    put('container', 'gnu.tar', t)
    more_imports(put)
    put('gguf', 'llama.gguf', gguf([
        ('general.architecture', 'llama'), ('general.name', 'a model'),
        ('llama.block_count', 2), ('llama.embedding_length', 64),
        ('llama.attention.head_count', 4),
        ('llama.attention.head_count_kv', 2),
        ('llama.rope.freq_base', 10000.0),
        ('llama.rope.dimension_count', 16), ('a.flag', True),
        ('tokenizer.ggml.tokens', ['a', 'b', 'c'])]))
    put('gguf', 'empty.gguf', gguf([]))
    for name in ('llama', 'qwen3', 'gpt2'):
        put('model_gguf', name + '.gguf', model(name + '.gguf'))
    for name in ('mistral', 'gemma3', 'gpt2'):
        put('model_safetensors', name + '.safetensors', model(name, 'config.json') +
            bytes(1) + model(name, 'model.safetensors'))
    put('model_safetensors', 'index', model('llama', 'model.safetensors.index.json') +
        bytes([1, 0, 0, 0]))

    def string(s):
        return bytes([len(s)]) + s
    tensor = bytes([0, 0, 0, 3, 3, 0, 0, 1, 2, 2, 8, 0, 1, 0, 2, 1, 0, 0])
    put('geometry', 'one', bytes([1, 0, 8]) + rng.randbytes(32) +
        bytes([1, 0, 0]) + string(b'') + bytes([1]) + tensor + string(b'k') +
        bytes([0]) + bytes(4))
    put('geometry', 'extension', bytes([0, 2, 0, 0]) + string(b'') +
        bytes([1, 64]) + string(b'window') + bytes([0, 1, 5]) +
        string(b'abc') + bytes(4))
    for name, freq in (('uniform', [64] * 32),
                       ('skewed', [1024, 512, 256] + [8] * 28 + [32])):
        stream = b''.join(struct.pack('>I', 1 << 16) for _ in range(32))
        put('rans_tables', name, bytes([0, 0, 0, 0, 0]) + struct.pack(
            '<32H', *freq) + stream + bytes(4))
    put('rans_tables', 'words', bytes([2, 1, 2, 5]) + 2 * (
        b'\1' + rng.randbytes(514)) + rng.randbytes(400) + bytes(4))
    put('rans_tables', 'encode', bytes([0, 0, 2, 5, 1]) + struct.pack(
        '<32H', *[64] * 32) + stream + rng.randbytes(400) + bytes([1, 0, 0, 0]))
    for codec in (4, 5, 6):
        put('params', 'random-%d' % codec, bytes(
            [codec, 3, 0, 15, 31, 0, 1, 80, 0]) + rng.randbytes(300) + bytes(4))
    for dtype in range(8):
        for level in range(2):
            put('roundtrip', 'dtype%d-level%d' % (dtype, level),
                rng.randbytes(97) + bytes(range(200)) +
                bytes([dtype, 2, 15, 1 | level << 2, 7, 1, 20, 0, 0, 0, 100,
                       77]) + bytes([0, level, 0, 0]))
    # what a tier is followed by: elements, then ten numbers and the tail
    normal = struct.pack('<2048e', *[rng.gauss(0, 1) for _ in range(2048)])
    for name, tier, elements, last in (
            ('had', 'had:4', normal, (2, 1, 31, 63, 0, 1, 0)),
            ('had-f32', 'had:1.5,identity,exact=9', rng.randbytes(900),
             (1, 2, 10, 40, 1, 0, 90)),
            ('had-bf16', 'had:6.5,no-unrope,keys=-4', normal, (3, 0, 44, 255, 0, 3, 1)),
            ('had-e4m3', 'had:2,keys=+0.5', rng.randbytes(500), (4, 2, 15, 99, 0, 5, 84)),
            ('klt', 'klt:2', normal, (2, 0, 15, 31, 1, 0, 0)),
            ('tsc', 'tsc:4', normal, (2, 0, 63, 31, 1, 0, 2)),
            ('near', 'near:0.01', normal, (3, 1, 31, 31, 1, 0, 2)),
            # flags 16: tokens have rates, 32: of two kinds
            ('had-rates', 'had:3,exact=0', normal, (1, 2, 63, 200, 0, 17, 0)),
            ('had-rates-2', 'had:4,keys=+1', normal, (3, 1, 63, 99, 0, 49, 0)),
            ('tsc-rates', 'tsc:4,kappa=8', normal, (2, 1, 63, 120, 0, 16, 0)),
            ('near-rates', 'near:0.01,exact=0', normal, (3, 0, 40, 63, 1, 16, 0)),
            ('vq-rates', 'vq:2', normal, (2, 1, 63, 99, 1, 16, 0)),
            ('text', 'had:4,exact=1,x', b'', (0,) * 7)):
        put('lossy', name, tier.encode() + bytes(1) + elements + bytes(last) +
            bytes(3 + 4))
    put('profile', 'whole.kvp', profile(2, 3, 2, 5))
    put('profile', 'head.kvp', profile(2, 4, 4, 7, table=True))
    put('profile', 'diagonal.kvp', profile(1, 5, 0, 0))
    put('profile', 'one-slot.kvp', profile(1, 1, 0, 1))
    put('profile', 'corrects.kvp', profile(2, 3, 2, 5, levels=(2, 4, 7),
                                           width=5))
    # where, what is added; mode 2: checks are made right after it
    for name, at, mode in (('magic', 0, 2), ('version', 8, 2), ('order', 12, 2),
                           ('key', 16, 2), ('digest', 32, 2), ('parts', 48, 2),
                           ('bytes', 56, 2), ('table', 64, 2), ('hash', 72, 0),
                           ('check', 4088, 0), ('part', 5000, 0),
                           ('weights', 5000, 6)):
        put('kept', name, struct.pack('<HB', at, 1) + bytes([mode, 0, 0, 0]))
    put('kept', 'whole', bytes(4))
    put('kept', 'cut', bytes([9]) + bytes(4))
    entry = (b'<Contents><Key>a/b%2Fc</Key><Size>12</Size><LastModified>2026-11-24T09:55:12.000Z'
             b'</LastModified></Contents>')
    page = b'<ListBucketResult><IsTruncated>%s</IsTruncated>%s%s</ListBucketResult>'
    put('s3_list', 'last', page % (b'false', b'', 2 * entry))
    put('s3_list', 'more', page % (
        b'true', b'<NextContinuationToken>x/y=</NextContinuationToken>', entry))
    lines = (b'kvarc-session=1\npack=' + b'0f' * 16 + b'\ntokens=590\ntime=1764000000000\n'
             b'bytes=13603812\n')
    put('manifest', 'short', lines)
    put('manifest', 'fork', lines + b'chain=' + b'e1' * 16 + b'\nlabel=50 %25%0A of it\n'
        b'parent=chat/1\nparent-version=7\n')
    put('manifest', 'newer', lines.replace(b'=1\n', b'=2\n', 1))
    put('manifest', 'unknown', lines + b'colour=blue\n')
    put('manifest', 'twice', lines + lines)
    put('manifest', 'block', b'blocks/0f/' + b'0f' * 32 + b'.kva' + bytes(4))
    put('s3_list', 'cut', (page % (b'false', b'', entry))[:-50])
    put(st, 'batch.safetensors', safetensors(
        [('layers.0.key', 'F16', [2, 2, 9, 4], values(144, f16)),
         ('layers.0.value', 'F16', [2, 2, 9, 4], values(144, f16)),
         ('ids', 'I32', [2, 9], bytes(72))]))
    def some(layers):
        parts = [(values(80, bf16), values(80, bf16)) for _ in range(layers)]
        return engine_writers.Cache(parts, 2, 5, 8)
    w = engine_writers
    put(st, 'mlx.safetensors', w.mlx_0_32(some(2).rotated(2), 'RotatingKVCache', 5))
    put(st, 'mlx-list.safetensors', w.mlx_0_31_list(some(1), some(1)))
    part = bytes(range(160))
    put(st, 'mlx-list-text.safetensors',
        w.mlx_0_32_list(w.Cache([(part, part[::-1]) for _ in range(2)], 2, 5, 8)))
    put(st, 'mlx-quantised.safetensors', w.mlx_quantised(some(1)))
    put(st, 'omlx.safetensors', w.omlx(some(2), 3, True))
    put(st, 'vllm.safetensors', w.vllm_layer(some(1), 0, True))
    put(st, 'rules', b'# rules\nx.{number} -\nlayer_{layer}_keys b2thc if '
        b'layer_cache_types[{layer}]?=A|KVCache\nlayer_{layer}_values tp if num_layers=2\0\0' +
        w.omlx(some(2), 2) + b'\x10\0\0\0')
    # how many tokens become a slot
    for name, data, tokens in (('prefix', full, 50), ('prefix-window', damaged, 41)):
        put('salvage_slot', name, data + bytes((0, 0, 0, 0, 0, tokens, 0)) + bytes(4))
    for i, c in enumerate(caches if kvarc else []):
        name = os.path.basename(c).replace('.', '-') + '.kva'
        os.makedirs(os.path.join(corpus, 'archive'), exist_ok=True)
        r = subprocess.run([kvarc, 'pack', '-q', '-f', '--as-cache', '-%d' % (i & 1), '-o',
                            os.path.join(corpus, 'archive', name), c])
        if r.returncode not in (0, 2):  # 2: kept as an opaque file
            sys.exit(1)
    return 1 if wrong else 0


if __name__ == '__main__':
    args = sys.argv[1:]
    check = args[:1] == ['--check']
    if not 1 <= len(args[check:]) <= 2 - check or args[check].startswith('-'):
        sys.exit(__doc__)
    sys.exit(main(*args[check:], check=check))
