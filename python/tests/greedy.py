# SPDX-License-Identifier: BSD-3-Clause
"""64 greedy tokens: greedy.py save|load MODEL FOLDER, to compare two processes.

save: prefills 300 tokens, of a model with a larger sliding window 100 more than the window (some in
single steps), saves the cache, continues for 64 tokens and writes tokens and logits. load: loads
the cache and does the same. MODEL: a name of MODELS, a folder, or a GGUF file.
"""
import os
import sys

import torch
import transformers

import kvarc
from kvarc.transformers_model import cache_keyword

PROMPT, STEPS, GREEDY = 290, 10, 64
TINY = dict(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            max_position_embeddings=2048)


def _config(name):
    t = transformers
    if name == "llama":
        return t.LlamaConfig(**TINY)
    if name == "gemma3":  # sliding windows, which the prompt is longer than
        return t.Gemma3TextConfig(**TINY, sliding_window=64, layer_types=[
            "sliding_attention", "sliding_attention", "full_attention", "sliding_attention"])
    if name == "qwen3_next":  # gated delta rule, and full attention
        return t.Qwen3NextConfig(**TINY, layer_types=["linear_attention", "full_attention"] * 2,
                                 linear_key_head_dim=16, linear_value_head_dim=16,
                                 linear_num_key_heads=2, linear_num_value_heads=4, num_experts=4,
                                 num_experts_per_tok=2, moe_intermediate_size=64,
                                 shared_expert_intermediate_size=64)
    if name == "falcon_h1":  # attention and Mamba 2 in each layer
        return t.FalconH1Config(**TINY, mamba_d_ssm=64, mamba_n_heads=4, mamba_d_head=16,
                                mamba_d_state=16)
    if name == "lfm2":  # convolutions
        return t.Lfm2Config(**TINY, layer_types=["conv", "full_attention"] * 2)
    if name == "deepseek_v3":  # keys and values of different widths
        return t.DeepseekV3Config(
            vocab_size=256, hidden_size=64, intermediate_size=128, moe_intermediate_size=32,
            num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4,
            n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, n_group=1,
            topk_group=1, q_lora_rank=24, kv_lora_rank=16, qk_rope_head_dim=8,
            qk_nope_head_dim=16, v_head_dim=12, first_k_dense_replace=1)
    return None


MODELS = ("llama", "gemma3", "qwen3_next", "falcon_h1", "lfm2", "deepseek_v3")


def make(name, dtype=torch.bfloat16):
    """A model of a name, with random weights that are the same each time, or of a path."""
    if os.path.isdir(name):
        return transformers.AutoModelForCausalLM.from_pretrained(name, dtype=dtype).eval()
    if name.endswith(".gguf"):
        folder, file = os.path.split(name)
        return transformers.AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=file, dtype=dtype).eval()
    torch.manual_seed(7)
    return transformers.AutoModelForCausalLM.from_config(_config(name), dtype=dtype).eval()


def window(model):
    """Tokens of the sliding window, 0: there is none."""
    config = model.config.get_text_config()
    sliding = "sliding_attention" in (getattr(config, "layer_types", None) or ())
    return config.sliding_window if sliding else 0


def prompt(model, n=0, batch=1):
    torch.manual_seed(11)
    n = n or max(PROMPT + STEPS, window(model) + 100)
    return torch.randint(3, model.config.get_text_config().vocab_size, (batch, n))


def taking(model, cache):
    """The keyword that gives a model a cache."""
    return {cache_keyword(model): cache}


def prefill(model, ids, cache, single=STEPS):
    """Prompt at once, then single tokens; returns the last logits."""
    n = ids.shape[1] - single
    with torch.no_grad():
        out = model(input_ids=ids[:, :n], use_cache=True, **taking(model, cache))
        for i in range(n, ids.shape[1]):
            out = model(input_ids=ids[:, i:i + 1], use_cache=True, **taking(model, cache))
    return out.logits[:, -1]


def go_on(model, token, cache, n=GREEDY):
    """Greedy tokens and their logits, from a first token [batch] on."""
    tokens, logits = [token], []
    with torch.no_grad():
        for _ in range(n):
            out = model(input_ids=tokens[-1][:, None], use_cache=True, **taking(model, cache))
            logits.append(out.logits[:, -1])
            tokens.append(logits[-1].argmax(-1))
    return torch.stack(tokens), torch.stack(logits)


def main(verb, name, folder):
    model = make(name)
    archive, result = (os.path.join(folder, n) for n in ("x.kva", "x.pt"))
    if verb == "save":
        cache = transformers.DynamicCache(config=model.config)
        ids = prompt(model)
        first = prefill(model, ids, cache).argmax(-1)
        sizes = kvarc.save(archive, cache, tokens=ids, model=model)
        print(f"{os.path.basename(name)}: {ids.shape[1]} tokens, sliding window {window(model)}: "
              f"{sizes['raw_bytes']} bytes to {sizes['file_bytes']}")
        tokens, logits = go_on(model, first, cache)
        torch.save({"tokens": tokens, "logits": logits}, result)
        return 0
    cache = kvarc.load(archive, config=model.config, model=model)
    was = torch.load(result)
    tokens, logits = go_on(model, was["tokens"][0], cache)
    same = torch.equal(tokens, was["tokens"]) and \
        torch.equal(logits.view(torch.int16), was["logits"].view(torch.int16))
    print(f"{os.path.basename(name)}: {len(tokens) - 1} greedy tokens, "
          f"{'the same' if same else 'NOT the same'} tokens and logits")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
