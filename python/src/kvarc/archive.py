# SPDX-License-Identifier: BSD-3-Clause
"""Whole caches: save and load."""
from __future__ import annotations

import errno
import io
import os
import secrets
import stat
import warnings
from contextlib import contextmanager
from functools import partial
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, \
    Tuple, Union, overload

from . import _adapters, _arrays, _layout, _prefixes, _restore
from ._io import is_buffer, is_path, is_url, local_path, remote_exists
from ._options import READER, WRITER, chosen
from ._profiles import choose_for
from ._ranges import Range, check, span
from ._types import Array, Buffer, CacheLike, DeviceLike, IdsLike, Like, Loaded, Pairs, \
    PairsByLayer, PredictorLike, ProfileLike, ProfilesLike, Progress, RopeLike, Secret, Source, Target
from .cache import Cache, Layer
from .errors import FormatError, InputOutputError, OptionsError, input_output, of_os_error
from .reader import Reader
from .writer import Writer

_LEVELS = range(4)  # of writers that fork tracks
_CANARY = "canary"  # the key of the identity

__all__ = ["save", "load", "dumps", "loads", "load_cache", "load_tokens", "to_cache", "from_cache"]


def _four(array: Any) -> Any:
    """An array [heads, tokens, channels] or with a batch axis in front, with the batch axis."""
    if array.ndim == 3:
        return array[None]
    if array.ndim != 4:
        raise ValueError(f"an array of shape {tuple(array.shape)}: expected (heads, tokens, "
                         "channels) or (batch, heads, tokens, channels)")
    return array


def _of_pairs(pairs: Sequence[Any], dtype: Optional[str]) -> Cache:
    layers, axes = [], set()
    if not len(pairs):
        raise ValueError("the cache has no layers: a list of (keys, values) is needed, one pair "
                         "for each layer")
    for i, pair in enumerate(pairs):
        n = len(pair) if hasattr(pair, "__len__") else -1
        if n != 2:
            raise TypeError(f"layer {i}: a pair of arrays, keys and values, is needed, not "
                            f"{type(pair).__name__}{'' if n < 0 else f' of {n}'}")
        layer = Layer()
        for name, array in zip(("key", "value"), pair):
            bits, layer.dtypes[name] = _arrays.as_bits(array, dtype)
            axes.add(bits.ndim)
            layer.tensors[name] = _four(bits)
        layers.append(layer)
    if len(axes) > 1:
        raise ValueError("some arrays have a batch axis, and others have none")
    return Cache(layers, format="pairs", metadata={"axes": axes.pop() if axes else 4})


def to_cache(cache: CacheLike, *, tokens: Optional[IdsLike] = None, model: Any = None,
             dtype: Optional[str] = None, metadata: Optional[Mapping[str, Any]] = None,
             identity: Optional[Mapping[str, str]] = None, config: Any = None) -> Cache:
    """The Cache of what save() takes; keywords as of save()."""
    if isinstance(cache, Cache):
        made = cache
    elif isinstance(cache, Mapping) and all(isinstance(k, int) for k in cache):
        made = _of_pairs([cache[k] for k in sorted(cache)], dtype)
        made.format = "pairs by layer"
        made.metadata["layers"] = sorted(cache)
    elif isinstance(cache, (list, tuple)):
        made = _of_pairs(cache, dtype)
    else:
        adapter = _adapters.find(cache)
        if adapter is None:
            raise TypeError(f"{type(cache).__module__}.{type(cache).__name__} is no cache that "
                            "is known: give pairs of arrays, or a kvarc.Cache")
        made = adapter.to_cache(cache, tokens=tokens, model=model, config=config)
        config = None
    if config is not None:
        raise TypeError("config: goes with the caches of a framework")
    if model is not None and not isinstance(model, str) and made.format in _ADAPTER_FREE:
        raise TypeError(f"model: the name of the model is needed, not {model!r}: models "
                        "themselves go with the caches of their framework")
    if tokens is not None and made.tokens is None:
        made.tokens = tokens
    if isinstance(model, str):
        made.model = model
    if metadata:
        made.metadata = {**made.metadata, "user": dict(metadata)}
    if identity:
        made.identity = {**made.identity, **identity}
    return made


