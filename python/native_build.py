# SPDX-License-Identifier: BSD-3-Clause
"""How kvarc._native is compiled and linked, for cffi and setuptools.

KVARC_BUILD names the build folder of the library (default: ../build). Was it configured
with --disable-shared, the libraries are linked statically, as in a wheel; otherwise the
package uses the shared ones where they are, for work on the tree.
"""
import os
import re

import cffi

from native_cdef import declarations

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(HERE)
BUILD = os.path.abspath(os.environ.get("KVARC_BUILD", os.path.join(TOP, "build")))
# Static libraries of Debian that are not position-independent: auditwheel puts the shared one into
# the wheel.
NOT_PIC = {"-l:libjansson.a": "-ljansson"}
LIBRARIES = ("kvarc-device", "kvarc-store", "kvarc-tools", "kvarc")


def makefile_variable(name):
    """The value of a variable of the build folder's Makefile, as words."""
    path = os.path.join(BUILD, "Makefile")
    if not os.path.exists(path):
        raise SystemExit(f"{path}: no such file: build the library first, or set KVARC_BUILD")
    with open(path, encoding="utf-8") as f:
        found = re.search(rf"^{name} = (.*)$", f.read(), re.M)
    return found.group(1).split() if found else []


def profile_folder():
    """Where the command of the build finds profiles that are installed for all."""
    path = "$(pkgdatadir)"
    while "$" in path:
        path = re.sub(r"\$[({](\w+)[)}]", lambda m: " ".join(makefile_variable(m[1])), path)
    return os.path.join(path, "profiles")


def is_static():
    """Whether the build has static libraries alone: its command then is no script of libtool."""
    libs = os.path.join(BUILD, ".libs")
    return os.path.exists(os.path.join(libs, "libkvarc.a")) and \
        not os.path.exists(os.path.join(libs, "libkvarc.so"))


def link_arguments():
    """Words for the linker."""
    libs = os.path.join(BUILD, ".libs")
    if not is_static():
        return [f"-L{libs}", f"-Wl,-rpath,{libs}"] + ["-l" + name for name in LIBRARIES]
    words = ["-Wl,--exclude-libs,ALL", "-Wl,--start-group"]
    words += [os.path.join(libs, f"lib{name}.a") for name in LIBRARIES]
    for name in ("XXHASH", "ZSTD", "LIBARCHIVE", "JANSSON", "SODIUM", "ISAL", "SQLITE3",
                 "LIBCURL", "HIREDIS"):
        words += [NOT_PIC.get(word, word) for word in makefile_variable(name + "_LIBS")]
    return words + ["-Wl,--end-group", "-lpthread", "-lm", "-ldl"]


def make_ffi():
    include = os.path.join(TOP, "include")
    ffi = cffi.FFI()
    ffi.cdef(declarations(include))
    ffi.set_source(
        "kvarc._native",
        '#include "kvarc.h"\n#include "kvarc/tools.h"\n#include "kvarc/blocks.h"\n'
        '#include "kvarc/device.h"\n'
        f'#define KVPY_PROFILE_DIR "{profile_folder()}"\n',
        include_dirs=[include],
        extra_link_args=link_arguments(),
        py_limited_api=True,
    )
    return ffi


if __name__ != "__main__":
    ffi = make_ffi()
