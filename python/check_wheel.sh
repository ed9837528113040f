#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The wheel on a bare Debian 12: check_wheel.sh FOLDER (as root, with debootstrap and network).
#
# Builds the wheel in FOLDER (build_wheel.sh), makes a Debian 12 of the smallest kind with
# python3-venv in FOLDER/bare, and there, without any compiler: a fresh virtual environment,
# `pip install` of the wheel, a cache saved and loaded, and the command. What needs libcurl or
# libarchive, which are not there, says so in one line. FOLDER/full is the same Debian with both:
# there a store in moto's S3 server and a workspace are saved and come back.
set -eu

folder=${1:?folder}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
bare=$folder/bare
full=$folder/full
moto=
fail() {
	echo "check_wheel: $*" >&2
	exit 1
}
[ "$(id -u)" -eq 0 ] || fail "root is needed for a chroot"
finish() {
	[ -z "$moto" ] || kill "$moto" 2> /dev/null || :
	umount "$bare/proc" "$full/proc" 2> /dev/null || :
}
trap finish EXIT

"$here/build_wheel.sh" "$folder"
if [ ! -e "$bare/ready" ]; then
	rm -rf "$bare" "$full"
	debootstrap --variant=minbase --include=python3-venv bookworm "$bare" \
		"${DEBIAN_MIRROR:-http://deb.debian.org/debian}" > "$folder/debootstrap.log" 2>&1 ||
		fail "debootstrap failed, see $folder/debootstrap.log"
	touch "$bare/ready"
fi
if [ ! -e "$full/complete" ]; then
	rm -rf "$full"
	cp -a "$bare" "$full"
	cp /etc/resolv.conf "$full/etc"
	chroot "$full" /bin/sh -eu -c 'export DEBIAN_FRONTEND=noninteractive
		apt-get update -q
		apt-get install -q -y --no-install-recommends libcurl4 libarchive13' \
		> "$folder/full.log" 2>&1 || fail "apt-get failed, see $folder/full.log"
	touch "$full/complete"
fi
# the wheel and what it needs, fetched here: the bare root has no network to set up
rm -rf "$folder/check"
mkdir "$folder/check"
"$folder/venv/bin/pip" download -q --disable-pip-version-check --only-binary=:all: \
	--python-version 3.11 --implementation cp --platform manylinux_2_28_x86_64 \
	--platform manylinux_2_17_x86_64 -d "$folder/check" numpy cffi
