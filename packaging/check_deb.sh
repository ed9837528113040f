#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The packages of Debian on bare ones: check_deb.sh FOLDER [WORK] (as root, with debootstrap and the
# network). FOLDER has what packaging/build deb makes.
#
# In a Debian 12 of the smallest kind in WORK (a new folder): `apt install ./kvarc_*.deb` without
# what it recommends packs a slot, and says which package sessions need; with them, sessions work.
# In a second one all packages pass their tests (debian/tests), and are removed without a trace.
set -eu

packages=$(cd "${1:?the folder of the packages}" && pwd)
top=$(cd "$(dirname "$0")/.." && pwd)
work=${2:-$(mktemp -d)}
mkdir -p "$work"
work=$(cd "$work" && pwd)
fail() {
	echo "check_deb: $*" >&2
	exit 1
}
[ "$(id -u)" -eq 0 ] || fail "root is needed for a chroot"
trap 'umount "$work/one/proc" "$work/all/proc" 2> "$work/umount.log" || :' EXIT

if [ ! -e "$work/bare/ready" ]; then
	rm -rf "$work/bare"
	debootstrap --variant=minbase bookworm "$work/bare" \
		"${DEBIAN_MIRROR:-http://deb.debian.org/debian}" > "$work/debootstrap.log" 2>&1 ||
		fail "debootstrap failed, see $work/debootstrap.log"
	touch "$work/bare/ready"
fi
root() { # NAME
	rm -rf "${work:?}/$1"
	cp -a "$work/bare" "$work/$1"
	cp /etc/resolv.conf "$work/$1/etc"
	mkdir "$work/$1/packages" "$work/$1/source"
	cp "$packages"/*.deb "$work/$1/packages"
	cp -R "$top/packaging/debian/tests" "$work/$1/source/debian-tests"
	mkdir -p "$work/$1/source/tests/data" "$work/$1/source/tests/api"
	cp -R "$top/tests/data/sample" "$work/$1/source/tests/data"
	cp "$top/tests/api/consumer.c" "$work/$1/source/tests/api"
	mount -t proc proc "$work/$1/proc"
}
inside() { # NAME COMMANDS
	env -i PATH="$PATH" HOME=/root DEBIAN_FRONTEND=noninteractive chroot "$work/$1" /bin/sh -eu -c "$2"
}

root one
inside one 'apt-get -q update
apt-get -q -y --no-install-recommends install ./packages/kvarc_*.deb' > "$work/one.log" 2>&1 ||
	fail "the command cannot be installed, see $work/one.log"
inside one 'cd /tmp
dpkg-query -W > packages
! grep libsqlite3 packages
slot=/source/tests/data/sample/smollm2-135m-f16-160.slot
kvarc --version
kvarc pack -o a.kva "$slot"
kvarc unpack -q -o back a.kva
cmp back "$slot"
! kvarc session save chat "$slot" 2> lines
cat lines
grep -q "(Debian: libsqlite3-0)" lines
apt-get -q -y install libsqlite3-0 > log 2>&1
kvarc session save chat "$slot"
kvarc session load -q chat -o again
cmp again "$slot"' || fail "the command alone does not work"

root all
inside all 'apt-get -q update
apt-get -q -y install ./packages/*.deb gcc libc6-dev pkg-config python3-all' > "$work/all.log" 2>&1 ||
	fail "the packages cannot be installed, see $work/all.log"
for test in command library python; do
	inside all "mkdir /tmp/$test
cd /source
AUTOPKGTEST_TMP=/tmp/$test sh -eu debian-tests/$test" || fail "test $test"
done
inside all 'apt-get -q -y purge $(dpkg-query -W -f "\${Package}\n" "*kvarc*") > log 2>&1
! find /usr /etc /var/lib/dpkg/info -name "*kvarc*" | grep .' || fail "something is left"
echo "check_deb: passed"
