#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The wheel on a bare Debian 12: check_wheel.sh FOLDER (as root, with debootstrap and network).
#
# Builds the wheel in FOLDER (build_wheel.sh), makes a Debian 12 of the smallest kind with
# python3-venv in FOLDER/bare, and there, without any compiler: a fresh virtual environment,
# `pip install` of the wheel, a cache saved and loaded, and the command.
set -eu

folder=${1:?folder}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
bare=$folder/bare
fail() {
	echo "check_wheel: $*" >&2
	exit 1
}
[ "$(id -u)" -eq 0 ] || fail "root is needed for a chroot"
"$here/build_wheel.sh" "$folder"
if [ ! -e "$bare/ready" ]; then
	rm -rf "$bare"
	debootstrap --variant=minbase --include=python3-venv bookworm "$bare" \
		"${DEBIAN_MIRROR:-http://deb.debian.org/debian}" > "$folder/debootstrap.log" 2>&1 ||
		fail "debootstrap failed, see $folder/debootstrap.log"
	touch "$bare/ready"
fi
rm -rf "$bare/check"
mkdir "$bare/check"
# the wheel and what it needs, fetched here: the chroot has no network to set up
"$folder/venv/bin/pip" download -q --disable-pip-version-check --only-binary=:all: \
	--python-version 3.11 --implementation cp --platform manylinux_2_28_x86_64 \
	--platform manylinux_2_17_x86_64 -d "$bare/check" numpy cffi
cp "$folder"/dist/*.whl "$bare/check"
cat > "$bare/check/two_lines.py" <<'END'
import numpy as np
import kvarc

rng = np.random.default_rng(1)
cache = [(rng.standard_normal((3, 100, 64)).astype(np.float16),
          rng.standard_normal((3, 100, 64)).astype(np.float16)) for _ in range(2)]
kvarc.save("session.kva", cache, tokens=range(100), model="a model")
back = kvarc.load("session.kva")
assert all(x.tobytes() == y.tobytes() for p, q in zip(cache, back) for x, y in zip(p, q))
with kvarc.Store("store") as store:
    store.save("chat", cache, tokens=range(100))
    assert store.load("chat")[1][1].tobytes() == cache[1][1].tobytes()
kvarc.save("secret.kva", cache, passphrase="x")
assert len(kvarc.load("secret.kva", passphrase="x")) == 2
try:  # no S3 in wheels: one line that says what to do
    kvarc.Store("s3://bucket/prefix")
    raise SystemExit("a store in S3")
except kvarc.OptionsError as e:
    assert "libcurl4-openssl-dev" in str(e), e
try:  # Redis is there, and nobody listens
    kvarc.Store("redis://127.0.0.1:1")
    raise SystemExit("a store in Redis")
except kvarc.Error as e:
    assert "hiredis" not in str(e), e
print("the same bits, kvarc", kvarc.__version__, "numpy", np.__version__)
END
mount -t proc proc "$bare/proc"
trap 'umount "$bare/proc"' EXIT
env -i PATH="$PATH" chroot "$bare" /bin/sh -eu -c '
for compiler in cc gcc clang c99 tcc; do
	! command -v "$compiler" || exit 1
done
cd /check
python3 -m venv venv
venv/bin/pip install -q --no-index --find-links . kvarc
venv/bin/pip list --disable-pip-version-check
venv/bin/python two_lines.py
venv/bin/python -m kvarc info -q session.kva
venv/bin/kvarc test session.kva
' || fail "the wheel does not work on a bare Debian 12"
echo "check_wheel: passed"