def add_canary(made: Cache, model: Any) -> None:
    """Adds to the identity of a cache what its model computes of fixed tokens, where there is a
    model that can. A model that fails costs the canary, with a warning, and not the cache."""
    adapter: Any = None if model is None or isinstance(model, str) else _adapters.get(made.format)
    if not hasattr(adapter, "canary") or _CANARY in made.identity:
        return
    try:
        text = adapter.canary(model)
    except Exception as e:
        warnings.warn("no canary is recorded, as the model could not compute its tokens: "
                      f"{e} (canary=False does without)", stacklevel=3)
        return
    if text:
        made.identity = {**made.identity, _CANARY: text}


def _check_canary(cache: Cache, adapter: Any, model: Any, exact: bool) -> None:
    """Raises OptionsError where the model computes other values of the fixed tokens."""
    recorded = cache.identity.get(_CANARY)
    if model is None or not hasattr(adapter, "check_canary") or not recorded and not exact:
        return
    if not recorded:
        raise OptionsError("exact: no canary was recorded with this cache: save it again with "
                           "model=, or load it without exact=")
    verdict = adapter.check_canary(recorded, model)
    if verdict.answer == "not" or exact and verdict.answer != "exact":
        raise OptionsError(f"the cache is not of this model: {verdict.text}; use the model that "
                           "it was saved with, or canary=False")
    if verdict.answer != "exact":
        warnings.warn(f"the cache may be of another model: {verdict.text}", stacklevel=4)


@contextmanager
def _opened(device: Any) -> Iterator[Any]:
    """A Device, which is closed behind it if this opens it; None, or the CPU: none."""
    if device is None or _arrays.is_cpu(device):
        yield None
        return
    from .device import Device
    found = device if isinstance(device, Device) else Device(device)
    try:
        yield found
    finally:
        if found is not device:
            found.close()


def _write(file: Any, cache: Cache, rope: Any, options: Dict[str, Any],
           forks: bool = True) -> Dict[str, int]:
    """Writes an archive. forks: tokens that sequences of a batch begin with are written once, for
    readers that can seek."""
    device = options.pop("device")
    layout = _layout.make(cache, rope)
    _layout.describe(layout)
    options = choose_for(options, layout.tracks, layout.tensors)
    shared = {}
    if forks and device is None and not options["streamable"] and options["tier"] is None and \
            options["level"] in _LEVELS:
        shared = _prefixes.find(layout)
    identity = {**({"model": cache.model} if cache.model else {}), **cache.identity}
    with Writer(file, layout.tracks, layout.tensors, identity=identity, **options) as w:
        for t, arrays in enumerate(layout.arrays):
            append = w.append if not all(map(_arrays.is_on_device, arrays.values())) else \
                partial(device.append, w)
            ids, positions = layout.ids[t], layout.positions[t]
            if t in shared:
                w.fork(t, *shared[t])
                n = shared[t][1]
                arrays = {i: a[n:] for i, a in arrays.items()}
                ids, positions = (x if x is None else x[n:] for x in (ids, positions))
            append(t, arrays, ids=ids, positions=positions)
    return w.stats


