# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# What scripts share that run the command of the build folder.
#
# libraries_lock MODE: -s while a test runs the command of the build folder, -x while one installs,
# for which libtool links libraries of the command again, in place. Held until descriptor 9 is
# closed or the script ends.
libraries_lock() {
	exec 9>> libraries.lock
	! command -v flock > /dev/null || flock "$1" 9
}
