#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Make small models of every architecture, and the caches that transformers makes of them.

    make_caches.py [FILE]               default: caches.zst next to this script

Needs torch, transformers, gguf and zstandard (made with 2.15.0, 5.23.0, 0.19.0 and 0.25.0). The file is one frame
of Zstandard: for each entry u32 bytes of its name, u32 bytes of its content, name, content. NAME/config.json and
NAME/model.safetensors are what transformers saves; NAME/model.gguf has the same numbers under the names, and in the
order, that llama.cpp's converter gives them; not of models whose windows a GGUF of their architecture does not say.
NAME/cache is what transformers computes in fp32: u32 layers, tokens, first token that is here, channels of all heads
of keys; i32 ids and positions of all tokens; of each layer keys (as stored: after RoPE) and values, then logits, each an fp32
scale and i16 rows of tokens. Weights have few values, so that the file is small.
"""
import os
import struct
import sys
import tempfile

import gguf
import numpy as np
import torch
import transformers as hf
import zstandard

OUT = sys.argv[1] if sys.argv[1:] else os.path.join(os.path.dirname(os.path.abspath(__file__)), 'caches.zst')
WORDS, WIDTH, HEADS, KV, CHANNELS, FFN, LAYERS = 32, 32, 4, 2, 8, 24, 3
SHAPE = dict(vocab_size=WORDS, hidden_size=WIDTH, num_attention_heads=HEADS, num_key_value_heads=KV,
             head_dim=CHANNELS, intermediate_size=FFN, num_hidden_layers=LAYERS, max_position_embeddings=512,
             tie_word_embeddings=True)
LLAMA3 = dict(rope_type='llama3', rope_theta=10000.0, factor=8.0, low_freq_factor=0.5, high_freq_factor=4.0,
              original_max_position_embeddings=64)


def models():
    """name: configuration, first position, tokens, first token kept, whether there is a GGUF."""
    return {
        'llama': (hf.LlamaConfig(attention_bias=True, rms_norm_eps=1e-5, rope_parameters=LLAMA3, **SHAPE),
                  100, 40, 0, True),
        'mistral': (hf.MistralConfig(sliding_window=8, rms_norm_eps=1e-5, **SHAPE), 0, 284, 248, False),
        'qwen2': (hf.Qwen2Config(rope_parameters=dict(rope_type='linear', rope_theta=1e6, factor=4.0),
                                 **dict(SHAPE, tie_word_embeddings=False)), 5, 40, 0, True),
        'qwen2-windows': (hf.Qwen2Config(use_sliding_window=True, sliding_window=5, max_window_layers=1, **SHAPE),
                          0, 40, 0, False),
        'qwen3': (hf.Qwen3Config(rope_parameters=dict(rope_type='default', rope_theta=1e6),
                                 **dict(SHAPE, head_dim=16, num_attention_heads=3, num_key_value_heads=1)),
                  0, 40, 0, True),
        'gemma3': (hf.Gemma3TextConfig(
            sliding_window=8, query_pre_attn_scalar=20, final_logit_softcapping=20.0,
            layer_types=['sliding_attention', 'full_attention', 'sliding_attention'],
            rope_parameters=dict(full_attention=dict(rope_type='linear', factor=8.0, rope_theta=1e6),
                                 sliding_attention=dict(rope_type='default', rope_theta=10000.0)), **SHAPE),
                   30, 40, 0, True),
        'gpt2': (hf.GPT2Config(vocab_size=WORDS, n_positions=48, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
                               n_inner=FFN), 6, 24, 0, True),
    }


def few(rng, shape, most, scale):
    return torch.from_numpy((rng.integers(-most, most + 1, shape) * scale).astype(np.float32))


def fill(name, model, rng):
    """Numbers that show what is left out: gains away from 1, biases away from 0."""
    for key, x in model.state_dict().items():
        if key.endswith('.bias'):
            x.copy_(few(rng, x.shape, 3, 1 / 8))
        elif 'norm' in key or '.ln_' in key:
            x.copy_(few(rng, x.shape, 3, 1 / 8) + (0 if name == 'gemma3' else 1))
        elif 'wpe' in key:
            x.copy_(few(rng, x.shape, 3, 1 / 4))
        elif 'lm_head' not in key or not model.config.tie_word_embeddings:
            x.copy_(few(rng, x.shape, 2, 1 / 2 if 'embed' in key or 'wte' in key else 1 / 8))


def numbers(x):
    """Of one layer, (heads, tokens, channels), as integers of a scale."""
    x = x.transpose(0, 1).reshape(x.shape[1], -1).double().numpy()
    scale = np.float32(np.abs(x).max() / 32767)
    return struct.pack('<f', scale) + np.rint(x / scale).clip(-32767, 32767).astype('<i2').tobytes()


def cache_of(model, rng, at, tokens, first):
    ids = rng.integers(0, WORDS, tokens)
    positions = np.arange(at, at + tokens)
    cache = hf.DynamicCache()
    with torch.no_grad():
        logits = model(torch.tensor(ids)[None], past_key_values=cache,
                       position_ids=torch.tensor(positions)[None],
                       attention_mask=torch.ones(1, tokens)).logits
    out = b''
    for layer in cache.layers:
        assert layer.keys.dtype == torch.float32 and layer.keys.shape[2] == tokens
        out += numbers(layer.keys[0, :, first:]) + numbers(layer.values[0, :, first:])
        row = layer.keys.shape[1] * layer.keys.shape[3]
    out += numbers(logits[:, first:])
    return struct.pack('<4I', LAYERS, tokens, first, row) + ids.astype('<i4').tobytes() + \
        positions.astype('<i4').tobytes() + out


NAMES = {'embed_tokens': 'token_embd', 'wte': 'token_embd', 'wpe': 'position_embd', 'norm': 'output_norm',
         'ln_f': 'output_norm', 'lm_head': 'output'}
LAYER_NAMES = {
    'input_layernorm': 'attn_norm', 'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k',
    'self_attn.v_proj': 'attn_v', 'self_attn.o_proj': 'attn_output', 'self_attn.q_norm': 'attn_q_norm',
    'self_attn.k_norm': 'attn_k_norm', 'post_attention_layernorm': 'ffn_norm', 'mlp.gate_proj': 'ffn_gate',
    'mlp.up_proj': 'ffn_up', 'mlp.down_proj': 'ffn_down', 'ln_1': 'attn_norm', 'attn.c_attn': 'attn_qkv',
    'attn.c_proj': 'attn_output', 'ln_2': 'ffn_norm', 'mlp.c_fc': 'ffn_up', 'mlp.c_proj': 'ffn_down'}
GEMMA3_NAMES = dict(LAYER_NAMES, post_attention_layernorm='post_attention_norm',
                    pre_feedforward_layernorm='ffn_norm', post_feedforward_layernorm='post_ffw_norm')


def tensor_name(key, names):
    parts = key.split('.')
    start = next((i for i, p in enumerate(parts) if p.isdigit()), None)
    if start is None:
        return '%s.%s' % (NAMES[parts[-2]], parts[-1])
    return 'blk.%s.%s.%s' % (parts[start], names['.'.join(parts[start + 1:-1])], parts[-1])


def as_converted(name, key, x):
    """What llama.cpp's converter makes of a tensor."""
    heads = HEADS if '.q_proj.' in key else KV if '.k_proj.' in key else 0
    if name == 'llama' and heads:
        x = x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
    if name == 'gemma3' and 'norm' in key:
        x = x + np.float32(1)
    if name == 'gpt2' and x.ndim == 2 and '.h.' in key:
        x = x.T
    return np.ascontiguousarray(x)