def save(file: Target, cache: CacheLike, *, tokens: Optional[IdsLike] = None, model: Any = None,
         dtype: Optional[str] = None, metadata: Optional[Mapping[str, Any]] = None,
         identity: Optional[Mapping[str, str]] = None, config: Any = None, rope: RopeLike = None,
         canary: bool = True, device: Optional[DeviceLike] = None, replay: Any = None,
         schedule: Optional[Sequence[int]] = None, level: int = 1, verify: bool = False,
         segment_tokens: int = 0, profile: Optional[ProfileLike] = None,
         predictor: Optional[PredictorLike] = None, embed_profile: bool = False,
         parity: float = 0.0, file_id: bytes = b"", streamable: bool = False,
         tier: Optional[str] = None, key: Optional[bytes] = None,
         passphrase: Optional[Secret] = None, threads: Optional[int] = None, memlimit: int = 0,
         progress: Optional[Progress] = None, sync: bool = True,
         overwrite: bool = True) -> Dict[str, int]:
    """Saves a cache as an archive; returns raw_bytes, file_bytes and others.

    file: a path, or a URL of fsspec, which appears only when the archive is complete (devices and
    named pipes are written to), or a binary file-like object.
    cache: a list of (keys, values), one pair of arrays for each layer, [heads, tokens, channels]
    or [batch, heads, tokens, channels], numpy, ml_dtypes or torch; the same as a dict by layer
    number; a kvarc.Cache; or a cache of a framework for which there is an adapter.
    tokens: token ids, [tokens] or [batch, tokens]. model: the name of the model that made it,
    which is recorded; of a cache of transformers the model itself, or config=model.config, which
    is recorded and compared when it is loaded. dtype: of elements whose array does
    not say it: "bf16" for uint16. metadata: anything that JSON has, returned by load_cache.
    identity: more text pairs for `kvarc info`. rope: of the keys (levels 2 and 3 need it): a
    Rope, or theta (10000.0) where all channels are rotated.
    canary: a model of transformers computes 32 fixed tokens, too, whose fingerprint is recorded;
    load() lets its model compute them again, and refuses other weights.
    replay: a model of transformers (with schedule=, the numbers of tokens that it took at once)
    or a kvarc.replay.Recorder, which computes the cache again: only what differs is stored.
    device: a Device, or "cuda:0": pairs, and the tensors of a kvarc.Cache, that are arrays of this
    GPU (torch, or others that have DLPack) are encoded there, as of Device.append; without it,
    and what else is in a GPU, they are copied to the host first.
    level: 2 or 3 without profile= takes the installed profile that predicts most of the cache;
    where none fits there is a warning, and the archive has level 1.
    Other options as of Writer.
    """
    writer = chosen(locals(), WRITER)
    with _opened(device) as found:
        if found is not None:
            from ._device_cache import borrow_cache
            cache = borrow_cache(found, cache, dtype)
        made = to_cache(cache, tokens=tokens, model=model, dtype=dtype, metadata=metadata,
                        identity=identity, config=config)
        if canary:
            add_canary(made, model)
        if replay is not None:
            if found is not None:
                raise ValueError("device: a cache that is replayed is encoded on the host")
            from . import replay as engine
            writer = {**writer, **engine.for_save(made, replay, schedule)}
        return _to_file(file, made, rope, {**writer, "device": found})


def dumps(cache: CacheLike, *, tokens: Optional[IdsLike] = None, model: Any = None,
          dtype: Optional[str] = None, metadata: Optional[Mapping[str, Any]] = None,
          identity: Optional[Mapping[str, str]] = None, config: Any = None, rope: RopeLike = None,
          canary: bool = True, device: Optional[DeviceLike] = None, replay: Any = None,
          schedule: Optional[Sequence[int]] = None, level: int = 1, verify: bool = False,
          segment_tokens: int = 0, profile: Optional[ProfileLike] = None,
          predictor: Optional[PredictorLike] = None, embed_profile: bool = False,
          parity: float = 0.0, file_id: bytes = b"", streamable: bool = False,
          tier: Optional[str] = None, key: Optional[bytes] = None,
          passphrase: Optional[Secret] = None, threads: Optional[int] = None, memlimit: int = 0,
          progress: Optional[Progress] = None) -> bytes:
    """An archive as bytes: save() into memory, with its options."""
    options = dict(locals())
    file = io.BytesIO()
    save(file, **options)
    return file.getvalue()


