#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the small files in import/: one of every grammar that the importers know, and broken ones.

    make_import_data.py [FOLDER]        default: import/ next to this script

Python standard library only; the same bytes every time. Contents are arbitrary, so these files prove
that every byte comes back, never a ratio. Names say what they are; see README.md.
"""
import io
import json
import os
import random
import struct
import sys
import tarfile
import zipfile

import engine_writers

rng = random.Random(20261121)
folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), 'import')
os.makedirs(folder, exist_ok=True)


def save(name, data):
    with open(os.path.join(folder, name), 'wb') as f:
        f.write(data)
    return data


def u32(*v):
    return struct.pack(f'<{len(v)}I', *(x & 0xffffffff for x in v))


def u64(*v):
    return struct.pack(f'<{len(v)}Q', *v)


# ggml type: number, elements of a block, bytes of a block
TYPES = {'f32': (0, 1, 4), 'f16': (1, 1, 2), 'q4_0': (2, 32, 18), 'q4_1': (3, 32, 20), 'q5_0': (6, 32, 22),
         'q5_1': (7, 32, 24), 'q8_0': (8, 32, 34), 'iq4_nl': (20, 32, 18), 'bf16': (30, 1, 2),
         'mxfp4': (39, 32, 17), 'nvfp4': (40, 64, 36)}


def elements(kind, n):
    """n elements: plausible floats, or random blocks."""
    number, block, size = TYPES[kind]
    out = bytearray()
    for _ in range(n // block):
        x = rng.gauss(0, 1)
        if kind == 'f32':
            out += struct.pack('<f', x)
        elif kind == 'f16':
            out += struct.pack('<e', x)
        elif kind == 'bf16':
            out += struct.pack('<f', x)[2:]
        else:
            out += bytes(rng.getrandbits(8) for _ in range(size))
    return bytes(out)


def rows(kind, width, cells):
    number, block, size = TYPES[kind]
    return u32(number) + u64(width // block * size) + elements(kind, width * cells)


def columns(kind, width, cells):
    return u32(TYPES[kind][0], TYPES[kind][2], width) + elements(kind, width * cells)


def stream(version4, cells, ext=0, kind='f16', width=64, layers=2, trans=0, values=True, rotation=0, ids=(0,), positions=None):
    """One stream of one KV memory."""
    out = u32(cells)
    if cells == 0:
        return out
    for i in range(cells):
        out += u32(positions[i] if positions else i, len(ids)) + bytes(rng.getrandbits(4) for _ in range(ext)) + u32(*ids)
    out += u32(trans, layers)
    if version4:
        out += u32(rotation, rotation)
    for _ in range(layers):
        out += rows(kind, width, cells)
    for _ in range(layers if values else 0):
        out += columns(kind, width, cells) if trans else rows(kind, width, cells)
    return out


def memory(*streams):
    return u32(len(streams)) + b''.join(streams)


def recurrent(cells, layers, states, width):
    out = u32(cells)
    for i in range(cells):
        out += u32(4 + i, 0)
    out += u32(0, layers)
    for _ in range(2 * states):
        out += rows('f32', width, cells)
    return out


def plain(tokens):
    return u32(len(tokens), *tokens)


def packed(tokens, media=()):
    """The server's token array: null token, version 1, tokens, media."""
    out = u32(-1, 1, len(tokens), *tokens) + u32(len(media), *[m[0] for m in media])
    for _, data in media:
        out += u32(len(data)) + data
    out += bytes(-len(out) % 4)
    return u32(len(out) // 4) + out


def seq(version, tokens, *parts):
    return u32(0x67677371, version) + tokens + b''.join(parts)


def session(version, tokens, *parts, arch=b'llama'):
    return u32(0x6767736e, version) + tokens + u32(len(arch)) + arch + b''.join(parts)


ids5 = [11, 22, 33, 44, 55]
good = seq(4, packed(ids5), memory(stream(True, 5)))
save('ggsq4-f16.bin', good)
save('ggsq2-f16.bin', seq(2, plain(ids5), memory(stream(False, 5))))
save('ggsq2-no-streams.bin', seq(2, plain(ids5), stream(False, 5)))
save('ggsq2-mrope.bin', seq(2, plain(ids5), memory(stream(False, 5, ext=8))))
save('ggsq3-bf16.bin', seq(3, packed(ids5), memory(stream(False, 5, kind='bf16'))))
save('ggsq3-mrope-media.bin', seq(3, packed([1, -1, -1, 2], [(1, b'picture')]), memory(stream(False, 4, ext=12))))
save('ggsq4-f32-vtrans.bin', seq(4, packed(ids5), memory(stream(True, 5, kind='f32', width=24, trans=1))))
save('ggsq4-f16-vtrans.bin', seq(4, plain(ids5), memory(stream(True, 5, trans=1))))
for kind in ('q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'iq4_nl', 'mxfp4', 'nvfp4'):
    save(f'ggsq4-{kind}.bin', seq(4, packed(ids5), memory(stream(True, 5, kind=kind, rotation=64))))
save('ggsq4-mla.bin', seq(4, packed(ids5), memory(stream(True, 5, width=72, values=False))))
save('ggsq4-mla-indexer.bin', seq(4, packed(ids5), memory(stream(True, 5, width=72, values=False)),
                                  memory(stream(True, 5, width=16, values=False))))
save('ggsq4-indexer.bin', seq(4, packed(ids5), memory(stream(True, 5)), memory(stream(True, 5, width=16, values=False))))
save('ggsq4-iswa.bin', seq(4, packed(ids5), memory(stream(True, 5)), memory(stream(True, 3, layers=3, positions=[2, 3, 4]))))
save('ggsq4-hybrid.bin', seq(4, packed(ids5), memory(stream(True, 5)), recurrent(1, 6, 3, 20)))
save('ggsq4-disorder.bin', seq(4, packed(ids5), memory(stream(True, 5, positions=[4, 0, 1, 9, 8]))))
save('ggsq4-empty.bin', seq(4, packed([]), memory(stream(True, 0))))
save('ggsq4-long.bin', seq(4, plain(list(range(300))), memory(stream(True, 300, kind='q8_0', width=32, layers=1))))
save('ggsq4-stream3.bin', seq(4, plain(ids5), memory(stream(True, 0), stream(True, 5), stream(True, 0))))
save('ggsn9-no-streams.bin', session(9, plain(ids5), u32(1, 4), u64(3), elements('f32', 3), u64(0), stream(False, 5)))
save('ggsn9-outputs.bin', session(9, plain(ids5), u32(1, 4), u64(3), elements('f32', 3), u64(0), memory(stream(False, 5))))
save('ggsn9-f16.bin', session(9, plain(ids5), memory(stream(False, 5))))
save('ggsn10-stream3.bin', session(10, plain(ids5), memory(stream(False, 5, ids=(0,)), stream(False, 3, ids=(1, 2)), stream(False, 4, ids=(2,)))))
save('ggsn11-f16.bin', session(11, plain(ids5), memory(stream(True, 5, ids=(0, 3)))))

# Not understood: kept as opaque files, byte for byte.
save('bad-version.bin', seq(5, packed(ids5), memory(stream(True, 5))))
save('bad-trailing.bin', good + b'\0')
save('bad-truncated.bin', good[:-1])
save('bad-type.bin', seq(4, plain(ids5), memory(stream(True, 5)[:-2 * (12 + 640)] + u32(99) + bytes(2 * 652 - 4))))
save('bad-row.bin', seq(4, plain(ids5), u32(1, 1, 0, 1, 0, 0, 1, 0, 0, 8) + u64(33) + bytes(33)))
save('bad-position.bin', seq(4, plain(ids5), memory(stream(True, 5, positions=[0, 1, 2, 3, -4]))))
save('bad-count.bin', seq(4, u32(0x40000000), memory(stream(True, 5))))
save('bad-cells.bin', seq(4, plain(ids5), u32(1, 0xffffffff)))
save('bad-session.bin', u32(0x6767736e, 11) + plain(ids5) + u32(0xffffffff))


def safetensors(tensors, metadata=None, pad=0, hole=0):
    """tensors: name, dtype, shape, bytes."""
    head, at, body = {}, 0, b''
    if metadata:
        head['__metadata__'] = metadata
    for name, dtype, shape, data in tensors:
        head[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data) + hole
        body += data + bytes(hole)
    text = json.dumps(head, separators=(',', ':')).encode() + b' ' * pad
    return u64(len(text)) + text + body


def layers(kind, dtype, shape, n=2, names='layers.{}.{}'):
    count = 1
    for s in shape:
        count *= s
    return [(names.format(i, kv), dtype, shape, elements(kind, count)) for i in range(n) for kv in ('key', 'value')]


def noise(n):
    return bytes(rng.getrandbits(8) for _ in range(n))


def fp8(dtype, shape, n=2):
    return [(f'layers.{i}.{kv}', dtype, shape, noise(shape[0] * shape[1] * shape[2])) for i in range(n) for kv in ('key', 'value')]


tokens5 = ('tokens', 'I32', [5], u32(*ids5))
save('st-htc-bf16.safetensors', safetensors([tokens5] + layers('bf16', 'BF16', [2, 5, 8]), {'model': 'made up'}, pad=5))
save('st-thc-f16.safetensors', safetensors(layers('f16', 'F16', [5, 2, 8]) + [('ids', 'I64', [5], struct.pack('<5q', *ids5))]))
save('st-1htc-f32.safetensors', safetensors(layers('f32', 'F32', [1, 2, 5, 8]) + [tokens5]))
save('st-tc-f16.safetensors', safetensors(layers('f16', 'F16', [5, 16])))
save('st-e4m3.safetensors', safetensors(fp8('F8_E4M3', [2, 5, 8])))
save('st-e5m2.safetensors', safetensors(fp8('F8_E5M2', [2, 5, 8])))
save('st-i8.safetensors', safetensors(fp8('I8', [2, 5, 8])))
save('st-u8.safetensors', safetensors(fp8('U8', [2, 5, 8])))
save('st-window.safetensors', safetensors([tokens5] + layers('bf16', 'BF16', [2, 5, 8], 1) +
     [('layers.1.' + kv, 'BF16', [2, 3, 8], elements('bf16', 48)) for kv in ('key', 'value')]))
save('st-rule.safetensors', safetensors(layers('bf16', 'BF16', [2, 5, 8], names='net/{}/attn_{}')))
save('st-weights.safetensors', safetensors([('lm_head.weight', 'F16', [4, 8], elements('f16', 32)), ('step', 'I64', [], u64(7))]))
save('st-hole.safetensors', safetensors([tokens5] + layers('bf16', 'BF16', [2, 5, 8]), hole=3))
st = safetensors([tokens5] + layers('bf16', 'BF16', [2, 5, 8]))
save('bad-st-overlap.safetensors', st.replace(b'"data_offsets":[20,180]', b'"data_offsets":[10,170]'))
save('bad-st-size.safetensors', st.replace(b'"shape":[2,5,8]', b'"shape":[2,5,9]', 1))
save('bad-st-outside.safetensors', st[:-1])
save('bad-st-json.safetensors', st.replace(b'"dtype"', b'"dtype;', 1))
save('bad-st-twice.safetensors', st.replace(b'layers.1.key', b'layers.0.key'))
save('bad-st-negative.safetensors', st.replace(b'"shape":[5]', b'"shape":[-]').replace(b'[-]', b'[-5]').replace(b'tokens"', b'token"', 1))
save('bad-st-long.safetensors', u64(99999999) + b'{' + bytes(20))


def npy(descr, shape, data, fortran=False):
    text = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}"
    text += ' ' * (-(10 + len(text) + 1) % 64) + '\n'
    return b'\x93NUMPY\x01\0' + struct.pack('<H', len(text)) + text.encode() + data


def zipped(members, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w', method) as z:
        for name, data in members:
            z.writestr(zipfile.ZipInfo(name, (2026, 11, 21, 0, 0, 0)), data, method)
    return out.getvalue()


arrays = [('tokens.npy', npy('<i4', '(5,)', u32(*ids5)))]
for i in range(2):
    for kv in ('key', 'value'):
        arrays.append((f'layers.{i}.{kv}.npy', npy('|V2', '(2, 5, 8)', elements('bf16', 80))))
save('np-bf16.npz', zipped(arrays, zipfile.ZIP_DEFLATED))
save('layers.0.key.npy', npy('<f2', '(2, 5, 8)', elements('f16', 80)))
save('bad-np-fortran.npy', npy('<f2', '(2, 5, 8)', elements('f16', 80), True))
save('bad-np-size.npy', npy('<f2', '(2, 5, 9)', elements('f16', 80)))
save('box-slots.zip', zipped([('a/slot.bin', good), ('st.safetensors', st), ('../readme', b'hello\n'), ('empty', b'')]))
save('box-plain.zip', zipped([('readme', b'no caches here\n')]))
save('bad-box.zip', zipped([('slot', good)], zipfile.ZIP_DEFLATED)[:-700])
box = io.BytesIO()
with tarfile.open(fileobj=box, mode='w', format=tarfile.USTAR_FORMAT) as t:
    for name, data in (('slot.bin', good), ('note.txt', b'text\n')):
        info = tarfile.TarInfo(name)
        info.size = len(data)
        t.addfile(info, io.BytesIO(data))
    link = tarfile.TarInfo('link')
    link.type, link.linkname = tarfile.SYMTYPE, 'slot.bin'
    t.addfile(link)
save('box-slots.tar', box.getvalue())


def gguf(pairs, version=3):
    out = b'GGUF' + u32(version) + u64(0, len(pairs))
    for key, kind, value in pairs:
        out += u64(len(key)) + key.encode() + u32(kind)
        if kind == 8:
            out += u64(len(value)) + value.encode()
        elif kind == 4:
            out += u32(value)
        elif kind == 6:
            out += struct.pack('<f', value)
        elif kind == 9:
            out += u32(8) + u64(len(value)) + b''.join(u64(len(v)) + v.encode() for v in value)
    return out


model = [('general.architecture', 8, 'llama'), ('general.name', 8, 'made up'), ('tokenizer.ggml.tokens', 9, ['a', 'bc', '']),
         ('llama.block_count', 4, 2), ('llama.embedding_length', 4, 128), ('llama.attention.head_count', 4, 8),
         ('llama.attention.head_count_kv', 4, 4), ('llama.rope.freq_base', 6, 10000.0), ('llama.rope.dimension_count', 4, 16)]
save('model-llama.gguf', gguf(model))
save('model-neox.gguf', gguf([(k.replace('llama.', 'qwen2.'), t, 'qwen2' if v == 'llama' else v) for k, t, v in model]))
save('bad-model.gguf', gguf(model)[:-3])
save('opaque.txt', b'This is not a cache.\n' * 50)
save('opaque-empty', b'')

# Containers that come back byte for byte, whatever their members are called.
save('np-names.npz', zipped(arrays + [('schl\u00fcssel.npy', arrays[1][1])]))
both = [('a/slot.bin', good), ('st.safetensors', st)]
save('box-latin.zip', zipped(both).replace(b'a/slot.bin', b'a/sl\xf6t.bin'))
save('box-twice.zip', zipped([('slot', good), ('slot', st)], zipfile.ZIP_DEFLATED))
save('box-nested.zip', zipped([('x', good), ('x/y', st)], zipfile.ZIP_DEFLATED))
save('box-dots.zip', zipped([('./a//slot.bin', good), ('b/./st', st), ('d/', b'')], zipfile.ZIP_DEFLATED))
save('box-lzma.zip', zipped([('slot', good)], zipfile.ZIP_LZMA))
plain = zipped(both)
end = plain.rindex(b'PK\5\6')
directory = struct.unpack('<I', plain[end + 16:end + 20])[0]
save('bad-box-behind.zip', plain + b'behind')
save('box-comment.zip', plain[:end + 20] + struct.pack('<H', 26) + b'PK\5\6' + bytes(22))
second = directory + 46 + len('a/slot.bin')
save('bad-box-overlap.zip', plain[:second + 42] + u32(0) + plain[second + 46:])
save('box-zip64.zip', plain[:end] + b'PK\6\6' + u64(44) + struct.pack('<HHII', 45, 45, 0, 0) +
     u64(2, 2, end - directory, directory) + b'PK\6\7' + u32(0) + u64(end) + u32(1) +
     plain[end:end + 8] + b'\xff' * 12 + plain[end + 20:])


def tarred(members, form):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=form) as t:
        for name, data in members:
            info = tarfile.TarInfo(name)
            if isinstance(data, str):
                info.type, info.linkname = tarfile.LNKTYPE, data
            elif data is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(data)
            t.addfile(info, io.BytesIO(data) if isinstance(data, bytes) else None)
    return out.getvalue()


dots = [('.', None), ('./sub', None), ('./sub/slot.bin', good), ('./st.safetensors', st)]
long = [('n' * 120 + '/' + name, data) for name, data in arrays]
save('box-dots.tar', tarred(dots, tarfile.GNU_FORMAT))
save('box-twice.tar', tarred(dots + dots[2:], tarfile.GNU_FORMAT))
save('box-joined.tar', tarred(dots, tarfile.GNU_FORMAT) + tarred(long, tarfile.PAX_FORMAT))
save('box-linked.tar', tarred(dots + [('./again', './sub/slot.bin')], tarfile.PAX_FORMAT))
save('box-gnu.tar', tarred(long, tarfile.GNU_FORMAT))
save('box-pax.tar', tarred(long, tarfile.PAX_FORMAT))
save('bad-box-behind.tar', tarred(dots, tarfile.USTAR_FORMAT) + b'behind')
save('bad-box-check.tar', tarred(dots, tarfile.USTAR_FORMAT).replace(b'sub/slot', b'sub/slut', 1))
save('bad-box-cut.tar', tarred(dots, tarfile.USTAR_FORMAT)[:2000])

# Batches: each row is a sequence.
both = struct.pack('<10q', *ids5, *ids5[::-1])
save('st-batch-bf16.safetensors', safetensors(layers('bf16', 'BF16', [2, 2, 5, 8]) + [('input_ids', 'I64', [2, 5], both)]))
save('st-batch-one-ids.safetensors', safetensors(layers('f16', 'F16', [2, 2, 5, 8]) + [tokens5]))
save('np-batch-i2.npz', zipped([(f'layers.{i}.{kv}.npy', npy('<i2', '(3, 2, 5, 8)', elements('bf16', 240))) for i in range(2) for kv in ('key', 'value')]))


# Files of engines, as engine_writers.py has them.
def some(tokens=5, n=2):
    def part():
        return elements('bf16', 2 * tokens * 8)
    return engine_writers.Cache([(part(), part()) for _ in range(n)], 2, tokens, 8)


kv = some()
save('mlx-0.32.safetensors', engine_writers.mlx_0_32(kv))
save('mlx-0.32-rotating.safetensors', engine_writers.mlx_0_32(kv.rotated(2), 'RotatingKVCache', 5))
save('mlx-0.32-quantised.safetensors', engine_writers.mlx_quantised(some()))
save('mlx-0.32-hybrid.safetensors', engine_writers.mlx_hybrid(some(), 32))
save('mlx-0.32-list.safetensors', engine_writers.mlx_0_32_list(kv))
save('mlx-0.31.safetensors', engine_writers.mlx_0_31(some()))
save('mlx-0.31-arrays.safetensors', engine_writers.mlx_0_31(some(), 'ArraysCache'))
save('mlx-0.31-hybrid.safetensors', engine_writers.mlx_hybrid(some(), 31))
save('mlx-0.31-list.safetensors', engine_writers.mlx_0_31_list(some(), some()))
for version in (2, 3):
    save(f'omlx-{version}.safetensors', engine_writers.omlx(some(), version))
    save(f'omlx-{version}-hybrid.safetensors', engine_writers.omlx(some(), version, True))
save('vmlx.safetensors', engine_writers.vmlx(some()))
save('vllm-packed.tar', engine_writers.vllm_folder(some(n=12), True))
save('vllm-before.tar', engine_writers.vllm_folder(some(), False))
save('model.layers.7.attn.safetensors', engine_writers.vllm_layer(some(), 1, True))
save('np-ml-dtypes.npz', engine_writers.npz(some()))


# The memories of llama.cpp since the summer of 2026, by its source.
def keys(cells, width=16, layers=2, ext=0, no_values=False, positions=None):
    """A KV memory of keys alone; no_values: with the heads of value matrices whose rows have no bytes."""
    out = stream(True, cells, ext=ext, width=width, layers=layers, values=False, positions=positions)
    return memory(out + layers * (u32(1) + u64(0)) if no_values else out)


def states(position, layers, model_layers, r, s, history=()):
    """Recurrent states; history: the layers with a row of an n-gram history."""
    out = u32(1, position, 0, 0, model_layers)
    for i in range(layers):
        out += u32(0) + u64(4 * r) + elements('f32', r)
        if i in history:
            out += u64(48) + elements('f32', 12)
    for _ in range(layers):
        out += u32(0) + u64(4 * s) + elements('f32', s)
    return out


def sized(kind, width, rows):
    return u32(TYPES[kind][0]) + u64(width, rows, width * TYPES[kind][2]) + elements(kind, width * rows)


def block_keys(rows, width, layers):
    return u32(2, rows, 1, layers) + b''.join(u32(3 + i) + sized('f16', width, rows) for i in range(layers))


def compressors():
    out = b''
    for ratio, rows, width in (4, 8, 16), (128, 128, 8), (4, 8, 8):
        out += u32(1, ratio, rows, width, 1, 1, 3) + sized('f32', width, rows) + sized('f32', width, rows)
    return out


def deepseek4(n, window):
    """A slot of n tokens: no layer without a window, and one that looks at the last tokens."""
    bare = memory(u32(n) + b''.join(u32(i, 1, 0) for i in range(n)) + u32(0, 0, 0, 0))
    return (u32(0x34565344, 1, 0) + bare + keys(window, 24, positions=range(n - window, n)) + block_keys(n // 4, 24, 2) +
            block_keys(n // 128, 24, 1) + block_keys(n // 4, 8, 2) + compressors())


def checkpoint(n, state):
    state = u32(0xaf143cd8, 0) + state
    return u64(n) + u32(0, n - 1) + u64(len(state)) + state + u64(0, 0)


def slot(name, n, *parts, checkpoints=()):
    tail = u32(0x504b4353, 1, len(checkpoints)) + b''.join(checkpoints) if checkpoints else b''
    data = seq(4, packed(list(range(100, 100 + n))), *parts, tail)
    save(name, data)
    return data


idx = slot('ggsq4-hybrid-idx.bin', 12, memory(stream(True, 12)), states(11, 3, 5, 12, 20), keys(12))
slot('ggsq4-hybrid-idx-history.bin', 12, memory(stream(True, 12, ext=12)), states(11, 3, 5, 12, 20, (0, 2)), keys(12, ext=12))
slot('ggsq4-hybrid-idx-one-form.bin', 12, memory(stream(True, 12)), states(11, 3, 5, 12, 12, (1,)), keys(12))
slot('ggsq4-hybrid-idx-checkpoints.bin', 12, memory(stream(True, 12)), states(11, 3, 5, 12, 20), keys(12),
     checkpoints=[checkpoint(n, states(n - 1, 3, 5, 12, 20)) for n in (4, 8)])
slot('ggsq4-dsa-iswa.bin', 12, keys(12, 24), keys(12, 8), keys(6, 24, 3, positions=range(6, 12)))
slot('ggsq4-msa.bin', 12, memory(stream(True, 12)), keys(12, no_values=True))
deep = slot('ggsq4-deepseek4.bin', 140, deepseek4(140, 6))
slot('ggsq4-deepseek4-checkpoint.bin', 140, deepseek4(140, 6), checkpoints=[
    checkpoint(128, u32(0x34565344, 1, 1) + keys(6, 24, positions=range(122, 128)) + compressors())])
save('bad-hybrid-idx-cut.bin', idx[:-9])
save('bad-hybrid-idx-states.bin', idx.replace(u32(1, 11, 0, 0, 5), u32(1, 11, 0, 0, 2)))
save('bad-deepseek4-version.bin', deep.replace(u32(0x34565344, 1, 0), u32(0x34565344, 2, 0)))
save('bad-deepseek4-rows.bin', deep.replace(u64(24, 35, 48), u64(24, 36, 48), 1))


# One cache as each version of a sequence file has it: same elements, token list and cells as that version writes them.
def as_version(version, ext=0, checkpoint_at=0):
    global rng
    rng = random.Random(7)
    old = version == 2
    tokens = list(range(200, 212))

    def cells(n, first=0, width=16):
        out = u32(1, n)
        for i in range(first, first + n):
            out += u32(i, 1)
            if ext:
                out += u32(i, i) + (b'' if old else u32(-1))
            out += u32(0)
        return out + u32(0, 2) + (u32(0, 0) if version == 4 else b'') + b''.join(rows('f16', width, n) for _ in range(4))

    out = seq(version, plain_list(tokens) if old else packed(tokens), cells(12), cells(6, 6) if checkpoint_at else b'')
    if checkpoint_at:
        out += u32(0x504b4353, 1, 1) + checkpoint(checkpoint_at, cells(6, checkpoint_at - 6))
    return out


def plain_list(tokens):
    return u32(len(tokens), *tokens)


for version in 2, 3, 4:
    save(f'version{version}.bin', as_version(version))
    save(f'version{version}-picture.bin', as_version(version, 8))
    save(f'version{version}-checkpoint.bin', as_version(version, 0, 8))
