# SPDX-License-Identifier: BSD-3-Clause
"""A cache is continued by the model that computed it, or refused: 32 tokens computed again."""
import contextlib
import copy
import os
import warnings

import numpy as np
import pytest

import kvarc
from kvarc import canary
from conftest import bf16

VOCABULARY = 4096


def made_cache(n=canary.TOKENS, seed=1, layers=3):
    """Pairs that an engine might compute of n tokens: the first ones are the same for each n."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((layers, 2, 100, 2, 32)).astype(np.float32)
    return [(bf16(np.ascontiguousarray(rows[i, 0, :n].transpose(1, 0, 2))),
             bf16(np.ascontiguousarray(rows[i, 1, :n].transpose(1, 0, 2)))) for i in range(layers)]


def changed(pairs, layer, side, token, by=1):
    pairs = [(k.copy(), v.copy()) for k, v in pairs]
    pairs[layer][side][:, token:] ^= by
    return pairs


def test_ids():
    ids = canary.ids(49152)
    assert ids.dtype == np.int32 and len(set(ids.tolist())) == len(ids) == 32
    assert ids.min() >= 1000 and ids.max() < 49152
    text = canary.record(made_cache(), tokens=ids, dtype="bf16")
    assert np.array_equal(canary.ids(recorded=text), ids)
    with pytest.raises(ValueError, match="too few"):
        canary.ids(100)
    for text in "", "1 ", "2" + text[1:], text[:-10], "\n" * 3:
        with pytest.raises(kvarc.FormatError, match="no fingerprint"):
            canary.ids(recorded=text)
        with pytest.raises(kvarc.FormatError, match="no fingerprint"):
            canary.check(text, made_cache(), tokens=ids, dtype="bf16")


def test_check():
    ids, pairs, likely = canary.ids(VOCABULARY), made_cache(), {7: -0.5, 9: -1.0, 2: -2.5}
    text = canary.record(pairs, tokens=ids, dtype="bf16", likely=likely)

    def verdict(pairs, likely=likely):
        found = canary.check(text, pairs, tokens=ids, dtype="bf16", likely=likely)
        assert found.tokens == 32 and found.text and "\n" not in found.text
        return found.answer

    assert verdict(pairs) == verdict(pairs, None) == "exact"
    assert verdict(changed(pairs, 0, 0, 0)) == "not"                  # keys alone: RoPE
    assert verdict(changed(pairs, 0, 1, 0)) == "not"                  # values alone: an adapter
    assert verdict(changed(changed(pairs, 0, 0, 0), 0, 1, 0)) == "near"
    assert verdict(changed(pairs, 1, 0, 0)) == "not"                  # position 0: weights
    assert verdict(changed(pairs, 1, 0, 5)) == "near"                 # attention
    assert verdict(pairs, {7: -0.5, 9: -1.1, 2: -2.5}) == "near"      # behind the last cache
    assert verdict(pairs, {7: -0.5, 9: -2.0, 2: -2.5}) == "not"
    for n, tokens in (31, ids[:31]), (33, np.append(ids, 5)), (32, ids[::-1]):
        with pytest.raises(kvarc.OptionsError, match="32 tokens alone"):
            canary.check(text, made_cache(n), tokens=tokens, dtype="bf16")


def test_compare():
    """Of a cache without a fingerprint its first rows."""
    file = made_cache(100)
    assert canary.compare(file, [(made_cache(80), 64)], dtype="bf16").answer == "exact"
    assert canary.compare(file, [(made_cache(80), 64)], dtype="bf16").tokens == 64
    other = changed(made_cache(32), 1, 0, 5)
    assert canary.compare(file, [(other, 32), (made_cache(80), 64)], dtype="bf16").answer == "exact"
    assert canary.compare(file, [(changed(made_cache(32), 0, 0, 0, by=0x4000), 32)],
                          dtype="bf16").answer == "not"
    assert canary.compare(file, [(made_cache(32, layers=2), 32)], dtype="bf16").answer == "unknown"


def test_any_engine(tmp_path):
    """As the module says it, for an engine without an adapter."""
    ids = canary.ids(VOCABULARY)
    text = canary.record(made_cache(), tokens=ids, dtype="bf16")
    kvarc.save(tmp_path / "s.kva", made_cache(60, seed=2), dtype="bf16", identity={"canary": text})
    recorded = kvarc.info(tmp_path / "s.kva")["identity"]["canary"]
    assert recorded == text
    assert canary.check(recorded, made_cache(), tokens=ids, dtype="bf16").answer == "exact"


# Models of transformers

@pytest.fixture(scope="module")
def models():
    """A model of a name, whose vocabulary is large enough; its weights are the same each time."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers", "5")
    import greedy
    made = {}

    def get(name):
        if name not in made:
            config = greedy._config(name)
            config.vocab_size = VOCABULARY
            torch.manual_seed(7)
            made[name] = transformers.AutoModelForCausalLM.from_config(
                config, dtype=torch.bfloat16).eval()
        return made[name]

    return get