def _to_file(file: Any, made: Cache, rope: Any, writer: Dict[str, Any]) -> Dict[str, int]:
    if not is_path(file):
        seekable = getattr(file, "seekable", None)
        return _write(file, made, rope, writer, forks=seekable is None or seekable())
    file = local_path(file)
    if is_url(file):
        if not writer.pop("overwrite", True) and remote_exists(file):
            raise input_output(f"{file}: the file exists already", errno.EEXIST, file)
        return _write(file, made, rope, writer)
    path = os.path.abspath(os.fsdecode(os.fspath(file)))
    if not writer.pop("overwrite", True) and os.path.lexists(path):
        raise input_output(f"{path}: the file exists already", errno.EEXIST, path)
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        return _write_special(path, made, rope, writer)
    return _write_whole(path, made, rope, writer)


def _write_special(path: str, cache: Cache, rope: Any, options: Dict[str, Any]) -> Dict[str, int]:
    """Into a device or a named pipe, which is never replaced."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as e:
        raise of_os_error(e) from e
    with os.fdopen(fd, "wb", buffering=0) as f:
        try:
            return _write(f, cache, rope, options, forks=False)
        except InputOutputError as e:
            _name(e, path)
            raise


def _name(e: InputOutputError, path: str, temporary: str = "") -> None:
    """Gives an error of the file that is written the name that the caller knows."""
    if e.filename in (None, path, temporary):
        text = str(e).replace(temporary, path) if temporary else str(e)
        e.args, e.filename = (text if path in text else f"{path}: {text}",), path


def _write_whole(path: str, cache: Cache, rope: Any, options: Dict[str, Any]) -> Dict[str, int]:
    """Into a file that appears when it is complete."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
    try:
        stats = _write(temporary, cache, rope, {**options, "overwrite": False})
        os.replace(temporary, path)
    except BaseException as e:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        if isinstance(e, InputOutputError):
            _name(e, path, temporary)
        elif isinstance(e, OSError):
            raise input_output(f"{path}: {e.strerror}", e.errno or 0, path) from e
        raise
    return stats


@contextmanager
def _target(device: Any, raw: bool, like: Optional[Like]) -> Iterator[Any]:
    """Where arrays are made: on the host, or in a GPU."""
    where = _arrays.torch_device(device, raw, like)
    if where is not None:
        yield _restore.TorchHost(where)
        return
    if device is None or _arrays.is_cpu(device):
        yield _restore.Host(raw)
        return
    from . import _device_cache, _device_memory
    _device_memory.torch_with_cuda(load=True)
    with _opened(device) as found:
        yield _device_cache.Target(found)


def check_whole(layers: Sequence[Tuple[int, bool]], chosen_layers: Range, tokens: Range) -> None:
    """Raises unless these layers and tokens of a cache make one of a framework. layers: of each
    its tokens, and whether leading ones alone are a layer of a shorter cache."""
    if span(chosen_layers, len(layers), "layers") != (0, len(layers)):
        raise ValueError(f"layers: a cache of a framework needs all {len(layers)}: "
                         "kvarc.load_cache gives some")
    most = max((n for n, _ in layers), default=0)
    first, n = span(tokens, most, "tokens")
    if first or n < most and not all(is_plain for _, is_plain in layers):
        raise ValueError(f"tokens: {first} to {first + n} of {most} are no cache of a framework, "
                         "which holds all, or without windows, states and fixed lengths the "
                         "first ones: kvarc.load_cache gives others")


def _described(found: Any) -> List[Tuple[int, bool]]:
    """What check_whole needs of a description, which may be any JSON."""
    try:
        return [(max((t["shape"][2] for t in e["tensors"].values()), default=0),
                 not e["states"] and not e.get("window") and
                 (bool(e.get("cross")) or set(e.get("metadata", ())) <= {"class"}))
                for e in found["layers"]]
    except (KeyError, TypeError, AttributeError, IndexError):
        return []  # Restore says what is wrong


