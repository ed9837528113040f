# SPDX-License-Identifier: BSD-3-Clause
"""The library that the package is linked with: the build that KVARC_BUILD names, or its own one.

setup.py says what the variables of the environment mean.
"""
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(HERE)
HEADER = os.path.join(TOP, "include", "kvarc.h")
BUILD = os.environ.get("KVARC_BUILD")
IS_SYSTEM = os.environ.get("KVARC_SYSTEM", "0") not in ("", "0")
CONFIGURE = shlex.split(os.environ.get("KVARC_CONFIGURE", ""))
LIBRARIES = ("kvarc-device", "kvarc-store", "kvarc-tools", "kvarc")
# Static libraries of Debian that are not position-independent: auditwheel puts the shared one into
# the wheel.
NOT_PIC = {"-l:libjansson.a": "-ljansson"}
# What a build of the library needs: programs and modules of pkg-config, and Debian's packages of
# them. A module with a switch of configure can be left out.
PROGRAMS = (("make", "make"), (os.environ.get("PKG_CONFIG", "pkg-config"), "pkg-config"))
GENERATORS = (("autoconf", "autoconf"), ("automake", "automake"), ("libtoolize", "libtool"))
MODULES = (("libxxhash", "libxxhash-dev", ""), ("libzstd", "libzstd-dev", ""),
           ("libsodium", "libsodium-dev", ""), ("jansson", "libjansson-dev", "jansson"),
           ("sqlite3", "libsqlite3-dev", "sqlite3"), ("hiredis", "libhiredis-dev", "hiredis"),
           ("libcurl", "libcurl4-openssl-dev", "libcurl"),
           ("libarchive", "libarchive-dev", "libarchive"))


def _missing_of_setup():
    """(name, Debian's packages) of what setup.py itself needs and is not there."""
    if not importlib.util.find_spec("cffi"):
        yield "cffi", ["python3-cffi"]
    # setuptools has a bdist_wheel of its own from 70.1 on
    if {"bdist_wheel", "dist_info", "editable_wheel"} & set(sys.argv) and \
            not importlib.util.find_spec("setuptools.command.bdist_wheel") and \
            not importlib.util.find_spec("wheel"):
        yield "the module wheel", ["python3-wheel"]


def _missing_of_extension():
    """The same of what the extension needs."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if not shutil.which(compiler):
        yield f"a C compiler ({compiler})", ["gcc", "libc6-dev"]
    if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
        yield "Python.h", ["python3-dev"]


def _missing_of_library():
    """The same of what a build of the library needs."""
    programs = PROGRAMS
    if not os.path.exists(os.path.join(TOP, "configure")):
        programs += GENERATORS
    for name, package in programs:
        if not shutil.which(name):
            yield name, [package]
    modules = [m for m in MODULES if not m[2] or f"--without-{m[2]}" not in CONFIGURE]
    pkg_config = PROGRAMS[1][0]
    if not shutil.which(pkg_config):
        yield "perhaps libraries", [package for _, package, _ in modules]
        return
    for name, package, _ in modules:
        if subprocess.run([pkg_config, "--exists", name], check=False).returncode:
            yield name, [package]


def can_describe():
    """Whether setup.py can say what the package is; check() says why not."""
    return os.path.exists(HEADER) and not list(_missing_of_setup())


def check():
    """Ends the process with one line where something is missing."""
    if not os.path.exists(HEADER):
        raise SystemExit(f"{TOP}: the sources of the library are not here: "
                         "the folder python is installed from a whole tree of kvarc")
    if BUILD and not os.path.exists(os.path.join(BUILD, "Makefile")):
        raise SystemExit(f"KVARC_BUILD: {BUILD} is no build folder of the library")
    if IS_SYSTEM and (not BUILD or is_static(BUILD)):
        raise SystemExit("KVARC_SYSTEM needs KVARC_BUILD, a build folder with shared libraries")
    missing = [*_missing_of_setup(), *_missing_of_extension()]
    if not BUILD:
        missing += _missing_of_library()
    if missing:
        packages = " ".join(word for _, words in missing for word in words)
        raise SystemExit("kvarc cannot be built, as these are missing: " +
                         ", ".join(name for name, _ in missing) +
                         f" (Debian: apt-get install {packages})")


def build_folder(folder):
    """The build folder of the library. A build of its own is made in `folder`."""
    check()
    if BUILD:
        return os.path.abspath(BUILD)
    script = os.path.join(HERE, "build_library.sh")
    if subprocess.run(["sh", script, folder, *CONFIGURE], check=False).returncode:
        raise SystemExit(f"kvarc cannot be built: {script} failed, the lines above say why")
    return os.path.abspath(folder)


def _makefile_variable(build, name):
    """The value of a variable of the build folder's Makefile, as words."""
    with open(os.path.join(build, "Makefile"), encoding="utf-8") as f:
        found = re.search(rf"^{name} = (.*)$", f.read(), re.M)
    return found.group(1).split() if found else []


def profile_folder(build):
    """Where the command of the build finds profiles that are installed for all."""
    path = "$(pkgdatadir)"
    while "$" in path:
        path = re.sub(r"\$[({](\w+)[)}]",
                      lambda m: " ".join(_makefile_variable(build, m[1])), path)
    return os.path.join(path, "profiles")


def is_static(build):
    """Whether the build has static libraries alone."""
    libs = os.path.join(build, ".libs")
    return os.path.exists(os.path.join(libs, "libkvarc.a")) and \
        not os.path.exists(os.path.join(libs, "libkvarc.so"))


def link_arguments(build):
    """Words for the linker."""
    libs = os.path.join(build, ".libs")
    if IS_SYSTEM or not is_static(build):
        rpath = [] if IS_SYSTEM else [f"-Wl,-rpath,{libs}"]
        return [f"-L{libs}", *rpath] + ["-l" + name for name in LIBRARIES]
    words = ["-Wl,--exclude-libs,ALL", "-Wl,--start-group"]
    words += [os.path.join(libs, f"lib{name}.a") for name in LIBRARIES]
    for name in ("XXHASH", "SODIUM", "ZSTD", "LIBARCHIVE", "JANSSON", "ISAL", "SQLITE3",
                 "LIBCURL", "HIREDIS"):
        words += [NOT_PIC.get(word, word) for word in _makefile_variable(build, name + "_LIBS")]
    return words + ["-Wl,--end-group", "-lpthread", "-lm", "-ldl"]
