# SPDX-License-Identifier: BSD-3-Clause
"""Replay: the model computes its cache again, and the archive holds what differs."""
import os

import pytest

import kvarc

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", "5")
import greedy  # noqa: E402
import kvarc.replay  # noqa: E402
from test_transformers import assert_same  # noqa: E402

N = 600


@pytest.fixture(scope="module")
def model():
    return greedy.make("llama")


@pytest.fixture(scope="module")
def ids(model):
    return greedy.prompt(model, N)


def size(path):
    return os.path.getsize(path)


def test_same_pieces(tmp_path, model, ids):
    path, plain = tmp_path / "x.kva", tmp_path / "plain.kva"
    cache = kvarc.replay.run(model, ids[0], [500] + [1] * 100)
    kvarc.save(plain, cache, tokens=ids, model=model)
    kvarc.save(path, cache, tokens=ids, model=model, replay=model, schedule=[500] + [1] * 100)
    assert size(path) < size(plain) / 8
    assert_same(cache, kvarc.load(path, config=model.config, replay=model))
    with kvarc.Reader(path) as r:
        assert r.identity["torch_version"] == torch.__version__
    with pytest.raises(kvarc.PredictorError):
        kvarc.load(path, config=model.config)


def test_other_pieces(tmp_path, model, ids):
    """What another split computes differently is stored."""
    path = tmp_path / "x.kva"
    cache = kvarc.replay.run(model, ids[0], [300, 300])
    cache.layers[2].keys[0, 1, 77, 5] += 1  # at least one element
    kvarc.save(path, cache, tokens=ids, model=model, replay=model)
    assert_same(cache, kvarc.load(path, config=model.config, replay=model))


def test_recorder(tmp_path, model, ids):
    path = tmp_path / "x.kva"
    cache = transformers.DynamicCache(config=model.config)
    with kvarc.replay.Recorder(model) as recorder:
        tokens = model.generate(ids[:, :200], **greedy.taking(model, cache), max_new_tokens=20,
                                do_sample=False, eos_token_id=None, pad_token_id=0)
    assert recorder.pieces == [200] + [1] * 19
    kvarc.save(path, cache, tokens=tokens[:, :219], model=model, replay=recorder)
    assert_same(cache, kvarc.load(path, config=model.config, replay=model))
    with kvarc.Reader(path, predictor=None) as r:
        assert r.info["file_bytes"] < r.info["raw_bytes"] / 4
    model(ids[:, :5])
    assert recorder.pieces == [200] + [1] * 19


def test_ids_of_generate(tmp_path, model, ids):
    """docs/transformers.md: the last token that was generated is not in the cache."""
    path, ids = tmp_path / "x.kva", ids[:, :50]
    cache = transformers.DynamicCache(config=model.config)
    with kvarc.replay.Recorder(model) as recorder:
        out = model.generate(ids, **greedy.taking(model, cache), max_new_tokens=8,
                             eos_token_id=None, pad_token_id=0)
    with pytest.raises(kvarc.OptionsError, match="all 57 tokens, of 50 .*model.generate"):
        kvarc.save(path, cache, tokens=ids, model=model, replay=recorder)
    kvarc.save(path, cache, tokens=out[:, :cache.get_seq_length()], model=model, replay=recorder)
    assert_same(cache, kvarc.load(path, config=model.config, replay=model))


def test_other_weights(tmp_path, model, ids):
    """Another model is refused by its identity, and by the checks where that is ignored."""
    path = tmp_path / "x.kva"
    cache = kvarc.replay.run(model, ids[0], [N])
    kvarc.save(path, cache, tokens=ids, model=model, replay=model)
    torch.manual_seed(2)
    other = transformers.LlamaForCausalLM(model.config).to(torch.bfloat16)
    with pytest.raises(kvarc.OptionsError, match="weights"):
        kvarc.load(path, config=model.config, replay=other)
    with pytest.raises(kvarc.PredictorError):
        kvarc.load(path, config=model.config, replay=other, ignore="weights_sample")


def test_diverged(tmp_path, model, ids, monkeypatch):
    """A replay that computes other bits than where the archive was made is refused."""
    path = tmp_path / "x.kva"
    cache = kvarc.replay.run(model, ids[0], [N])
    kvarc.save(path, cache, tokens=ids, model=model, replay=model)
    right = kvarc.replay.run

    def wrong(*arguments):
        made = right(*arguments)
        view = made.layers[1].values.view(torch.int16)
        view[0, 0, 400, 3] ^= 1
        return made
    monkeypatch.setattr(kvarc.replay, "run", wrong)
    with pytest.raises(kvarc.PredictorError, match="computes other keys and values"):
        kvarc.load(path, config=model.config, replay=model)


def test_refused(tmp_path, model, ids):
    path = tmp_path / "x.kva"
    cache = kvarc.replay.run(model, ids[0], [N])
    for keywords in ({"tokens": None}, {"tokens": ids[:, :9]},
                     {"tokens": ids, "schedule": [N, 1]}):
        with pytest.raises((kvarc.OptionsError, ValueError)):
            kvarc.save(path, cache, model=model, replay=model, **keywords)
    sliding = greedy.make("gemma3")
    other, tokens = transformers.DynamicCache(config=sliding.config), greedy.prompt(sliding, 90)
    greedy.prefill(sliding, tokens, other)
    with pytest.raises(kvarc.OptionsError, match="full attention"):
        kvarc.save(path, other, tokens=tokens, replay=sliding)
    assert not path.exists()


def test_schedule():
    pieces = [7, 1, 1, 1, 7]
    runs = kvarc.replay.pack_schedule(pieces)
    assert runs == [[7, 1], [1, 3], [7, 1]]
    assert kvarc.replay.unpack_schedule(runs, 17) == pieces
    for bad in (None, [], [[7, 1]], [[17, 2]], [[1 << 50, 1]], [[1, 1 << 50]], [[0, 9]], [[-1, 1]],
                [[True, 17]], [[17]], [[17, 1], [1, 1]], {"a": 1}):
        with pytest.raises(kvarc.DamagedError):
            kvarc.replay.unpack_schedule(bad, 17)