def _load(file: Any, layers: Range, tokens: Range, raw: bool, device_of: Callable[[str], Any],
          options: Dict[str, Any], whole: bool = False, like: Optional[Like] = None) -> Cache:
    """load_cache; device_of: the device for a cache of a format, None: the host. whole: as of
    check_whole."""
    check(layers, "layers")
    check(tokens, "tokens")
    with Reader(file, **options) as reader:
        found = _layout.find_json(reader)
        if found is None and not reader.tensors:
            raise FormatError("the archive has no tensors: its files are kept whole, and "
                              "Reader.unpack gives them back; kvarc pack --as-cache keeps tensors")
        if whole and found is not None and (layers is not None or tokens is not None):
            known = _described(found)
            if known:
                check_whole(known, layers, tokens)
        name = found.get("format") if isinstance(found, dict) else None
        with _target(device_of(name if isinstance(name, str) else ""), raw, like) as target:
            if found is None:
                return _restore.of_tensors(reader, layers, tokens, target)
            return _restore.Restore(reader, found, layers, tokens, raw, target).cache()


def load_cache(file: Source, *, layers: Range = None, tokens: Range = None, raw: bool = False,
               like: Optional[Like] = None, device: Optional[DeviceLike] = None,
               allow_lossy: bool = False, profiles: ProfilesLike = None,
               predictor: Optional[PredictorLike] = None, checkpoint: int = 0,
               request_cost: int = 0, key: Optional[bytes] = None,
               passphrase: Optional[Secret] = None, threads: Optional[int] = None,
               memlimit: int = 0, progress: Optional[Progress] = None) -> Cache:
    """The cache of an archive as a kvarc.Cache of numpy arrays [batch, heads, tokens, channels].

    layers, tokens: as of Reader.read: a slice, a range or a pair (first, end), an int for one
    alone, None: all. raw: bf16 and
    8-bit floats as uint16 and uint8 whatever is installed; Layer.dtypes has the dtypes.
    like: "torch": tensors of torch, also of bf16 and 8-bit floats, decoded into their memory;
    "numpy" or None: arrays of numpy. device: a Device, or "cuda:0": the arrays are decoded in this
    GPU, and are torch tensors where torch is installed, else of kvarc.DeviceArray; states are
    arrays of the host. "cpu", or another device of torch: tensors there, which the host decodes.
    Token ids are arrays of numpy.
    Other options as of Reader. An archive of `kvarc pack` gives its keys and values by layer.
    FormatError: it has no tensors, but files alone.
    """
    reader = chosen(locals(), READER)
    return _load(file, layers, tokens, raw, lambda name: device, reader, like=like)


def load_tokens(file: Source, *, checkpoint: int = 0, key: Optional[bytes] = None,
                passphrase: Optional[Secret] = None, memlimit: int = 0) -> Optional[Array]:
    """The token ids of an archive, int32 [tokens] or [batch, tokens], as they were given to save();
    None: it has none. Nothing else is decoded. Options as of Reader."""
    reader = chosen(locals(), READER)
    with Reader(file, **reader) as r:
        found = _layout.find_json(r)
        if found is None:
            return r.ids(0) if r.tracks else None
        return _restore.Restore(r, found, None, None, True, _restore.Host(True)).ids()


_ADAPTER_FREE = ("pairs", "pairs by layer", "cache")


def _adapter_of(name: str) -> Any:
    """The adapter that makes caches of a framework from a Cache of a format, None: none does."""
    return _adapters.get(name if name not in _ADAPTER_FREE else "transformers")


def from_cache(cache: Cache, config: Any = None, *, model: Any = None, device: Any = None,
               ignore: Iterable[str] = (), canary: bool = True, exact: bool = False) -> Any:
    """What load() returns of a Cache; with config, or model, of one that was read with raw=True.
    device, ignore, canary, exact: as of load(), of caches of a framework."""
    if exact and (model is None or not canary):
        raise TypeError("exact: goes with model=, and with a canary")
    if config is None:
        config = getattr(model, "config", None)
    if config is not None:
        name = cache.format
        adapter = _adapter_of(name)
        if adapter is None:
            raise TypeError(f"there is no adapter for caches of {name!r}")
        made = adapter.from_cache(cache, config, model=model, device=device, ignore=ignore)
        if canary:
            _check_canary(cache, adapter, model, exact)
        return made
    plain = all(list(layer.tensors) == ["key", "value"] and not layer.states
                for layer in cache.layers)
    if not cache.format.startswith("pairs") and not (cache.format == "cache" and plain):
        return cache
    pairs = Pairs()
    for layer in cache.layers:
        k, v = layer.tensors["key"], layer.tensors["value"]
        pairs.append((k[0], v[0]) if cache.metadata.get("axes", 3) == 3 and len(k) == 1
                     else (k, v))
    found: Union[Pairs, PairsByLayer] = pairs
    if cache.format == "pairs by layer":
        found = PairsByLayer(zip(cache.metadata["layers"], pairs))
    found.tokens, found.model = cache.tokens, cache.model
    found.metadata = cache.metadata.get("user", {})
    return found


