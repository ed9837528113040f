#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Make the tiny models of this folder, and what a loader must find in them.

    make_models.py [FOLDER]

Needs numpy and gguf (made with 2.4.6 and 0.19.0), whose writer and dequantisers are
independent of this library. NAME.txt beside a model is the text that tests/unit/test_weights
prints of it; numbers.bin has blocks of every type with their values.
"""
import decimal
import json
import os
import struct
import sys

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

HERE = sys.argv[1] if sys.argv[1:] else os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(1)
Q = gguf.GGMLQuantizationType
decimal.getcontext().prec = 50
TAU = 2 * decimal.Decimal('3.14159265358979323846264338327950288419716939937510582')


def h64(x):
    """FNV-1a of numbers as fp32."""
    h = 0xcbf29ce484222325
    for b in np.ascontiguousarray(x, '<f4').tobytes():
        h = (h ^ b) * 0x100000001b3 & (1 << 64) - 1
    return '%016x' % h


def bits(x):
    return '%08x' % struct.unpack('<I', struct.pack('<f', x))


def frequencies(theta, rotary, scale=lambda i, f: f):
    """In units of 2^-48."""
    out = []
    for i in range(rotary // 2):
        f = decimal.Decimal(theta) ** (decimal.Decimal(-2 * i) / rotary) / TAU
        f = int((f * 2 ** 48).to_integral_value())
        out.append(int(np.floor(scale(i, float(f)) + .5)))
    return out


def llama3(factor, low, high, context):
    def scale(_, f):
        n = f * 2.0 ** -48 * context
        if n >= high:
            return f
        if n <= low:
            return f / factor
        b = (n - low) / (high - low)
        return (1 - b) * (f / factor) + b * f
    return scale


LAYER = ['input_norm', 'input_norm_bias', 'q', 'k', 'v', 'o', 'q_bias', 'k_bias',
         'v_bias', 'o_bias', 'q_norm', 'k_norm', 'after_attention_norm', 'ffn_norm',
         'ffn_norm_bias', 'gate', 'up', 'down', 'up_bias', 'down_bias',
         'after_ffn_norm']
MODEL = ['embedding', 'positions', 'output_norm', 'output_norm_bias', 'output']


def expect(name, head, ropes, layers, found):
    """found: {place: (type, values)}; layers: (window, rope) of each."""
    lines = [head]
    lines += ['rope %d %s' % (2 * len(r), ' '.join('%x' % f for f in r)) for r in ropes]

    def put(place):
        if place not in found:
            return
        kind, x = found[place]
        x = np.atleast_2d(x)
        lines.append('%s %d %dx%d %s' % (place, kind, *x.shape, h64(x)))
    if 'output' not in found:
        found['output'] = found['embedding']
    for place in MODEL:
        put(place)
    for i, (window, rope) in enumerate(layers):
        lines.append('layer %d window %d rope %d' % (i, window, rope))
        for place in LAYER:
            put('%d.%s' % (i, place))
    with open(os.path.join(HERE, name + '.txt'), 'w') as f:
        f.write('\n'.join(lines) + '\n')


def head(arch, sizes, eps, attention, embedding, flags, name=''):
    return '%s "%s" %s eps %s attention %s embedding %s %s' % (
        arch, name, ' '.join(map(str, sizes)), bits(eps), bits(attention),
        bits(embedding), flags)


def tame_blocks(kind, n):
    """Random blocks whose scales are small and finite."""
    _, size = gguf.GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (n, size), dtype=np.uint8)
    places = {Q.Q4_0: [0], Q.Q4_1: [0, 2], Q.Q5_0: [0], Q.Q5_1: [0, 2], Q.Q8_0: [0],
              Q.Q4_K: [0, 2], Q.Q5_K: [0, 2], Q.Q6_K: [208], Q.IQ4_NL: [0]}
    for at in places[kind]:
        d = (rng.standard_normal(n) * .1).astype('<f2')
        d[0] = 3e-6  # a subnormal
        raw[:, at:at + 2] = d.view(np.uint8).reshape(n, 2)
    return raw


def numbers():
    """For each type u32 type, u32 columns, u32 bytes of two rows, the rows, u64 h64."""
    out = b''
    for kind in (Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0, Q.Q4_K, Q.Q5_K, Q.Q6_K,
                 Q.IQ4_NL):
        raw = tame_blocks(kind, 2 if kind in (Q.Q4_K, Q.Q5_K, Q.Q6_K) else 4)
        x = dequantize(raw, kind)
        out += struct.pack('<III', kind, x.size // 2, raw.size) + raw.tobytes() + \
            struct.pack('<Q', int(h64(x), 16))
    for kind, raw in ((Q.F16, rng.integers(0, 0x7c00, 64).astype('<u2') |
                       (rng.integers(0, 2, 64) << 15).astype('<u2')),
                      (Q.BF16, rng.integers(0, 0x7f80, 64).astype('<u2')),
                      (Q.F32, rng.standard_normal(64).astype('<f4'))):
        x = raw if kind == Q.F32 else raw.view('<f2').astype('<f4') if kind == Q.F16 \
            else (raw.astype('<u4') << 16).view('<f4')
        raw = raw.tobytes()
        out += struct.pack('<III', kind, 32, len(raw)) + raw + \
            struct.pack('<Q', int(h64(x), 16))
    with open(os.path.join(HERE, 'numbers.bin'), 'wb') as f:
        f.write(out)


def encode(x, kind):
    """The data of a tensor as a type, and its values."""
    x = x.astype(np.float32)
    if kind == Q.F32:
        return x, x
    if kind == Q.F16:
        return x.astype('<f2'), x.astype('<f2').astype('<f4')
    if kind == Q.IQ4_NL:
        raw = tame_blocks(kind, x.size // 32).reshape(x.shape[0], -1)
    else:
        raw = quantize(x, kind)
    return raw, dequantize(raw, kind).astype('<f4')


class Shapes:
    def __init__(self, width, heads, kv, hc, ffn, vocabulary):
        q, k = heads * hc, kv * hc
        self.of = {
            'q': (q, width), 'k': (k, width), 'v': (k, width), 'o': (width, q),
            'gate': (ffn, width), 'up': (ffn, width), 'down': (width, ffn),
            'q_bias': (q,), 'k_bias': (k,), 'v_bias': (k,), 'o_bias': (width,),
            'up_bias': (ffn,), 'down_bias': (width,), 'q_norm': (hc,), 'k_norm': (hc,),
            'embedding': (vocabulary, width), 'output': (vocabulary, width),
            'qkv': (q + 2 * k, width), 'qkv_bias': (q + 2 * k,), 'positions': (6, width)}
        self.width = width

    def make(self, place):
        shape = self.of.get(place.split('.')[-1], (self.width,))
        return rng.standard_normal(shape).astype(np.float32)


GGUF = {'input_norm': 'attn_norm.weight', 'input_norm_bias': 'attn_norm.bias',
        'q': 'attn_q.weight', 'k': 'attn_k.weight', 'v': 'attn_v.weight',
        'o': 'attn_output.weight', 'q_bias': 'attn_q.bias', 'k_bias': 'attn_k.bias',
        'v_bias': 'attn_v.bias', 'o_bias': 'attn_output.bias',
        'q_norm': 'attn_q_norm.weight', 'k_norm': 'attn_k_norm.weight',
        'after_attention_norm': 'post_attention_norm.weight',
        'ffn_norm': 'ffn_norm.weight', 'ffn_norm_bias': 'ffn_norm.bias',
        'gate': 'ffn_gate.weight', 'up': 'ffn_up.weight', 'down': 'ffn_down.weight',
        'up_bias': 'ffn_up.bias', 'down_bias': 'ffn_down.bias',
        'after_ffn_norm': 'post_ffw_norm.weight', 'qkv': 'attn_qkv.weight',
        'qkv_bias': 'attn_qkv.bias', 'embedding': 'token_embd.weight',
        'positions': 'position_embd.weight', 'output_norm': 'output_norm.weight',
        'output_norm_bias': 'output_norm.bias', 'output': 'output.weight'}
BASE = ['input_norm', 'q', 'k', 'v', 'o', 'ffn_norm', 'gate', 'up', 'down']
GPT2 = ['input_norm', 'input_norm_bias', 'qkv', 'qkv_bias', 'o', 'o_bias', 'ffn_norm',
        'ffn_norm_bias', 'up', 'up_bias', 'down', 'down_bias']


def split_qkv(found, i, width):
    for what in ('', '_bias'):
        kind, x = found.pop('%d.qkv%s' % (i, what))
        for k, part in enumerate('qkv'):
            found['%d.%s%s' % (i, part, what)] = kind, x[k * width:(k + 1) * width]


def write_gguf(name, arch, sizes, meta, places, model, types, extra=()):
    """sizes: layers, width, heads, kv heads, head channels, ffn, vocabulary."""
    layers, width, heads, kv, hc, ffn, vocabulary = sizes
    shapes = Shapes(width, heads, kv, hc, ffn, vocabulary)
    w = gguf.GGUFWriter(os.path.join(HERE, name + '.gguf'), arch)
    w.add_block_count(layers)
    w.add_embedding_length(width)
    w.add_feed_forward_length(ffn)
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    meta(w)
    found = {}

    def put(place, tensor):
        last = place.split('.')[-1]
        x = shapes.make(place)
        kind = types.get(last, Q.F16) if x.ndim == 2 else Q.F32
        raw, x = encode(x, kind)
        w.add_tensor(tensor, raw, raw_dtype=kind)
        found[place] = kind, x
    for place in model:
        put(place, GGUF[place])
    for tensor, x in extra:
        w.add_tensor(tensor, np.array(x, np.float32))
    for i in range(layers):
        for place in places:
            put('%d.%s' % (i, place), 'blk.%d.%s' % (i, GGUF[place]))
        if 'qkv' in places:
            split_qkv(found, i, width)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return found


def ggufs():
    def llama(w):
        w.add_name('a tiny model')
        w.add_layer_norm_rms_eps(1e-5)
        w.add_rope_freq_base(500000.0)
        w.add_rope_dimension_count(16)
        w.add_vocab_size(8)
        w.add_array('tokenizer.ggml.tokens', list('abcdefgh'))
    factors = [1, 1, 1.5, 2, 4, 8, 8, 8]
    sizes = 1, 32, 2, 1, 16, 32, 8
    found = write_gguf(
        'llama', 'llama', sizes, llama, BASE, ['embedding', 'output_norm'],
        {'embedding': Q.Q8_0, 'q': Q.Q4_1, 'k': Q.Q5_1, 'v': Q.Q5_0, 'o': Q.Q4_0,
         'gate': Q.IQ4_NL, 'up': Q.BF16},
        [('rope_freqs.weight', factors)])
    expect('llama', head('llama', sizes, 1e-5, .25, 1, 'interleaved', 'a tiny model'),
           [frequencies(500000, 16, lambda i, f: f / factors[i])], [(0, 0)], found)

    def qwen2(w):
        w.add_layer_norm_rms_eps(1e-6)
        w.add_rope_freq_base(1000000.0)
        w.add_custom_alignment(64)
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(4.0)
    sizes = 2, 8, 2, 2, 4, 12, 5
    found = write_gguf('qwen2', 'qwen2', sizes, qwen2,
                       BASE + ['q_bias', 'k_bias', 'v_bias'],
                       ['embedding', 'output', 'output_norm'], {})
    expect('qwen2', head('qwen2', sizes, 1e-6, .5, 1, ''),
           [frequencies(1000000, 4, lambda i, f: f / 4)], [(0, 0)] * 2, found)

    def qwen3(w):
        w.add_layer_norm_rms_eps(1e-6)
        w.add_rope_freq_base(1000000.0)
        w.add_key_length(6)
        w.add_value_length(6)
    sizes = 1, 8, 4, 2, 6, 12, 5
    found = write_gguf('qwen3', 'qwen3', sizes, qwen3, BASE + ['q_norm', 'k_norm'],
                       ['embedding', 'output_norm'], {'q': Q.BF16})
    expect('qwen3', head('qwen3', sizes, 1e-6, 6 ** -.5, 1, ''),
           [frequencies(1000000, 6)], [(0, 0)], found)

    def gemma3(w):
        w.add_layer_norm_rms_eps(1e-6)
        w.add_rope_freq_base(1000000.0)
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(8.0)
        w.add_key_length(4)
        w.add_value_length(4)
        w.add_sliding_window(5)
    sizes = 6, 8, 1, 1, 4, 8, 5
    found = write_gguf('gemma3', 'gemma3', sizes, gemma3,
                       BASE + ['q_norm', 'k_norm', 'after_attention_norm',
                               'after_ffn_norm'], ['embedding', 'output_norm'], {})
    expect('gemma3', head('gemma3', sizes, 1e-6, .5, 8 ** .5, 'gelu'),
           [frequencies(1000000, 4, lambda i, f: f / 8), frequencies(10000, 4)],
           [(0, 0) if i == 5 else (5, 1) for i in range(6)], found)

    def gpt2(w):
        w.add_layer_norm_eps(1e-5)
        w.add_context_length(6)
    sizes = 1, 32, 2, 2, 16, 32, 5
    found = write_gguf('gpt2', 'gpt2', sizes, gpt2, GPT2,
                       ['embedding', 'positions', 'output_norm', 'output_norm_bias'],
                       {'qkv': Q.Q8_0, 'o': Q.Q4_0, 'up': Q.Q4_0, 'down': Q.Q4_0})
    expect('gpt2', head('gpt2', sizes, 1e-5, .25, 1, 'layer-norm gelu'), [], [(0, 0)],
           found)


HF = {'input_norm': 'input_layernorm', 'q': 'self_attn.q_proj', 'k': 'self_attn.k_proj',
      'v': 'self_attn.v_proj', 'o': 'self_attn.o_proj', 'q_norm': 'self_attn.q_norm',
      'k_norm': 'self_attn.k_norm', 'ffn_norm': 'post_attention_layernorm',
      'gate': 'mlp.gate_proj', 'up': 'mlp.up_proj', 'down': 'mlp.down_proj',
      'embedding': 'embed_tokens', 'output_norm': 'norm'}
HF_GEMMA3 = dict(HF, after_attention_norm='post_attention_layernorm',
                 ffn_norm='pre_feedforward_layernorm',
                 after_ffn_norm='post_feedforward_layernorm')
HF_GPT2 = {'input_norm': 'ln_1', 'qkv': 'attn.c_attn', 'o': 'attn.c_proj',
           'ffn_norm': 'ln_2', 'up': 'mlp.c_fc', 'down': 'mlp.c_proj',
           'embedding': 'wte', 'positions': 'wpe', 'output_norm': 'ln_f'}
DTYPES = {'F32': Q.F32, 'F16': Q.F16, 'BF16': Q.BF16}


def hf_raw(x, dtype):
    if dtype == 'F32':
        return x.astype('<f4').tobytes(), x.astype('<f4')
    if dtype == 'F16':
        return x.astype('<f2').tobytes(), x.astype('<f2').astype('<f4')
    x = (x.astype('<f4').view('<u4') >> 16).astype('<u2')
    return x.tobytes(), (x.astype('<u4') << 16).view('<f4')


def write_part(path, tensors):
    header, data = {}, b''
    for name, dtype, shape, raw in tensors:
        header[name] = {'dtype': dtype, 'shape': shape,
                        'data_offsets': [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(',', ':')).encode()
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + data)


def write_folder(name, config, sizes, dtype, names, places, model, prefix, layer,
                 parts=1, extra=()):
    """output is always outside of the prefix."""
    layers, width, heads, kv, hc, ffn, vocabulary = sizes
    shapes, found, tensors = Shapes(width, heads, kv, hc, ffn, vocabulary), {}, []
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)

    def put(place, start):
        last = place.split('.')[-1]
        bias = last.endswith('_bias')
        raw, x = hf_raw(shapes.make(place), dtype)
        turned = names is HF_GPT2 and x.ndim == 2 and start.endswith('.')
        turned = turned and last in ('qkv', 'o', 'up', 'down')
        stored = x.T if turned else x
        if turned:
            raw = hf_raw(np.ascontiguousarray(stored), dtype)[0]
        tensor = 'lm_head' if last == 'output' else start + names[last[:-5] if bias else last]
        tensors.append((tensor + ('.bias' if bias else '.weight'), dtype,
                        list(stored.shape), raw))
        found[place] = DTYPES[dtype], x
    for place in model:
        put(place, prefix)
    for i in range(layers):
        for place in places:
            put('%d.%s' % (i, place), '%s%s%d.' % (prefix, layer, i))
        if 'qkv' in places:
            split_qkv(found, i, width)
    tensors += extra
    with open(os.path.join(folder, 'config.json'), 'w') as f:
        json.dump(config, f, indent=1)
    if parts == 1:
        write_part(os.path.join(folder, 'model.safetensors'), tensors)
        return found
    index = {}
    for i in range(parts):
        part = 'model-%05d-of-%05d.safetensors' % (i + 1, parts)
        write_part(os.path.join(folder, part), tensors[i::parts])
        index.update({t[0]: part for t in tensors[i::parts]})
    with open(os.path.join(folder, 'model.safetensors.index.json'), 'w') as f:
        json.dump({'metadata': {}, 'weight_map': index}, f)
    return found


def folders():
    sizes = 2, 8, 2, 1, 8, 12, 5
    rope = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=64, rope_type='llama3')
    found = write_folder(
        'llama', dict(model_type='llama', num_hidden_layers=2, hidden_size=8,
                      num_attention_heads=2, num_key_value_heads=1, head_dim=8,
                      intermediate_size=12, rms_norm_eps=1e-5, hidden_act='silu',
                      rope_theta=500000.0, rope_scaling=rope, vocab_size=5,
                      _name_or_path='a/llama'),
        sizes, 'BF16', HF, BASE, ['embedding', 'output_norm'], 'model.', 'layers.', 2)
    expect('llama.folder', head('llama', sizes, 1e-5, 8 ** -.5, 1, '', 'a/llama'),
           [frequencies(500000, 8, llama3(8, 1, 4, 64))], [(0, 0)] * 2, found)

    sizes = 1, 8, 2, 1, 4, 12, 5
    found = write_folder(
        'mistral', dict(model_type='mistral', num_hidden_layers=1, hidden_size=8,
                        num_attention_heads=2, num_key_value_heads=1, head_dim=None,
                        intermediate_size=12, rms_norm_eps=1e-5, sliding_window=3),
        sizes, 'F16', HF, BASE, ['embedding', 'output_norm', 'output'], 'model.',
        'layers.')
    expect('mistral.folder', head('llama', sizes, 1e-5, .5, 1, ''),
           [frequencies(10000, 4)], [(3, 0)], found)

    sizes = 2, 8, 2, 2, 4, 12, 5
    found = write_folder(
        'qwen2', dict(model_type='qwen2', num_hidden_layers=2, hidden_size=8,
                      num_attention_heads=2, num_key_value_heads=2,
                      intermediate_size=12, rms_norm_eps=1e-6, rope_theta=1000000,
                      use_sliding_window=True, sliding_window=7, max_window_layers=1,
                      rope_scaling=dict(type='linear', factor=2)),
        sizes, 'BF16', HF, BASE + ['q_bias', 'k_bias', 'v_bias'],
        ['embedding', 'output_norm'], '', 'layers.')
    expect('qwen2.folder', head('qwen2', sizes, 1e-6, .5, 1, ''),
           [frequencies(1000000, 4, lambda i, f: f / 2)], [(0, 0), (7, 0)], found)

    sizes = 1, 4, 1, 1, 128, 6, 5
    found = write_folder(
        'qwen3', dict(model_type='qwen3', num_hidden_layers=1, hidden_size=4,
                      num_attention_heads=1, num_key_value_heads=1,
                      intermediate_size=6, rms_norm_eps=1e-6,
                      rope_parameters=dict(rope_type='default', rope_theta=1000000.0,
                                           partial_rotary_factor=.25)),
        sizes, 'BF16', HF, BASE + ['q_norm', 'k_norm'], ['embedding', 'output_norm'],
        'model.', 'layers.')
    expect('qwen3.folder', head('qwen3', sizes, 1e-6, 128 ** -.5, 1, ''),
           [frequencies(1000000, 32)], [(0, 0)], found)

    sizes = 2, 8, 2, 1, 4, 12, 5
    text = dict(model_type='gemma3_text', num_hidden_layers=2, hidden_size=8,
                num_attention_heads=2, num_key_value_heads=1, head_dim=4,
                intermediate_size=12, sliding_window=9, query_pre_attn_scalar=16,
                layer_types=['full_attention', 'sliding_attention'],
                rope_parameters=dict(
                    full_attention=dict(rope_type='linear', factor=8.0,
                                        rope_theta=1000000.0),
                    sliding_attention=dict(rope_type='default', rope_theta=10000.0)))
    found = write_folder(
        'gemma3', dict(model_type='gemma3', text_config=text, vision_config={}), sizes,
        'BF16', HF_GEMMA3, BASE + ['q_norm', 'k_norm', 'after_attention_norm',
                                   'after_ffn_norm'], ['embedding', 'output_norm'],
        'language_model.model.', 'layers.',
        extra=[('vision_tower.x.weight', 'I64', [1, 1, 1], bytes(8))])
    expect('gemma3.folder', head('gemma3', sizes, 1e-6, .25, 2.828125, 'plus-one gelu'),
           [frequencies(1000000, 4, lambda i, f: f / 8), frequencies(10000, 4)],
           [(0, 0), (9, 1)], found)

    sizes = 1, 8, 2, 2, 4, 32, 5
    found = write_folder(
        'gpt2', dict(model_type='gpt2', n_layer=1, n_embd=8, n_head=2, n_inner=None,
                     layer_norm_epsilon=1e-5, activation_function='gelu_new'),
        sizes, 'F32', HF_GPT2, GPT2,
        ['embedding', 'positions', 'output_norm', 'output_norm_bias'], '', 'h.',
        extra=[('h.0.attn.bias', 'U8', [1, 1, 2, 2], bytes(4))])
    expect('gpt2.folder', head('gpt2', sizes, 1e-5, .5, 1, 'layer-norm gelu'), [],
           [(0, 0)], found)


numbers()
ggufs()
folders()
