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
# find_program GIVEN PROGRAM: sets $program: GIVEN, if it is not empty; else the program of the build
# folder, without the script of libtool, which takes longer than most runs of the command.
find_program() {
	program=${1:-$2}
	libtool_program=${2%/*}/.libs/${2##*/}
	if [ -n "$1" ] || [ ! -x "$libtool_program" ] || [ ! -d .libs ]; then
		return 0
	fi
	program=$libtool_program
	case :${LD_LIBRARY_PATH-}: in
	*:"$PWD/.libs":*) ;;
	*)
		LD_LIBRARY_PATH=$PWD/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
		export LD_LIBRARY_PATH
		;;
	esac
}