def filled(model, n=40):
    import greedy
    import transformers
    cache = transformers.DynamicCache(config=model.config)
    ids = greedy.prompt(model, n)
    greedy.prefill(model, ids, cache)
    return cache, ids


@contextlib.contextmanager
def scaled(model, name, by):
    """The model while a tensor of its weights has another scale; yields a copy of it."""
    import torch
    other = copy.deepcopy(model)
    with torch.no_grad():
        dict(other.named_parameters())[name].mul_(by)
    yield other


def answer(path, model, **keywords):
    """exact, near or not, as load() shows it; where the weights' sample is not looked at."""
    keywords = {"ignore": ("weights_sample", "config_digest", "rope"), **keywords}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            kvarc.load(path, model=model, **keywords)
        except kvarc.OptionsError as e:
            assert isinstance(e, ValueError) and "\n" not in str(e)
            return "not" if "not of this model" in str(e) else str(e)
    texts = [str(w.message) for w in caught if "may be of another model" in str(w.message)]
    return "near" if texts else "exact"


@pytest.mark.parametrize("name", ("llama", "gemma3", "qwen3_next", "falcon_h1", "lfm2",
                                  "deepseek_v3"))
def test_same_model(tmp_path, models, name):
    model = models(name)
    cache, ids = filled(model)
    path = tmp_path / "x.kva"
    kvarc.save(path, cache, tokens=ids, model=model)
    assert kvarc.info(path)["identity"]["canary"].startswith("1 ")
    assert answer(path, model) == answer(path, model, exact=True) == "exact"
    assert answer(path, copy.deepcopy(model).train(), exact=True) == "exact"
    assert not copy.deepcopy(model).training  # eval() of the load is not kept


# Of each layer's kind of weights one, and those that no cache shows: the last layer and the head.
CHANGES = ("layers.0.self_attn.q_proj", "layers.0.self_attn.k_proj", "layers.1.self_attn.v_proj",
           "layers.1.mlp.down_proj", "layers.2.input_layernorm", "layers.3.self_attn.o_proj",
           "layers.3.mlp.up_proj", "model.norm", "lm_head", "embed_tokens")


@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights(tmp_path, models, change):
    model = models("llama")
    cache, ids = filled(model)
    path = tmp_path / "x.kva"
    kvarc.save(path, cache, tokens=ids, model=model)
    [name] = [n for n, _ in model.named_parameters() if change in n]
    with scaled(model, name, 1.1) as other:
        assert answer(path, other) in ("near", "not")
        assert answer(path, other, exact=True) == "not"
        assert answer(path, other, canary=False) == "exact"  # nothing was looked at
        with pytest.raises(kvarc.OptionsError, match="weights"):
            kvarc.load(path, model=other)  # the sample of weights comes first