def llama3_factors(rope, channels):
    factors = []
    for i in range(channels // 2):
        n = rope['original_max_position_embeddings'] * rope['rope_theta'] ** (-2 * i / channels) / (2 * np.pi)
        low, high, factor = rope['low_freq_factor'], rope['high_freq_factor'], rope['factor']
        smooth = min(max((n - low) / (high - low), 0), 1)
        factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def describe(w, name, c):
    w.add_block_count(c.num_hidden_layers)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(FFN)
    if c.bos_token_id is not None:
        w.add_bos_token_id(c.bos_token_id)
    w.add_head_count(c.num_attention_heads)
    if name == 'gpt2':
        w.add_context_length(c.n_positions)
        w.add_layer_norm_eps(c.layer_norm_epsilon)
        return
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_key_length(c.head_dim)
    w.add_value_length(c.head_dim)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    rope = c.rope_parameters
    if name == 'gemma3':
        w.add_sliding_window(c.sliding_window)
        w.add_array('gemma3.attention.sliding_window_pattern', [t[0] == 's' for t in c.layer_types])
        w.add_attention_scale(c.query_pre_attn_scalar ** -.5)
        w.add_final_logit_softcapping(c.final_logit_softcapping)
        rope = rope['full_attention']
    w.add_rope_freq_base(rope['rope_theta'])
    if rope['rope_type'] == 'linear':
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(rope['factor'])
    if rope['rope_type'] == 'llama3':
        w.add_tensor('rope_freqs.weight', llama3_factors(rope, c.head_dim))


def write_gguf(path, name, model):
    w = gguf.GGUFWriter(path, name)
    describe(w, name, model.config)
    for key, x in model.state_dict().items():
        if 'lm_head' not in key or not model.config.tie_word_embeddings:
            w.add_tensor(tensor_name(key, GEMMA3_NAMES if name == 'gemma3' else LAYER_NAMES),
                         as_converted(name, key, x.numpy()))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def make(name, config, at, tokens, first, has_gguf, seed):
    rng = np.random.default_rng(seed)
    config._attn_implementation = 'eager'
    model = hf.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    fill(name, model, rng)
    entries = {'cache': cache_of(model, rng, at, tokens, first)}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        if has_gguf:
            write_gguf(os.path.join(folder, 'model.gguf'), name, model)
        for file in ('config.json', 'model.safetensors') + ('model.gguf',) * has_gguf:
            with open(os.path.join(folder, file), 'rb') as f:
                entries[file] = f.read()
    return entries


def main():
    all_bytes = b''
    for seed, (name, what) in enumerate(models().items()):
        for file, content in make(name, *what, seed).items():
            entry = ('%s/%s' % (name, file)).encode()
            all_bytes += struct.pack('<2I', len(entry), len(content)) + entry + content
    params = zstandard.ZstdCompressionParameters.from_level(
        22, window_log=21, write_content_size=True, write_checksum=True)
    with open(OUT, 'wb') as f:
        f.write(zstandard.ZstdCompressor(compression_params=params).compress(all_bytes))


main()
