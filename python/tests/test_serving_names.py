# SPDX-License-Identifier: BSD-3-Clause
"""Records of serving engines: hits for equal configurations, misses for all others."""
import dataclasses
import itertools
import json
import os

import numpy as np
import pytest

from kvarc._served import Served, config_of
from test_serving import CHANNELS, HEADS, LAYERS, PAGE, TOKENS, cache, engine, lmcache_find, \
    lmcache_key, lmcache_load, lmcache_objects, lmcache_store, make_hicache, make_tier, \
    vllm_job, vllm_keys

LLAMA = {"model_type": "llama", "num_attention_heads": 9, "num_key_value_heads": 3,
         "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0}}
# Configurations of a model, each of which makes another cache of the same tokens.
CONFIGS = {
    "base": LLAMA,
    "rope theta": {**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 200000.0}},
    "rope scaling": {**LLAMA, "rope_parameters": {"rope_type": "yarn", "factor": 4.0,
                                                  "rope_theta": 100000.0}},
    "heads": {**LLAMA, "num_attention_heads": 3},
    "quantisation": {**LLAMA, "quantization_config": {"quant_method": "fp8"}},
}


def write_config(folder, config):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def assert_all_differ(names):
    """names: by what they are of."""
    for (a, one), (b, other) in itertools.combinations(names.items(), 2):
        assert one != other, (a, b)


def test_configurations(tmp_path, caplog):
    """Of a folder, of a file, and of a folder with changes."""
    digests = {what: config_of(write_config(tmp_path / "m", config))
               for what, config in CONFIGS.items()}
    assert_all_differ(digests)
    model = write_config(tmp_path / "m", LLAMA)
    assert config_of(model) == config_of("a/model", model) == config_of("", f"{model}/config.json")
    for what, config in CONFIGS.items():
        assert config_of(model, {k: v for k, v in config.items() if LLAMA.get(k) != v}) == \
            digests[what]
    # the order of members, and members that say nothing of a cache, make no difference
    same = {**dict(reversed(LLAMA.items())), "transformers_version": "5.0", "use_cache": False}
    assert config_of(write_config(tmp_path / "other", same)) == digests["base"]
    assert caplog.text == ""
    assert config_of(str(tmp_path / "no such model")) == ""
    assert "model_config" in caplog.text and len(caplog.records) == 1
    for text in "", "[]", "{":
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(ValueError, match="bad.json.* is no configuration"):
            config_of("", str(tmp_path / "bad.json"))
    with pytest.raises(ValueError, match="absent"):
        config_of("", str(tmp_path / "absent"))


def test_every_part_of_a_name_counts():
    base = Served("e", "m", "c", "l", "d", (("tp", "0/1"), ("pp", "0/1")))
    names = {"base": base.name("x"), "block": base.name("y"), "blocks": base.name("x", "")}
    for field in "engine", "model", "config", "layout", "dtype":
        names[field] = dataclasses.replace(base, **{field: "other"}).name("x")
    for rank in "1/2", "0/2", "0/11":
        names["tp", rank] = dataclasses.replace(
            base, parallel=(("tp", rank), ("pp", "0/1"))).name("x")
        names["pp", rank] = dataclasses.replace(
            base, parallel=(("tp", "0/1"), ("pp", rank))).name("x")
    names["moved"] = dataclasses.replace(base, layout="d", dtype="l").name("x")
    # an @ in a part cannot make it two
    names["@"], names["%40"] = base.name("a@b"), base.name("a%40b")
    names["two"] = base.name("a", "b")
    assert_all_differ(names)
    assert dataclasses.replace(base).name("x") == base.name("x")


# vLLM: of each setting the others, and itself. The pairs of vllm_identity.py, a script of a report.

