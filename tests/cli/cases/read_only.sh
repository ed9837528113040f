# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# A folder that may not be written to.
command -v setpriv > /dev/null || skip "setpriv is missing"
[ "$(id -u)" = 0 ] || skip "not root"
setpriv --reuid 65534 --clear-groups cat "$SLOT" > slot.bin 2> /dev/null ||
	skip "the sample is not readable for others"
setpriv --reuid 65534 --clear-groups "$KVARC" --version > version 2>&1 ||
	skip "the command is not readable for others"
rm version
mkdir closed
chmod 755 . closed
cp slot.bin closed
chmod 555 closed
setpriv --reuid 65534 --clear-groups "$KVARC" pack closed/slot.bin
echo $?
cp slot.bin private
chmod 600 private
setpriv --reuid 65534 --clear-groups "$KVARC" pack private
echo $?
setpriv --reuid 65534 --clear-groups "$KVARC" append closed/a.kva slot.bin
echo $?
names