cp "$folder"/dist/*.whl "$here/check_command.sh" "$folder/check"
cat > "$folder/check/both.py" <<'END'
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
try:  # Redis is there, and nobody listens
    kvarc.Store("redis://127.0.0.1:1")
    raise SystemExit("a store in Redis")
except kvarc.Error as e:
    assert "hiredis" not in str(e), e
tensors = {f"layers.{i}.{kind}": x for i, pair in enumerate(cache)
           for kind, x in zip(("keys", "values"), pair)}
np.savez("stored.npz", **tensors)
np.savez_compressed("deflated.npz", **tensors)
print("the same bits, kvarc", kvarc.__version__, "numpy", np.__version__)
END
cat > "$folder/check/bare.py" <<'END'
import kvarc

for _ in range(2):  # asked again, too
    try:
        kvarc.Store("s3://bucket/prefix")
        raise SystemExit("a store in S3")
    except kvarc.OptionsError as e:
        assert "(Debian: libcurl4)" in str(e) and "\n" not in str(e), e
        print(e)
END
cat > "$folder/check/full.py" <<'END'
import os
import numpy as np
import kvarc

rng = np.random.default_rng(2)
cache = [(rng.standard_normal((3, 100, 64)).astype(np.float16),) * 2]
keys = {"access_key": os.environ["AWS_ACCESS_KEY_ID"],
        "secret_key": os.environ["AWS_SECRET_ACCESS_KEY"]}
for name in "chat/1", "chat/2":
    with kvarc.Store(os.environ["URL"], **keys) as store:
        saved = store.save(name, cache, tokens=range(100))
    with kvarc.Store(os.environ["URL"], **keys) as store:
        assert store.load(name)[0][1].tobytes() == cache[0][1].tobytes()
try:
    kvarc.Store(os.environ["URL"], **{**keys, "secret_key": "wrong"})
    raise SystemExit("a wrong key is accepted")
except kvarc.Error as e:
    assert "403" in str(e) or "denied" in str(e) or "refuse" in str(e), e
print("a store in S3, kvarc", kvarc.__version__)
END
# Runs commands in a root, in a new folder in which the wheel is installed.
in_root() { # ROOT COMMANDS [VARIABLE=VALUE...]
	root=$1
	commands=$2
	shift 2
	rm -rf "$root/check"
	cp -R "$folder/check" "$root/check"
	mount -t proc proc "$root/proc"
	env -i PATH="$PATH" "$@" chroot "$root" /bin/sh -eu -c "
cd /check
python3 -m venv venv
venv/bin/pip install -q --no-index --find-links . kvarc
$commands" || fail "the wheel does not work in $root"
	umount "$root/proc"
}

in_root "$bare" '
for compiler in cc gcc clang c99 tcc; do
	! command -v "$compiler" || exit 1
done
venv/bin/pip list --disable-pip-version-check
./check_command.sh venv
[ ! -e venv/lib/python3.*/site-packages/kvarc/_bin ] || exit 1
venv/bin/python both.py
venv/bin/python -m kvarc info -q session.kva
venv/bin/kvarc test session.kva
venv/bin/python bare.py
refused() { # TEXT COMMAND...: with one line that has the text, and nothing written
	text=$1
	shift
	! "$@" > out 2> lines || exit 1
	cat lines
	[ "$(wc -l < lines)" -eq 1 ] && grep -q "$text" lines && [ ! -s out ]
}
refused "(Debian: libarchive13)" venv/bin/kvarc pack --attach store -o - stored.npz
refused "(Debian: libarchive13)" venv/bin/kvarc session send chat --store store
# packed as bytes, with a warning
venv/bin/kvarc pack --members -o x.kva deflated.npz 2> lines || [ $? -eq 2 ]
cat lines
grep -q "(Debian: libarchive13)" lines
venv/bin/kvarc unpack -o back.npz x.kva
cmp deflated.npz back.npz'

"$folder/venv/bin/pip" install -q --disable-pip-version-check 'moto[s3,server,iam]'
port=$("$folder/venv/bin/python" -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
MOTO_PORT=$port "$folder/venv/bin/python" "$here/../tests/moto_server.py" \
	> "$folder/moto.log" 2>&1 &
moto=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
	! grep -q '^ready ' "$folder/moto.log" || break
	sleep 1
done
key=$(sed -n 's/^ready //p' "$folder/moto.log")
[ -n "$key" ] || fail "moto does not start, see $folder/moto.log"
in_root "$full" '
venv/bin/python both.py
venv/bin/python full.py
venv/bin/kvarc session list --store "$URL"
venv/bin/kvarc session load chat/2 --store "$URL" -o loaded
venv/bin/kvarc pack --attach store -o x.kva stored.npz
venv/bin/kvarc unpack --attach back -o back.npz x.kva
cmp stored.npz back.npz
diff -r store back
venv/bin/kvarc pack --members -o y.kva deflated.npz
venv/bin/kvarc info y.kva | grep "layers.0.keys.npy"
venv/bin/kvarc session send chat --store store | venv/bin/kvarc session receive chat --store other
venv/bin/kvarc store verify --store other' \
	AWS_ACCESS_KEY_ID="${key% *}" AWS_SECRET_ACCESS_KEY="${key#* }" \
	URL="s3://bucket/wheel?endpoint=http://127.0.0.1:$port" HOME=/root
echo "check_wheel: passed"
