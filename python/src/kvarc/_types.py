# SPDX-License-Identifier: BSD-3-Clause
"""Types of what calls take and return, for type checkers and editors."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Literal, Mapping, Optional, Protocol, \
    Sequence, Tuple, TypedDict, Union

import numpy as np

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from .cache import Cache
    from .device import Device
    from .models import External, Predictor, Profile
    from .geometry import Rope
else:  # modules that need this one, and what only type checkers have
    Buffer = Cache = Device = External = Predictor = Profile = Rope = Any

__all__ = ["Array", "ArrayLike", "CacheLike", "DeviceLike", "IdsLike", "Like", "Loaded", "Pair",
           "Pairs", "PairsByLayer", "PathLike", "PredictorLike", "ProfileLike", "ProfilesLike", "Progress",
           "Readable", "RopeLike", "Source", "Target", "Writable"]


class Readable(Protocol):
    """A binary file-like object that is read."""

    def read(self, n: int, /) -> Any:
        """The next n bytes."""


class Writable(Protocol):
    """A binary file-like object that is written to."""

    def write(self, data: memoryview, /) -> Any:
        """Takes bytes; returns how many."""


class HasDLPack(Protocol):
    """An array of any library that has DLPack: torch, cupy, jax, mlx."""

    def __dlpack__(self, *arguments: Any, **keywords: Any) -> Any:
        """A capsule."""


class FrameworkCache(Protocol):
    """A cache of transformers."""

    layers: Any


class TorchDevice(Protocol):
    """A torch.device."""

    @property
    def type(self) -> str:
        """"cuda", "cpu"."""

    @property
    def index(self) -> Any:
        """Its number, or None."""


PathLike = Union[str, "os.PathLike[str]"]
Source = Union[PathLike, Buffer, Readable]
Target = Union[PathLike, Writable]
Array = np.ndarray[Any, Any]
ArrayLike = Union[Array, HasDLPack, Buffer]
IdsLike = Union[Sequence[int], Sequence[Sequence[int]], Array, HasDLPack, Buffer]
PairLike = Sequence[ArrayLike]
CacheLike = Union[Cache, Sequence[PairLike], Mapping[int, PairLike], FrameworkCache]
DeviceLike = Union[str, int, Device, TorchDevice]
Like = Literal["numpy", "torch"]
Secret = Union[str, bytes]
Progress = Union[bool, Callable[[int, Optional[int]], Any]]
ProfileLike = Union[Profile, PathLike, Buffer, Readable]
ProfilesLike = Union[ProfileLike, Sequence[ProfileLike], None]
PredictorLike = Union[Predictor, PathLike]
RopeLike = Union[Rope, float, None]
# Keys and values: arrays of numpy, tensors of torch, or DeviceArray.
Pair = Tuple[Any, Any]


class Pairs(List[Pair]):
    """What load() returns of an archive of pairs: a list of (keys, values), one for each layer.

    tokens: the token ids, int32 [tokens] or [batch, tokens], None: the archive has none; model:
    what was recorded; metadata: what was given to save().
    """

    tokens: Optional[Array] = None
    model: str = ""
    metadata: Dict[str, Any] = {}


class PairsByLayer(Dict[int, Pair]):
    """As Pairs, of a cache that was saved as a dict by layer number."""

    tokens: Optional[Array] = None
    model: str = ""
    metadata: Dict[str, Any] = {}


Loaded = Union[Pairs, PairsByLayer, Cache]


class TrackInfo(TypedDict):
    """A track in info()."""

    kind: str
    window: int
    label: str
    tokens: int


class TensorInfo(TypedDict):
    """A tensor in info()."""

    layer: int
    kind: str
    dtype: str
    heads: int
    channels: int
    track: int
    name: str


class CheckpointInfo(TypedDict):
    """A checkpoint in info(); time: milliseconds since 1970, 0: not known."""

    number: int
    label: str
    time: int
    tokens: int
    new_tokens: int
    end: int


class ReaderInfo(TypedDict):
    """What Reader.info says: sizes in bytes, numbers of parts, and what the file needs.

    state: "closed", "open", "cut", "damaged", "unknown". codecs: names of the codecs of all
    chunks; those of later versions are "unknown-40", and "later" where the file does not say
    which; none with salvage.
    """

    format_major: int
    format_minor: int
    file_bytes: int
    raw_bytes: int
    elements: int
    literal_bytes: int
    frames: int
    chunks: int
    segments: int
    dropped_bytes: int
    n_items: int
    fallbacks: int
    dropped_tokens: int
    stored_tokens: int
    file_id: str
    state: str
    encrypted: bool
    codecs: Tuple[str, ...]


class Info(ReaderInfo):
    """What info() says: that of Reader.info, and what the archive holds."""

    identity: Dict[str, str]
    tracks: List[TrackInfo]
    layers: int
    tensors: List[TensorInfo]
    checkpoints: List[CheckpointInfo]
    items: List[Tuple[str, int]]


class ProfileInfo(TypedDict):
    """What Profile.info says; digest: hexadecimal."""

    digest: str
    file_bytes: int
    coefficients: int
    n_models: int
    levels: List[int]
    identity: Dict[str, str]


class ModelInfo(TypedDict):
    """What Predictor.model says."""

    arch: str
    name: str
    layers: int
    heads: int
    channels: int
    vocabulary: int
