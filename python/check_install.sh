#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# `pip install ./python` on Debian 12: check_install.sh FOLDER TREE (network), with the build folder
# of the library, which has shared libraries, in $KVARC_BUILD. TREE is a tree of sources.
#
# In a copy of it without configure, as of a checkout: what is missing is said in one line; the
# package is installed without build isolation, by the setuptools of Debian, and with it, by the
# newest. Both are used when the copy is gone. Then the package of a distribution (KVARC_SYSTEM).
# It takes 155 s of processor time, 55 s where ccache has the objects.
set -eu

folder=${1:?folder}
tree=${2:?tree}
build=${KVARC_BUILD:?the build folder of the library}
here=$(cd "$(dirname "$0")" && pwd)
python=/usr/bin/python3
PIP_DISABLE_PIP_VERSION_CHECK=1
PYTHONUSERBASE=/nonexistent
export PIP_DISABLE_PIP_VERSION_CHECK PYTHONUSERBASE
unset KVARC_BUILD KVARC_SYSTEM KVARC_CONFIGURE PYTHONPATH MAKEFLAGS MAKELEVEL CC CXX
[ ! -d /usr/lib/ccache ] || PATH=/usr/lib/ccache:$PATH
fail() {
	echo "check_install: $*" >&2
	exit 1
}
"$python" -c 'import cffi, ensurepip, numpy, setuptools, venv, wheel
for module in setuptools, cffi, numpy:
    print(module.__name__, module.__version__)' ||
	fail "apt-get install python3-venv python3-dev python3-setuptools python3-wheel" \
		"python3-cffi python3-numpy"
rm -rf "$folder"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cp -R "$tree" "$folder/tree"
cd "$folder"
rm -rf tree/configure tree/Makefile.in tree/aclocal.m4 tree/config.h.in tree/build-aux
"$python" -m venv --system-site-packages debian
"$python" -m venv --system-site-packages system
"$python" -m venv newest

# What is missing is said in one line.
refused() { # TEXT VARIABLE=VALUE...
	text=$1
	shift
	! env "$@" debian/bin/pip install --no-build-isolation --no-deps tree/python > log 2>&1 ||
		fail "installed without what it needs: $text"
	grep 'kvarc cannot be built' log > line || fail "no line that says it: $(cat log)"
	cat line
	[ "$(wc -l < line)" -eq 1 ] && grep -qF -e "$text" line || fail "not one line with: $text"
	! grep -q Traceback log || fail "a traceback: $(cat log)"
}
mkdir bare
ln -s /usr/bin/* bare
rm -f bare/*gcc* bare/*clang* bare/cc bare/c89* bare/c99* bare/tcc
refused "gcc) (Debian: apt-get install gcc libc6-dev)" PATH="$folder/bare"
rm bare/make bare/*pkg-config bare/pkgconf
refused "make, pkg-config, perhaps libraries (Debian: " PATH="$folder/bare"
refused "sqlite3, hiredis, libcurl, libarchive (Debian: apt-get install libxxhash-dev" \
	PKG_CONFIG_LIBDIR=/nonexistent PKG_CONFIG_PATH=

(cd tree/python && ../../debian/bin/pip install -q --no-build-isolation .)
newest/bin/pip install -q ./tree/python
KVARC_SYSTEM=1 KVARC_BUILD=$build system/bin/pip install -q --no-build-isolation --no-deps \
	tree/python
rm -rf tree

cat > saved.py <<'END'
import sys
import numpy as np
import kvarc

assert kvarc.__file__.startswith(sys.prefix), kvarc.__file__
cache = [(np.arange(12800, dtype="<f2").reshape(2, 100, 64),) * 2]
kvarc.save("saved.kva", cache, passphrase="x")
assert kvarc.load("saved.kva", passphrase="x")[0][1].tobytes() == cache[0][1].tobytes()
with kvarc.Store("store") as store:
    store.save("chat", cache, tokens=range(100))
    assert len(store.load("chat")) == 1
print("the same bits, kvarc", kvarc.__version__, "numpy", np.__version__)
END
for venv in debian newest; do
	"$venv/bin/python" saved.py || fail "the package in $venv does not work"
	"$here/check_command.sh" "$venv" || fail "the command in $venv does not work"
	readelf -d "$venv/bin/kvarc" "$venv"/lib/*/site-packages/kvarc/_native.*.so > dynamic
	! grep -E 'R(UN)?PATH|libkvarc' dynamic || fail "the package in $venv needs a build folder"
	grep -q 'License.*: BSD-3-Clause' "$venv"/lib/*/site-packages/kvarc-*/METADATA ||
		fail "no licence in $venv"
done

[ ! -e system/bin/kvarc ] || fail "KVARC_SYSTEM: the command is in the package"
readelf -d system/lib/*/site-packages/kvarc/_native.*.so > dynamic
! grep -E 'R(UN)?PATH' dynamic || fail "KVARC_SYSTEM: a path of libraries"
for library in kvarc kvarc-store kvarc-tools kvarc-device; do
	grep -q "NEEDED.*\[lib$library\.so\." dynamic || fail "KVARC_SYSTEM: without lib$library"
done
LD_LIBRARY_PATH=$build/.libs
export LD_LIBRARY_PATH
system/bin/python saved.py || fail "KVARC_SYSTEM: the package does not work"
[ "$(PATH=$build:$PATH system/bin/python -m kvarc --version)" = "$("$build/kvarc" --version)" ] ||
	fail "KVARC_SYSTEM: the command on PATH is not found"
! PATH=/nonexistent system/bin/python -m kvarc --version > out 2> line || fail "no command is none"
cat line
[ "$(wc -l < line)" -eq 1 ] && [ ! -s out ] && grep -q 'put kvarc on PATH' line ||
	fail "a command that is missing is not said in one line"
echo "check_install: passed"