def _decoder(device: Any) -> Any:
    """The Device that decodes into tensors of a device of torch; None: the host does."""
    from . import _device_memory
    from .device import Device
    torch = _device_memory.torch_with_cuda()
    if isinstance(device, Device):
        if torch is None:
            raise OptionsError("device: tensors cannot be made there, since this torch has no "
                               "CUDA")
        return device
    where = torch.device(device) if torch is not None and device is not None else None
    if where is None or where.type != "cuda":
        return None
    try:
        return Device(torch.cuda.current_device() if where.index is None else where.index)
    except OptionsError:
        return None


def _load_for(file: Source, config: Any, reader: Dict[str, Any], layers: Range, tokens: Range,
              device: Any, checks: Dict[str, Any]) -> Any:
    """load() with config=; checks: model, ignore, canary, exact of from_cache."""
    from .device import Device

    def device_of(name: str) -> Any:
        takes = getattr(_adapter_of(name), "takes_tensors", False)
        return _decoder(device) if takes else None
    cache = _load(file, layers, tokens, True, device_of, reader, whole=True)
    where = f"cuda:{device.ordinal}" if isinstance(device, Device) else device
    return from_cache(cache, config, device=where, **checks)


@overload
def load(file: Source, *, layers: Range = None, tokens: Range = None, raw: bool = False,
         like: Optional[Like] = None, device: Optional[DeviceLike] = None,
         allow_lossy: bool = False, profiles: ProfilesLike = None,
         predictor: Optional[PredictorLike] = None, checkpoint: int = 0, request_cost: int = 0,
         key: Optional[bytes] = None, passphrase: Optional[Secret] = None,
         threads: Optional[int] = None, memlimit: int = 0,
         progress: Optional[Progress] = None) -> Loaded: ...


@overload
def load(file: Source, *, layers: Range = None, tokens: Range = None, raw: bool = False,
         like: Optional[Like] = None, device: Optional[DeviceLike] = None, config: Any = None,
         model: Any = None, replay: Any = None, ignore: Iterable[str] = (),
         canary: bool = True, exact: bool = False, allow_lossy: bool = False,
         profiles: ProfilesLike = None, predictor: Optional[PredictorLike] = None,
         checkpoint: int = 0, request_cost: int = 0, key: Optional[bytes] = None,
         passphrase: Optional[Secret] = None, threads: Optional[int] = None, memlimit: int = 0,
         progress: Optional[Progress] = None) -> Any: ...


