# SPDX-License-Identifier: BSD-3-Clause
"""Caches of transformers: every attribute comes back, and models go on with the same bits."""
import contextlib
import copy
import json
import os
import subprocess
import sys
import types

import numpy as np
import pytest

import kvarc

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", "5")
import greedy  # noqa: E402
from transformers import cache_utils  # noqa: E402

import kvarc.device  # noqa: E402
from test_device import DRIVER, KERNELS, damaged_copy  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def same_value(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and \
            torch.equal(bits(a), bits(b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_value(a[k], b[k]) for k in a)
    return a == b


def assert_same(a, b):
    """Caches with equal classes and equal attributes in all layers."""
    assert type(a) is type(b)
    if isinstance(a, transformers.EncoderDecoderCache):
        assert a.is_updated == b.is_updated
        assert_same(a.self_attention_cache, b.self_attention_cache)
        assert_same(a.cross_attention_cache, b.cross_attention_cache)
        return
    assert len(a.layers) == len(b.layers)
    assert a.layer_class_to_replicate == b.layer_class_to_replicate
    for x, y in zip(a.layers, b.layers):
        assert type(x) is type(y)
        for name in x.__dict__.keys() | y.__dict__.keys():
            assert same_value(getattr(x, name), getattr(y, name)), (type(x).__name__, name)


@pytest.fixture(scope="module")
def models():
    made = {}

    def get(name):
        if name not in made:
            made[name] = greedy.make(name)
        return made[name]
    return get


def filled(model, batch=1, cache=None, n=120):
    cache = cache if cache is not None else transformers.DynamicCache(config=model.config)
    ids = greedy.prompt(model, n, batch)
    greedy.prefill(model, ids, cache, 3)
    return cache, ids


def round_trip(tmp_path, cache, model, **keywords):
    path = tmp_path / "x.kva"
    kvarc.save(path, cache, model=model, **keywords)
    return kvarc.load(path, config=model.config, model=model)


@pytest.mark.parametrize("batch", (1, 3))
@pytest.mark.parametrize("name", greedy.MODELS)
def test_dynamic(tmp_path, models, name, batch):
    model = models(name)
    cache, ids = filled(model, batch)
    back = round_trip(tmp_path, cache, model, tokens=ids)
    assert_same(cache, back)
    token = ids[:, 0]
    for a, b in zip(greedy.go_on(model, token, cache, 8), greedy.go_on(model, token, back, 8)):
        assert torch.equal(bits(a), bits(b))


@pytest.mark.parametrize("name", ("llama", "gemma3"))
@pytest.mark.parametrize("n", (40, 120))
def test_static(tmp_path, models, name, n):
    model = models(name)
    cache, ids = filled(model, 2, transformers.StaticCache(model.config, max_cache_len=200), n)
    back = round_trip(tmp_path, cache, model, tokens=ids)
    assert_same(cache, back)
    token = ids[:, 0]
    assert torch.equal(greedy.go_on(model, token, cache, 4)[1],
                       greedy.go_on(model, token, back, 4)[1])


def test_static_window_that_can_be_cropped(tmp_path, models):
    """transformers 5.24: whether a window was ever full decides whether tokens can be taken back."""
    model = models("gemma3")
    window = greedy.window(model)
    for length in (window - 1, window + 50):
        cache, _ = filled(model, 1, transformers.StaticCache(model.config, max_cache_len=length),
                          window - 20)
        back = round_trip(tmp_path, cache, model)
        assert_same(cache, back)
        if not any(hasattr(layer, "_is_croppable") for layer in cache.layers):
            pytest.skip("this transformers has no is_croppable")
        assert cache.is_croppable == back.is_croppable == (length < window)
        of_before = kvarc.to_cache(cache)  # a cache of transformers 5.23 does not say it
        for layer in of_before.layers:
            layer.metadata.pop("croppable", None)
        kvarc.save(tmp_path / "old.kva", of_before)
        assert not kvarc.load(tmp_path / "old.kva", model=model).is_croppable


def test_static_tail(tmp_path, models):
    """Zeros behind the last token take no tokens; anything else does, and comes back."""
    model = models("llama")
    cache, _ = filled(model, 1, transformers.StaticCache(model.config, max_cache_len=500), 40)
    assert kvarc.to_cache(cache).layers[0].tensors["key"].shape[2] == 40
    cache.layers[0].keys[0, 0, 499, 0] = -0.0
    assert kvarc.to_cache(cache).layers[0].tensors["key"].shape[2] == 500
    assert_same(cache, round_trip(tmp_path, cache, model))


def test_encoder_decoder(tmp_path):
    torch.manual_seed(3)
    config = transformers.T5Config(vocab_size=128, d_model=32, d_kv=8, d_ff=64, num_layers=2,
                                   num_heads=4, decoder_start_token_id=0)
    model = transformers.T5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        out = model(input_ids=torch.arange(20)[None], use_cache=True,
                    decoder_input_ids=torch.arange(9)[None])
    cache = out["cache" if "cache" in out else "past_key_values"]
    assert_same(cache, round_trip(tmp_path, cache, model))


def test_empty_and_lazy(tmp_path, models):
    model = models("gemma3")
    for cache in (transformers.DynamicCache(), transformers.DynamicCache(config=model.config)):
        assert_same(cache, round_trip(tmp_path, cache, model))


def test_indexed(tmp_path):
    cache = transformers.DynamicCache()
    layer = cache_utils.DynamicIndexedLayer()
    layer.update(torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 4))
    layer.update_indexer(torch.randn(2, 7, 5))
    layer.indexer_position_ids = torch.arange(14).reshape(1, 2, 7)
    cache.layers = [layer]
    kvarc.save(tmp_path / "x.kva", cache)
    loaded = kvarc.load_cache(tmp_path / "x.kva", raw=True)
    assert_same(cache, kvarc.transformers.from_cache(loaded))


def test_crop(tmp_path, models):
    model = models("llama")
    cache, ids = filled(model)
    cache.crop(-50)
    assert_same(cache, round_trip(tmp_path, cache, model, tokens=ids[:, :70]))


@pytest.mark.parametrize("name", ("llama", "gemma3", "qwen3_next"))
def test_session(tmp_path, models, name):
    """Only new tokens are written; each checkpoint is the cache that it was."""
    model = models(name)
    session = kvarc.Session(tmp_path / "s.kva", model=model)
    cache = transformers.DynamicCache(config=model.config)
    ids = greedy.prompt(model, 160)
    states = []
    for end in (100, 140, 160):
        with torch.no_grad():
            model(input_ids=ids[:, cache.get_seq_length():end], **greedy.taking(model, cache))
        done = session.append(cache, tokens=ids[:, :end], label=f"{end} tokens")
        states.append((done.checkpoint, copy.deepcopy(cache)))
        if end > 100 and name == "llama":
            assert done.new_tokens == end - (100 if end == 140 else 140)
    if name == "llama":
        cache.crop(-30)
        session.append(cache, tokens=ids[:, :130])
        assert_same(cache, session.load(config=model.config))
    for number, state in states:
        assert_same(state, session.load(number, config=model.config))


def test_model_alone(tmp_path, models):
    """model= is enough: it has the configuration."""
    model = models("llama")
    cache, ids = filled(model)
    kvarc.save(tmp_path / "x.kva", cache, tokens=ids, model=model)
    assert_same(cache, kvarc.load(tmp_path / "x.kva", model=model))
    with kvarc.Store(tmp_path / "store") as store:
        store.save("a", cache, tokens=ids, model=model)
        assert_same(cache, store.load("a", model=model))


def test_refused(tmp_path, models):
    model = models("llama")
    for cls in ("QuantizedCache", "MtpCache"):
        cache = getattr(cache_utils, cls).__new__(getattr(cache_utils, cls))
        cache.layers, cache.layer_class_to_replicate = [], None
        with pytest.raises(kvarc.OptionsError, match=cls):
            kvarc.save(tmp_path / "x.kva", cache)
    cache = transformers.DynamicCache()
    cache.layers = [cache_utils.Fp8QuantizedLayer()]
    with pytest.raises(kvarc.OptionsError, match="Fp8QuantizedLayer.*quantised"):
        kvarc.save(tmp_path / "x.kva", cache)

    class Other(cache_utils.DynamicLayer):
        pass
    cache.layers = [Other()]
    with pytest.raises(kvarc.OptionsError, match="Other"):
        kvarc.save(tmp_path / "x.kva", cache, model=model)
    assert not os.path.exists(tmp_path / "x.kva")


def test_model_is_checked(tmp_path, models):
    model = models("llama")
    cache, ids = filled(model)
    kvarc.save(tmp_path / "x.kva", cache, tokens=ids, model=model)
    load = lambda config, **k: kvarc.load(tmp_path / "x.kva", config=config, **k)  # noqa: E731
    other = transformers.LlamaConfig(**{**greedy.TINY, "head_dim": 8}, dtype="bfloat16")
    with pytest.raises(kvarc.OptionsError, match="configuration"):
        load(other)
    rope = transformers.LlamaConfig(**greedy.TINY, dtype="bfloat16", rope_parameters={
        "rope_type": "default", "rope_theta": 77.0})
    with pytest.raises(kvarc.OptionsError, match="RoPE"):
        load(rope)
    with pytest.raises(kvarc.OptionsError, match="dtype"):
        load(model.config, model=greedy.make("llama", torch.float32))
    torch.manual_seed(1)
    weights = transformers.LlamaForCausalLM(model.config).to(torch.bfloat16)
    with pytest.raises(kvarc.OptionsError, match="weights.*ignore="):
        load(model.config, model=weights)
    assert_same(cache, load(model.config, model=weights, ignore="weights_sample"))
    with pytest.raises(ValueError, match="ignore"):
        load(model.config, ignore="everything")


def test_ranges_that_make_no_cache(tmp_path, models):
    """The caller's mistake, not damage; the first tokens of full attention are a cache."""
    model, path = models("llama"), tmp_path / "x.kva"
    cache, ids = filled(model)
    kvarc.save(path, cache, tokens=ids, model=model)
    store = kvarc.Store(tmp_path / "store")
    store.save("a", cache, tokens=ids, model=model)
    for load in (lambda **k: kvarc.load(path, **k), lambda **k: store.load("a", **k)):
        for keywords in ({"model": model}, {"config": model.config}):
            for layers in (1, (0, 1), slice(1)):
                with pytest.raises(ValueError, match="layers: a cache .* needs all 4") as e:
                    load(layers=layers, **keywords)
                assert not isinstance(e.value, kvarc.Error)
            with pytest.raises(ValueError, match="tokens: 1 to 120 of 120 are no cache"):
                load(tokens=slice(1, None), **keywords)
            cropped = load(tokens=slice(50), layers=slice(None), **keywords)
            whole = load(**keywords)
            whole.crop(-70)
            assert_same(whole, cropped)
    static = transformers.StaticCache(config=model.config, max_cache_len=200)
    filled(model, cache=static)
    kvarc.save(path, static, model=model)
    with pytest.raises(ValueError, match="tokens: 0 to 50 of 120 are no cache"):
        kvarc.load(path, tokens=(0, 50), model=model)
    kvarc.save(path, [(np.zeros((1, 2, 8), np.float16),) * 2])
    with pytest.raises(ValueError, match="no cache of transformers"):
        kvarc.load(path, model=model)


def test_hostile_description(tmp_path, models):
    """Whatever the metadata says, the answer is a cache or one of kvarc's errors."""
    rng = np.random.default_rng(5)
    for name in ("gemma3", "qwen3_next"):
        cache, _ = filled(models(name), n=70)
        good = kvarc.to_cache(cache)
        for layer in good.layers:
            layer.tensors = {k: np.asarray(v.contiguous().view(torch.int16).numpy()).view(
                np.uint16) for k, v in layer.tensors.items()}
            layer.states = {k: v.float().numpy() for k, v in layer.states.items()}
            layer.dtypes = dict.fromkeys(layer.tensors, "bf16")
        plain = [json.dumps(layer.metadata) for layer in good.layers]
        wrong = 0
        for _ in range(300):
            for layer, text in zip(good.layers, plain):
                layer.metadata = json.loads(text)
            layer = good.layers[rng.integers(len(good.layers))]
            key = rng.choice(list(layer.metadata))
            value = (-1, 0, 1 << 40, "x", None, [], {}, 1.5, True, [1], [None] * 3)
            layer.metadata[key] = value[rng.integers(len(value))]
            try:
                kvarc.transformers.from_cache(good)
            except kvarc.Error:
                wrong += 1
        assert wrong > 150


def test_no_copy(models):
    """Tensors of a cache are taken where they are."""
    cache, _ = filled(models("gemma3"))
    taken = kvarc.to_cache(cache)
    for layer, saved in zip(cache.layers, taken.layers):
        assert saved.tensors["key"].data_ptr() == layer.keys.data_ptr()


def _two_processes(name, folder):
    for verb in ("save", "load"):
        done = subprocess.run([sys.executable, os.path.join(HERE, "greedy.py"), verb, name,
                               folder], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        print(done.stdout)


@pytest.mark.parametrize("name", ("llama", "gemma3", "qwen3_next"))
def test_new_process(tmp_path, name):
    _two_processes(name, str(tmp_path))


@pytest.mark.skipif("KVARC_TEST_MODELS" not in os.environ,
                    reason="KVARC_TEST_MODELS: folders or GGUF files of models, by colons")
def test_real_models(tmp_path):
    for name in os.environ["KVARC_TEST_MODELS"].split(":"):
        _two_processes(name, str(tmp_path))


class OnGpu(torch.Tensor):
    """A mock of a tensor in a GPU: memory of the host, as in the stand-in of the driver."""

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **unused):
        return self.as_subclass(torch.Tensor).__dlpack__()

    def to(self, device):
        assert device == "cuda:0"
        return self


OnGpu.__module__ = "torch"


@pytest.fixture
def gpu(monkeypatch):
    """torch as if it had CUDA, and a Device of it."""
    if not os.path.exists(DRIVER):
        pytest.skip("no stand-in of the driver")
    empty = torch.empty

    def empty_there(*shape, device=None, **options):
        made = empty(*shape, **options)
        return made.as_subclass(OnGpu) if device == "cuda:0" else made
    monkeypatch.setattr(torch, "empty", empty_there)
    for name, mock in (("is_available", lambda: True), ("stream", contextlib.nullcontext),
                       ("current_stream", lambda n: types.SimpleNamespace(cuda_stream=9)),
                       ("ExternalStream", lambda handle, device: None)):
        monkeypatch.setattr(torch.cuda, name, mock)
    with kvarc.Device(driver=DRIVER, kernels=KERNELS) as device:
        yield device


@pytest.mark.parametrize("name", ("llama", "gemma3"))
@pytest.mark.parametrize("batch", (1, 3))
def test_decoded_by_kernels(tmp_path, models, gpu, name, batch):
    """config= and a GPU: kernels decode, into tensors that the cache has."""
    model = models(name)
    cache, ids = filled(model, batch)
    path = tmp_path / "x.kva"
    kvarc.save(path, cache, model=model, tokens=ids)
    back = kvarc.load(path, config=model.config, model=model, device=gpu)
    assert_same(cache, back)
    assert all(type(t) is OnGpu for layer in back.layers for t in (layer.keys, layer.values))
    assert_same(cache, kvarc.load(path, model=model, device=gpu, threads=1))


def test_damaged_in_gpu(tmp_path, models, gpu):
    model = models("llama")
    cache, _ = filled(model)
    kvarc.save(tmp_path / "x.kva", cache, model=model)
    path, _ = damaged_copy(str(tmp_path / "x.kva"), tmp_path, 1)
    with pytest.raises(kvarc.DamagedError):
        kvarc.load(path, model=model, device=gpu)


def test_decoder(gpu, monkeypatch):
    """Which devices decode for config=."""
    decoder = kvarc.archive._decoder
    assert decoder(gpu) is gpu
    for other in (None, "cpu", "meta", torch.device("cpu")):
        assert decoder(other) is None
    made = []

    def of_driver(self, device="cuda:0", **options):
        made.append(device)
        if device == 2:
            raise kvarc.OptionsError("no kernels")
    monkeypatch.setattr(kvarc.Device, "__init__", of_driver)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert decoder("cuda") is not None and decoder("cuda:0") is not None
    assert decoder(torch.device("cuda", 2)) is None and made == [1, 0, 2]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert decoder("cuda:0") is None and made == [1, 0, 2]
    with pytest.raises(kvarc.OptionsError, match="no CUDA"):
        decoder(gpu)