LBNHC = {"layout": "LBNHC"}
VLLM = {
    "LBNHC": LBNHC,
    "LBHNC": {"layout": "LBHNC"},  # vLLM #55904
    "BLHNC": {"layout": "BLHNC"},
    "LHBNC": {"layout": "LHBNC"},
    "LBHNC, 4 blocks a chunk": {"layout": "LBHNC", "blocks": 4},
    "LHBNC, 4 blocks a chunk": {"layout": "LHBNC", "blocks": 4},
    "LBNHC, 4 blocks a chunk": {"layout": "LBNHC", "blocks": 4},
    "BLNHC, 4 blocks a chunk": {"layout": "BLNHC", "blocks": 4},
    "LBNHC, TP 2": {"layout": "LBNHC", "tp": 2},  # vLLM #55191
    "LBHNC, TP 2": {"layout": "LBHNC", "tp": 2},
    "LBNHC, PP 2": {"layout": "LBNHC", "pp": 2},
    "LBHNC, PP 2": {"layout": "LBHNC", "pp": 2},
    "float16": {**LBNHC, "dtype": "torch.float16"},
    "fp8": {**LBNHC, "dtype": "fp8"},
    "fp8_e5m2": {**LBNHC, "dtype": "fp8_e5m2"},
    "fp8_per_token_head": {**LBNHC, "dtype": "fp8_per_token_head"},
    "int8_per_token_head": {**LBNHC, "dtype": "int8_per_token_head"},
    **{f"config: {what}": {**LBNHC, "model_config": config}  # vLLM #56311
       for what, config in CONFIGS.items()},
    "config of the connector": {**LBNHC, "extra_config": (("kvarc_model_config", "0" * 32),)},
    "another of the connector": {**LBNHC, "extra_config": (("kvarc_model_config", "1" * 32),)},
}


@pytest.mark.parametrize("stored", VLLM)
def test_vllm(stored, tmp_path):
    tier, _, n = make_tier(str(tmp_path / "t"), **VLLM[stored])
    keys = vllm_keys(n)
    assert vllm_job(tier, tier.submit_store, keys[:2], [0, 1]).success
    tier.shutdown()
    for loaded, setting in VLLM.items():
        tier, primary, n = make_tier(str(tmp_path / "t"), **setting)
        equal = loaded == stored
        assert tier.has_each(keys[:2]) == [equal] * 2, loaded
        assert vllm_job(tier, tier.submit_load, keys[:2], [n, n + 1]).success == equal, loaded
        if equal:
            assert np.array_equal(primary[:2], primary[n:n + 2])
        tier.shutdown()


def test_vllm_of_a_folder(tmp_path):
    """The configuration of the model's folder counts, without an option."""
    engine("vllm.v1.kv_offload.tiering.factory")
    keys = vllm_keys(1)
    for config in CONFIGS.values():
        model = write_config(tmp_path / "model", config)
        for equal in False, True:
            tier, _, _ = make_tier(str(tmp_path / "t"), model=model)
            assert tier.has(keys[0]) == equal
            assert vllm_job(tier, tier.submit_store, keys, [0]).success
            tier.shutdown()


def test_vllm_connector(tmp_path, monkeypatch):
    """It passes what vLLM resolved, with --hf-overrides, on to the tier; vLLM's own connector
    behind it needs a GPU."""
    engine("vllm.v1.kv_offload.tiering.factory")
    from transformers import AutoTokenizer, LlamaConfig  # noqa: F401: before vLLM imports it
    from types import SimpleNamespace
    from kvarc.vllm_connector import KvarcConnector, OffloadingConnector
    monkeypatch.setattr(OffloadingConnector, "__init__", lambda self, *arguments: None)

    def extra_of(quantization=None, **members):
        extra = {}
        KvarcConnector(SimpleNamespace(
            model_config=SimpleNamespace(hf_config=LlamaConfig(**members),
                                         quantization=quantization),
            kv_transfer_config=SimpleNamespace(kv_connector_extra_config=extra)), None, None)
        return tuple(extra.items())

    extras = {"plain": extra_of(), "fp8": extra_of("fp8"), "heads": extra_of(num_key_value_heads=4),
              "rope": extra_of(rope_parameters={"rope_type": "default", "rope_theta": 5e5})}
    assert_all_differ(extras)
    assert extras["plain"] == extra_of()
    keys = vllm_keys(1)
    tier, _, _ = make_tier(str(tmp_path / "t"), extra_config=extras["plain"])
    assert vllm_job(tier, tier.submit_store, keys, [0]).success
    tier.shutdown()
    for what, extra in extras.items():
        tier, _, _ = make_tier(str(tmp_path / "t"), extra_config=extra)
        assert tier.has(keys[0]) == (what == "plain")
        tier.shutdown()