def test_changed_rope(tmp_path, models):
    """The same configuration, and twice the base in what the model computes with."""
    import torch
    model = models("llama")
    cache, ids = filled(model)
    path = tmp_path / "x.kva"
    kvarc.save(path, cache, tokens=ids, model=model)
    other = copy.deepcopy(model)
    rotary = other.model.rotary_emb
    half = rotary.inv_freq.numel()
    with torch.no_grad():
        rotary.inv_freq.copy_(1.0 / (20000.0 ** (torch.arange(half) / half)))
    with pytest.raises(kvarc.OptionsError, match="RoPE setting.*canary=False"):
        kvarc.load(path, model=other)
    kvarc.load(path, model=other, canary=False)
    kvarc.load(path, config=other.config)  # a configuration computes nothing


def test_sessions_and_stores(tmp_path, models):
    model = models("llama")
    cache, ids = filled(model)
    session = kvarc.Session(tmp_path / "s.kva", model=model)
    session.append(cache, tokens=ids)
    session.append(cache, tokens=ids, label="again")
    with kvarc.Store(tmp_path / "store") as store:
        store.save("chat", cache, tokens=ids, model=model)
        store.save("plain", cache, tokens=ids, model=model, canary=False)
        assert store.identity("chat")["canary"] == \
            kvarc.info(tmp_path / "s.kva")["identity"]["canary"]
        assert "canary" not in store.identity("plain")
        with scaled(model, "model.layers.0.self_attn.k_proj.weight", 1.1) as other:
            for load in session.load, lambda **k: store.load("chat", **k), \
                    lambda **k: store.load("chat@1", **k):
                load(model=model, exact=True)
                with pytest.raises(kvarc.OptionsError, match="weights"):
                    load(model=other)
                with pytest.raises(kvarc.OptionsError, match="not of this model"):
                    load(model=other, ignore="weights_sample")
                load(model=other, ignore="weights_sample", canary=False)
            store.load("plain", model=other, ignore="weights_sample")
        with pytest.raises(kvarc.OptionsError, match="no canary was recorded"):
            store.load("plain", model=model, exact=True)


def test_without_a_canary(tmp_path, models):
    """What has none is saved and loaded as before; a model that fails costs the canary alone."""
    import greedy
    path = tmp_path / "x.kva"
    small = greedy.make("llama")  # 256 token ids
    cache, ids = filled(small)
    kvarc.save(path, cache, tokens=ids, model=small)
    assert "canary" not in kvarc.info(path)["identity"]
    kvarc.load(path, model=small)
    model = models("llama")
    cache, ids = filled(model)
    for keywords in {"canary": False}, {"model": None, "config": model.config}, {"model": "name"}:
        kvarc.save(path, cache, tokens=ids, **{"model": model, **keywords})
        assert "canary" not in kvarc.info(path)["identity"]

    broken = copy.deepcopy(model)
    broken.forward = lambda **unused: 1 / 0
    with pytest.warns(UserWarning, match="no canary is recorded.*division by zero"):
        kvarc.save(path, cache, tokens=ids, model=broken)
    for keywords in {}, {"config": model.config}, {"model": model, "canary": False}:
        with pytest.raises(TypeError, match="exact: goes with model="):
            kvarc.load(path, exact=True, **keywords)
    kvarc.save(path, cache, tokens=ids, model=model, identity={"canary": "nonsense"})
    with pytest.raises(kvarc.FormatError, match="no fingerprint"):
        kvarc.load(path, model=model)


@pytest.mark.skipif("KVARC_TEST_MODELS" not in os.environ,
                    reason="KVARC_TEST_MODELS: folders or GGUF files of models, by colons")
def test_real_models(tmp_path):
    import greedy
    path = str(tmp_path / "x.kva")
    for name in os.environ["KVARC_TEST_MODELS"].split(":"):
        model = greedy.make(name)
        cache, ids = filled(model, 100)
        kvarc.save(path, cache, tokens=ids, model=model)
        found = {"same": answer(path, model)}
        assert found["same"] == "exact"
        weights = dict(model.named_parameters())
        for weight in [w for w in weights if ".layers.0." in w][:6]:
            with scaled(model, weight, 1.1) as other:
                found[weight] = answer(path, other)
            assert found[weight] in ("near", "not"), weight
        print(os.path.basename(name), found)
