# SPDX-License-Identifier: BSD-3-Clause
"""Files and caches as imports of the library: what stores save, and trainers learn from."""
from __future__ import annotations

import io
from contextlib import contextmanager
from typing import Any, Dict, Iterator, Mapping, Optional

from ._io import FileSink, FileSource, base_name
from ._native import ffi, lib
from ._options import Common, writer_options
from ._profiles import choose
from .geometry import Rope, rope_of


def _rope_text(rope: Any) -> Optional[str]:
    rope_of(rope, 0)
    if rope is False:
        return "none"
    return None if rope is None or isinstance(rope, Rope) else repr(float(rope))


class Import:
    """A kvarc_import of a path, bytes or a binary file. name: base name to record. rope: theta of
    a file that does not say it, False: none; a Rope must be what the file says. profiles: know
    the RoPE of keys, too. identity: text pairs."""

    def __init__(self, file: Any, common: Common, *, name: Optional[str] = None,
                 rope: Any = None, identity: Optional[Mapping[str, str]] = None,
                 profiles: Any = ()) -> None:
        self.c = ffi.new("kvarc_import **")
        self.common = common
        self.source: Optional[FileSource] = FileSource(file, common.trouble)
        name = name or base_name(file) or None
        options = ffi.new("kvarc_import_options *")
        common.keep.append(options)
        common.fill(options.common)
        options.rope = common.text(_rope_text(rope))
        common.set_profiles(options, profiles)
        try:
            common.trouble.check(lib.kvarc_import_open(self.c, self.source.c, common.text(name),
                                                       options))
            for key, value in (identity or {}).items():
                common.trouble.check(lib.kvarc_import_identity(
                    self.c[0], key.encode("utf-8"), value.encode("utf-8")))
        except BaseException:
            self.close()
            raise

    def pack(self, **options: Any) -> Any:
        """An archive of it in memory, of level 0 unless the options of a writer say another one."""
        file, common = io.BytesIO(), self.common
        sink = FileSink(file, common.trouble)
        common.trouble.check(lib.kvarc_pack(
            self.c[0], sink.c, writer_options(common, **{"level": 0, **options}), ffi.NULL))
        return file.getbuffer()

    def close(self) -> None:
        lib.kvarc_import_close(self.c)
        source, self.source = self.source, None
        if source is not None:
            source.close()

    def __enter__(self) -> "Import":
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()


def choose_installed(options: Dict[str, Any], arguments: Mapping[str, Any]) -> Dict[str, Any]:
    """As choose() of installed profiles, of an Import with these arguments, which has the RoPE of
    the profile where its file does not say it."""
    @contextmanager
    def geometry_of(profile: Any) -> Iterator[Any]:
        with Import(**arguments, profiles=profile) as im:
            yield lib.kvarc_import_geometry(im.c[0])
    return choose(options, geometry_of)
