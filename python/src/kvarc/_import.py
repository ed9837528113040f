# SPDX-License-Identifier: BSD-3-Clause
"""Files and caches as imports of the library: what stores save, and trainers learn from."""
from __future__ import annotations

import os
from typing import Any, Mapping, Optional

from ._io import Source, is_path
from ._native import ffi, lib
from ._options import Common


class Import:
    """A kvarc_import of a path, bytes or a binary file. name: base name to record. rope: "auto",
    "none", "THETA[,half|interleaved][,DIMS]". identity: text pairs."""

    def __init__(self, file: Any, common: Common, *, name: Optional[str] = None,
                 rope: Optional[str] = None, identity: Optional[Mapping[str, str]] = None,
                 profiles: Any = ()) -> None:
        self.c = ffi.new("kvarc_import **")
        self.source: Optional[Source] = Source(file, common.trouble)
        if name is None and is_path(file):
            name = os.path.basename(os.fspath(file))
        options = ffi.new("kvarc_import_options *")
        common.keep.append(options)
        common.fill(options.common)
        options.rope = common.text(rope)
        options.profiles, options.n_profiles = common.profiles(profiles), len(profiles)
        try:
            common.trouble.check(lib.kvarc_import_open(self.c, self.source.c, common.text(name),
                                                       options))
            for key, value in (identity or {}).items():
                common.trouble.check(lib.kvarc_import_identity(
                    self.c[0], key.encode("utf-8"), value.encode("utf-8")))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        lib.kvarc_import_close(self.c)
        source, self.source = self.source, None
        if source is not None:
            source.close()

    def __enter__(self) -> "Import":
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()