# LMCache

# kv_rank of LMCache: world size, rank, and both of the host, 8 bits each
TP1, TP2_0, TP2_1 = 0x01000100, 0x02000200, 0x02010201
LMCACHE = {
    "base": {},
    "float16": {"dtype": "float16"},
    "shape": {"shape": (2, LAYERS, PAGE // 2, 2 * HEADS * CHANNELS)},
    "shape without pairs": {"shape": (1, 2 * LAYERS, PAGE, HEADS * CHANNELS)},
    "rank 0 of 2": {"rank": TP2_0},
    "rank 1 of 2": {"rank": TP2_1},
    "model": {"model": "another/model"},
    "group": {"group": 1},
    "salt": {"salt": "tenant"},
    **{f"config: {what}": {"model_config": config} for what, config in CONFIGS.items()},
}


def lmcache_of(path, dtype="bfloat16", shape=None, rank=TP1, model="a/model", group=0, salt="",
               **options):
    """An adapter, a key, and an object of a setting."""
    engine("lmcache.v1.distributed.l2_adapters.base")
    from kvarc.lmcache import KvarcL2Adapter
    return KvarcL2Adapter({"path": path, **options}), lmcache_key(7, model, rank, group, salt), \
        lmcache_objects(cache()[:, :, :PAGE], dtype, shape)


def descs_of(key, obj):
    from lmcache.v1.distributed.api import MemoryLayoutDesc
    return {key.object_group_id: MemoryLayoutDesc([obj.get_shape()], [obj.get_dtype()])}


@pytest.mark.parametrize("stored", LMCACHE)
def test_lmcache(stored, tmp_path):
    path = str(tmp_path / "l2")
    adapter, key, obj = lmcache_of(path, **LMCACHE[stored])
    assert lmcache_store(adapter, [key], [obj]).is_successful()
    for loaded, setting in LMCACHE.items():
        other, key, obj = lmcache_of(path, **setting)
        want, equal = bytes(obj.byte_array), [0] if loaded == stored else []
        obj.tensor.zero_()
        assert lmcache_find(other, [key], descs_of(key, obj)) == equal, loaded
        # in the process that stored it, too
        if "model_config" not in LMCACHE[stored] and "model_config" not in setting:
            assert lmcache_find(adapter, [key], descs_of(key, obj)) == equal, loaded
        assert lmcache_load(other, [key], [obj]) == equal, loaded
        assert (bytes(obj.byte_array) == want) == bool(equal)
        other.close()
    adapter.close()


def test_lmcache_serde(tmp_path):
    """Chunks that a serde has made bytes of are found though LMCache describes what they were."""
    path = str(tmp_path / "l2")
    adapter, key, obj = lmcache_of(path)
    import torch
    descs = descs_of(key, obj)
    data = lmcache_objects(np.zeros(1000, np.uint8), "uint8", (1000,))
    assert lmcache_store(adapter, [key], [data]).is_successful()
    assert lmcache_find(adapter, [key], descs) == lmcache_find(adapter, [key]) == [0]
    descs[0].dtypes[0] = torch.float16
    assert lmcache_find(adapter, [key], descs) == [0]
    adapter.delete([key])
    assert lmcache_find(adapter, [key], descs) == []
    adapter.close()


# SGLang

SGLANG = {
    "layer_first": {},
    "page_first": {"layout": "page_first"},
    "page_first_direct": {"layout": "page_first_direct"},
    "page_head": {"layout": "page_head"},
    "float16": {"dtype": "float16"},
    "TP 0 of 2": {"tp": (0, 2)},
    "TP 1 of 2": {"tp": (1, 2)},
    "PP 0 of 2": {"pp": (0, 2)},
    "PP 1 of 2": {"pp": (1, 2)},
    "model": {"model": "another/model"},
    **{f"config: {what}": {"kvarc_model_config": config} for what, config in CONFIGS.items()},
}


def sglang_of(setting, **extra):
    torch = pytest.importorskip("torch")
    setting = {"layout": "layer_first", **setting, **extra}
    if "dtype" in setting:
        setting["dtype"] = getattr(torch, setting["dtype"])
    return make_hicache(setting.pop("layout"), **setting)


@pytest.mark.parametrize("where", ["file_storage_path", "kvarc_store"])
@pytest.mark.parametrize("stored", SGLANG)
def test_sglang(stored, where, tmp_path):
    torch = pytest.importorskip("torch")
    engine("sglang.srt.mem_cache.pool_host.mha")
    folder = {where: str(tmp_path / "hi")}
    keys, indices = [f"k{i}" for i in range(TOKENS // PAGE)], torch.arange(TOKENS)
    backend, _ = sglang_of(SGLANG[stored], **folder)
    assert all(backend.batch_set_v1(keys, indices))
    for loaded, setting in SGLANG.items():
        backend, _ = sglang_of(setting, **folder)
        equal = loaded == stored
        assert backend.batch_exists(keys) == (len(keys) if equal else 0), loaded
        assert backend.batch_exists_v2(keys).kv_hit_pages == (len(keys) if equal else 0), loaded
        assert backend.batch_get_v1(keys, indices) == [equal] * len(keys), loaded


def test_sglang_latents_are_shared(tmp_path):
    """Of a model with latents all ranks have the same pages, which one of them stores."""
    engine("sglang.srt.mem_cache.pool_host.mha")
    from dataclasses import replace
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
    from kvarc.sglang import served_of
    config = HiCacheStorageConfig(0, 2, 0, 1, 0, 1, True, False, True, "a/model")
    assert served_of(config, None, "").digest == \
        served_of(replace(config, tp_rank=1), None, "").digest != \
        served_of(replace(config, tp_size=4), None, "").digest
    assert served_of(replace(config, is_mla_model=False), None, "").digest != \
        served_of(replace(config, is_mla_model=False, tp_rank=1), None, "").digest


def test_sglang_arguments_of_the_server(tmp_path, monkeypatch):
    """--json-model-override-args and --quantization make other records."""
    engine("sglang.srt.mem_cache.pool_host.mha")
    from types import SimpleNamespace
    from sglang.srt import runtime_context
    folder, names = {"file_storage_path": str(tmp_path / "hi")}, {}
    for what, members in {
            "plain": {}, "quantised": {"quantization": "fp8"},
            "rope": {"json_model_override_args": '{"rope_scaling": {"factor": 2.0}}'},
            "folder": {"model_path": write_config(tmp_path / "m", LLAMA)}}.items():
        args = SimpleNamespace(**{"model_path": "a/model", "quantization": None,
                                  "json_model_override_args": "{}", **members})
        monkeypatch.setattr(runtime_context, "get_server_args", lambda args=args: args)
        names[what] = sglang_of({}, **folder)[0]._get_suffixed_key("k")
        assert names[what] == sglang_of({}, **folder)[0]._get_suffixed_key("k")
    assert_all_differ(names)


def test_old_records_are_misses(tmp_path):
    """Records of versions that had other names: SGLang's own name of a page."""
    engine("sglang.srt.mem_cache.pool_host.mha")
    backend, _ = sglang_of({}, file_storage_path=str(tmp_path / "hi"))
    (tmp_path / "hi" / "k0_a-model_0_1.bin").write_bytes(b"old")
    assert not backend.exists("k0") and backend.batch_exists(["k0"]) == 0
    assert os.listdir(tmp_path / "hi") == ["k0_a-model_0_1.bin"]