def load(file: Source, *, layers: Range = None, tokens: Range = None, raw: bool = False,
         like: Optional[Like] = None, device: Optional[DeviceLike] = None, config: Any = None,
         model: Any = None, replay: Any = None, ignore: Iterable[str] = (),
         canary: bool = True, exact: bool = False, allow_lossy: bool = False,
         profiles: ProfilesLike = None, predictor: Optional[PredictorLike] = None,
         checkpoint: int = 0, request_cost: int = 0, key: Optional[bytes] = None,
         passphrase: Optional[Secret] = None, threads: Optional[int] = None, memlimit: int = 0,
         progress: Optional[Progress] = None) -> Any:
    """The cache of an archive, as it was given to save().

    A list of pairs (or a dict of them) comes back as one, with arrays of the axes that it had, and
    with its token ids as `tokens`; an archive of `kvarc pack` as a list of pairs [heads, tokens,
    channels]. A cache of a framework comes back as a kvarc.Cache of numpy arrays, or with
    config=model.config, or model=model, as a cache of the framework; ignore: what may differ from
    the model that it was saved with, as the message names it: ("attention",). replay: the model,
    for an archive that was saved with replay=.
    canary: with model= it computes the 32 tokens of the fingerprint that was recorded: what is
    refused (OptionsError) has other weights, another adapter or RoPE setting; what only may be
    another model is a warning, and with exact=True refused, as is a cache without a fingerprint.
    like, device: as of load_cache. With config= any device of torch: where it is no GPU, or has
    no kernels here, the host decodes, and the tensors are moved. layers, tokens, raw as of
    load_cache; other options as of Reader.
    """
    reader = chosen(locals(), READER)
    if config is None:
        config = getattr(model, "config", None)
    if ignore and config is None and replay is None:
        raise TypeError("ignore: goes with config= or model=")
    if like is not None and (config is not None or replay is not None):
        raise TypeError("like: goes without config=, model= and replay=")
    checks = {"model": model, "ignore": ignore, "canary": canary, "exact": exact}
    if config is not None and replay is None:
        return _load_for(file, config, reader, layers, tokens, device, checks)
    if exact and config is None:
        raise TypeError("exact: goes with model=")
    if replay is None:
        return from_cache(load_cache(file, layers=layers, tokens=tokens, raw=raw, like=like,
                                     device=device, **reader))
    from . import replay as engine
    cache = engine.load_cache(file, replay, raw=raw or config is not None, ignore=ignore,
                              layers=layers, tokens=tokens, **reader)
    return from_cache(cache, config, device=device, **checks)


@overload
def loads(data: Buffer, *, layers: Range = None, tokens: Range = None, raw: bool = False,
          like: Optional[Like] = None, device: Optional[DeviceLike] = None,
          allow_lossy: bool = False, profiles: ProfilesLike = None,
          predictor: Optional[PredictorLike] = None, checkpoint: int = 0, request_cost: int = 0,
          key: Optional[bytes] = None, passphrase: Optional[Secret] = None,
          threads: Optional[int] = None, memlimit: int = 0,
          progress: Optional[Progress] = None) -> Loaded: ...


@overload
def loads(data: Buffer, *, layers: Range = None, tokens: Range = None, raw: bool = False,
          like: Optional[Like] = None, device: Optional[DeviceLike] = None, config: Any = None,
          model: Any = None, replay: Any = None, ignore: Iterable[str] = (),
          canary: bool = True, exact: bool = False, allow_lossy: bool = False,
          profiles: ProfilesLike = None, predictor: Optional[PredictorLike] = None,
          checkpoint: int = 0, request_cost: int = 0, key: Optional[bytes] = None,
          passphrase: Optional[Secret] = None, threads: Optional[int] = None, memlimit: int = 0,
          progress: Optional[Progress] = None) -> Any: ...


def loads(data: Buffer, *, layers: Range = None, tokens: Range = None, raw: bool = False,
          like: Optional[Like] = None, device: Optional[DeviceLike] = None, config: Any = None,
          model: Any = None, replay: Any = None, ignore: Iterable[str] = (),
          canary: bool = True, exact: bool = False, allow_lossy: bool = False,
          profiles: ProfilesLike = None, predictor: Optional[PredictorLike] = None,
          checkpoint: int = 0, request_cost: int = 0, key: Optional[bytes] = None,
          passphrase: Optional[Secret] = None, threads: Optional[int] = None, memlimit: int = 0,
          progress: Optional[Progress] = None) -> Any:
    """The cache of an archive in bytes, or another buffer, which is not copied; as load()."""
    options = dict(locals())
    del options["data"]
    if not is_buffer(data):
        raise TypeError(f"bytes are needed, not {type(data).__name__}: load() takes paths and "
                        "files")
    return load(data, **options)
