# SPDX-License-Identifier: BSD-3-Clause
"""States of small hybrid models at several lengths of a text, for states.py.

    make_states.py {gdn|mamba2} TRAINING-TEXT TEXT STEPS OUT.npz

A model of transformers (Qwen 3.5 with gated delta rule and attention, or Mamba 2) of about a
million weights reads bytes. It is trained for STEPS steps, on one thread, then reads TEXT; OUT.npz
has its convolution and recurrent states, in f32, under the names LENGTH.LAYER.conv_states and
LENGTH.LAYER.recurrent_states. Time constants of the gates begin as those of trained models do:
softplus(dt_bias) is 0.001 to 0.1.
"""
import sys

import numpy as np
import torch
import transformers

LENGTHS = (256, 512, 513, 520, 544, 576, 640, 768, 1024, 2048)


def make(name):
    if name == "gdn":
        model = transformers.Qwen3_5ForCausalLM(transformers.Qwen3_5TextConfig(
            vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, head_dim=32, linear_num_key_heads=2,
            linear_num_value_heads=4, linear_key_head_dim=128, linear_value_head_dim=128,
            layer_types=["linear_attention", "linear_attention", "full_attention"],
            max_position_embeddings=4096, tie_word_embeddings=True))
    else:
        model = transformers.Mamba2ForCausalLM(transformers.Mamba2Config(
            vocab_size=256, hidden_size=192, state_size=128, num_hidden_layers=2, num_heads=6,
            head_dim=64, n_groups=1, expand=2, chunk_size=64, tie_word_embeddings=True,
            bos_token_id=0, eos_token_id=0, pad_token_id=0))
    for key, weights in model.named_parameters():
        if key.endswith("dt_bias"):
            dt = torch.exp(torch.empty_like(weights).uniform_(np.log(0.001), np.log(0.1)))
            weights.data = dt + torch.log(-torch.expm1(-dt))
    return model


def train(model, text, steps):
    rng = np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    for step in range(steps):
        at = rng.integers(0, len(text) - 129, 8)
        x = torch.tensor(np.stack([text[a:a + 128] for a in at]).astype(np.int64))
        loss = model(input_ids=x, labels=x, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * min(1, (step + 1) / 50)
        optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1}: {loss.item() / np.log(2):.2f} bits a byte", flush=True)


def states(model, name, text):
    cache = transformers.DynamicCache(config=model.config)
    argument = "past_key_values" if name == "gdn" else "cache_params"
    out, done = {}, 0
    for end in LENGTHS:
        pieces = 1 if not done or end - done > 64 else end - done
        for piece in np.array_split(text[done:end].astype(np.int64), pieces):
            with torch.no_grad():
                model(input_ids=torch.tensor(piece)[None], use_cache=True, **{argument: cache})
        done = end
        for i, layer in enumerate(cache.layers):
            for kind in ("conv_states", "recurrent_states"):
                found = getattr(layer, kind, None)
                if found is not None and found[0] is not None:
                    out[f"{end}.{i}.{kind}"] = found[0].float().numpy().copy()
    return out


def main():
    name, training, test, steps, to = sys.argv[1:]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = make(name)
    with open(training, "rb") as f:
        train(model, np.frombuffer(f.read(), np.uint8), int(steps))
    model.eval()
    with open(test, "rb") as f:
        np.savez(to, **states(model, name, np.frombuffer(f.read(), np.uint8)[2000:]))


main()
