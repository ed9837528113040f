# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What .ci/run and .ci/long share: steps and their count, missing packages, builds.
#
# Sourced in the top folder of the repository. Build folders, logs and emulators are
# in $work ($CI_WORK, or build/ci).
set -eu

top=$PWD
jobs=$(nproc)
work=${CI_WORK:-$top/build/ci}
passed=0
failed=0
skipped=0
export LC_ALL=C
mkdir -p "$work"
: > "$work/all-skips"

say() { printf '\n=== %s (%d s)\n' "$*" "$SECONDS"; }

# Sets cpu to the processor seconds, user and system, of all commands that have ended.
measure_cpu() {
	# not in a pipe: a subshell has its own times
	times > "$work/times"
	cpu=$(awk 'NR == 2 { gsub("[ms]", " "); print int($1 * 60 + $2 + $3 * 60 + $4) }' \
		"$work/times")
}

# Counts the results of tests in FOLDER that are newer than $work/mark, and names what they skip.
count() { # FOLDER
	local trs good=0 bad=0
	find "$1" -name '*.trs' -newer "$work/mark" | sort | sed 's|trs$|log|' |
		xargs -r "$top/tests/skips.sh" | sed "s|^  $top/|  |" > "$work/skips"
	grep '^  ' "$work/skips" >> "$work/all-skips" || :
	! grep -q '^  ' "$work/skips" || cat "$work/skips"
	while IFS= read -r -d '' trs; do
		case $(sed -n 's/^:global-test-result: //p' "$trs") in
		PASS | XFAIL) good=$((good + 1)) ;;
		SKIP) ;; # named above
		FAIL | XPASS | ERROR)
			bad=$((bad + 1))
			echo "failed: ${trs%.trs}"
			tail -n 15 "${trs%.trs}.log"
			;;
		esac
	done < <(find "$1" -name '*.trs' -newer "$work/mark" -print0)
	passed=$((passed + good))
	failed=$((failed + bad))
	counted_bad=$bad
}

# Runs a step, which passes or fails as a whole, and counts its tests in FOLDER.
step() { # NAME FOLDER COMMAND...
	local name=$1 folder=$2 status=0 start=$SECONDS cpu cpu_start
	shift 2
	say "$name"
	measure_cpu
	cpu_start=$cpu
	touch -d '1 second ago' "$work/mark"
	# not `|| status=`: that would switch off -e inside
	set +e
	(
		set -e
		"$@"
	) > "$work/log" 2>&1
	status=$?
	set -e
	counted_bad=0
	[ ! -d "$folder" ] || count "$folder"
	if [ "$status" -eq 0 ] && [ "$counted_bad" -eq 0 ]; then
		passed=$((passed + 1))
		tail -n 3 "$work/log"
	else
		failed=$((failed + 1))
		echo "FAILED: $name, exit status $status"
		grep -vE '^  (CC|CCLD|GEN) ' "$work/log" | tail -n 40
	fi
	measure_cpu
	echo "--- $name: $((SECONDS - start)) s, processor $((cpu - cpu_start)) s"
}

# Runs a step whose PACKAGES, a function, can be installed; says loudly when they cannot.
step_with() { # PACKAGES NAME FOLDER COMMAND...
	local packages=$1
	shift
	if "$packages" > "$work/packages.log" 2>&1; then
		step "$@"
	else
		skipped=$((skipped + 1))
		say "SKIPPED: $1: its packages cannot be installed"
		tail -n 3 "$work/packages.log"
	fi
}

# Prints the sums and ends; the last line is read by programs.
finish() {
	local cpu
	say "done"
	measure_cpu
	echo "processor: $cpu s"
	[ "$skipped" -eq 0 ] || echo "SKIPPED steps: $skipped, see above"
	echo "skipped in all tests: $(wc -l < "$work/all-skips")"
	cat "$work/all-skips"
	echo "$passed passed, $failed failed"
	[ "$failed" -eq 0 ]
}

install_missing() { # COMMAND-OR-FILE PACKAGE...
	local have=$1
	shift
	if command -v "$have" > /dev/null || [ -e "$have" ]; then
		return 0
	fi
	[ "$(id -u)" -eq 0 ] || { echo "$have is missing (Debian: $*)"; return 1; }
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
}

configure() { # FOLDER ARGUMENTS...
	mkdir -p "$work/$1"
	cd "$work/$1"
	shift
	"$top/configure" -q "$@"
}

# Names of tests, as make check knows them. Which unit tests there are depends on the
# libraries of a build: make has the list.
unit_tests() { echo '$(unit_tests)'; }
replays() { (cd "$top" && printf '%s\n' fuzz/target_*.c | sed 's|target_\(.*\)\.c|replay_\1|'); }

# Builds and runs tests, and no other program but the command.
check_some() { # TEST...
	local programs
	programs=$(printf '%s\n' "$@" | grep -v '\.sh$')
	case " $* " in *" tests/vectors.sh "*) programs="$programs tests/reference/digest" ;; esac
	case " $* " in *" tests/cli/run.sh "*)
		programs="$programs tests/cli/make_named tests/cli/make_session tests/cli/map_while"
		programs="$programs tests/cli/see_verify" ;;
	esac
	case " $* " in *" tests/crash/states.sh "*) programs="$programs tests/crash/crash_states" ;; esac
	case " $* " in *" tests/gpu/chunks.sh "*)
		programs="$programs tests/gpu/check_chunks tests/reference/generate" ;;
	esac
	# shellcheck disable=SC2086 # words
	make -s -j"$jobs" check TESTS="$*" check_LTLIBRARIES= \
		check_PROGRAMS="$(echo $programs)" \
		${emulator:+LOG_COMPILER="$emulator" PYTHON3=}
}

# Unit tests that take more than 10 s under the sanitizers: left to the night.
slow_sanitized='%/test_store_repack %/test_salvage %/test_stream_failures %/test_stream_parts
	%/test_train_model %/test_append_import %/test_requests %/test_store_keys
	%/test_stored_files %/test_token_blind %/test_import %/test_store_damage
	%/test_store_races %/test_store_laws'
asan() { # quick|all
	local flags="-O1 -gline-tables-only -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
	configure asan --enable-werror --disable-shared CC=clang CXX=clang++ \
		CFLAGS="$flags" CXXFLAGS="$flags"
	local tests step=5 shells="tests/store_suite.sh tests/store_export.sh tests/attach.sh"
	tests=$(unit_tests)
	if [ "$1" = all ]; then
		shells="tests/cli/run.sh $shells tests/crash/states.sh tests/crash/kills.sh"
	else
		tests="\$(filter-out $slow_sanitized,$tests)" # for make
		step=10
	fi
	# The build of quickstart replays all inputs, and the fuzzing of .ci/long begins with all of
	# them; the long tests come first, so that none ends alone.
	# shellcheck disable=SC2046,SC2086
	FUZZ_STEP=$step SEEDS=20 CRASH_STATES=300 KILLS=20 \
		check_some $(replays) $shells $tests tests/gpu/chunks.sh
}
abi_packages() { install_missing abidw abigail-tools; }
musl_packages() { install_missing musl-gcc musl-tools; }
clang_packages() { install_missing clang clang libclang-rt-14-dev; }

# Sets what configure needs to compile the kernels of gpu/; nvcc cannot be installed here.
gpu_tools() {
	local tools="$work/gpu-tools"
	command -v nvcc || [ -x /usr/local/cuda/bin/nvcc ] || { echo "no nvcc (CUDA 13)"; return 1; }
	command -v nvdisasm || [ -x /usr/local/cuda/bin/nvdisasm ] ||
		[ -n "$(find "$tools" -name nvdisasm 2> /dev/null)" ] || {
		python3 -m venv "$tools"
		"$tools/bin/pip" install -q nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm
	}
}
# Compiles them for some architectures and compares their instructions.
gpu_kernels() { # ARCHITECTURE...
	local tools
	tools=$(find "$work/gpu-tools" -name cuobjdump -type f 2> /dev/null | head -n 1)
	# cuobjdump runs nvdisasm, which is beside it.
	export PATH="$PATH:/usr/local/cuda/bin${tools:+:${tools%/*}}"
	srcdir=$top gpu/check_gpu.sh "$@"
}

# A compiler and libraries for the other architecture, and what runs its programs.
aarch64_packages() {
	local have=/usr/lib/aarch64-linux-gnu/pkgconfig/libsodium.pc
	[ -e "$have" ] || [ "$(id -u)" -ne 0 ] || dpkg --add-architecture arm64
	install_missing qemu-aarch64-static qemu-user-static &&
		install_missing /usr/aarch64-linux-gnu/lib/libc.a gcc-aarch64-linux-gnu \
			libc6-dev-arm64-cross &&
		install_missing "$have" libxxhash-dev:arm64 libsodium-dev:arm64 \
			libzstd-dev:arm64 libcmocka-dev:arm64
}

# Makes commands in the current folder that run its programs by QEMU, words: ./run-digest and
# ./run-kvarc, and ./emulator, which runs the test that it is given: scripts as they are.
emulators() { # QEMU
	printf '#!/bin/sh\nexec %s "%s" "$@"\n' "$1" "$PWD/tests/reference/digest" > run-digest
	printf '#!/bin/sh\nexec %s "%s" "$@"\n' "$1" "$PWD/kvarc" > run-kvarc
	printf '#!/bin/sh\ncase $1 in *.sh) exec sh "$@" ;; esac\nexec %s "$@"\n' "$1" > emulator
	chmod +x run-digest run-kvarc emulator
	export DIGEST=./run-digest KVARC=./run-kvarc
}

# Runs tests in a build for aarch64, on a processor that has all extensions.
aarch64() { # TEST...
	local emulator=./emulator
	export QEMU_CPU=max
	configure aarch64 --host=aarch64-linux-gnu --enable-werror --disable-shared \
		--without-libarchive --without-jansson --without-isal \
		PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig
	emulators qemu-aarch64-static
	check_some "$@"
	# the kernels of the newest and of the oldest processor are the ones that run
	qemu-aarch64-static tests/unit/test_self_test > self_test
	grep neondot: self_test
	QEMU_CPU=cortex-a53 qemu-aarch64-static tests/unit/test_matmul
}

# A real server saves and restores slots: $1 is quick or all.
engines() { # quick|all
	python3 -c 'import ensurepip, venv' 2> /dev/null ||
		install_missing /nonexistent python3-venv
	KV_ENGINES=$1 make -s -C "$top/build" check-engines
}

# Runs a step that prints "WORD: N passed, N failed", and counts them.
step_counts() { # WORD NAME COMMAND...
	local word=$1 name=$2 good bad
	shift 2
	step "$name" /nonexistent "$@"
	read -r good bad < <(sed -n "s/^$word: \([0-9]*\) passed, \([0-9]*\) failed\$/\1 \2/p" \
		"$work/log"; echo 0 0)
	passed=$((passed + good))
	failed=$((failed + bad))
	sed -n "s|^skip \(.*: .*\)|  $word: \1|p" "$work/log" | tee -a "$work/all-skips"
}
step_engines() { # quick|all
	step_counts engines "real server, $1" engines "$1"
}

# Stores in Redis and, with all, in moto's S3 server.
services() { # quick|all
	install_missing "$(command -v redis-server || echo /nonexistent)" redis-server
	[ "$1" = quick ] || python3 -c 'import ensurepip, venv' 2> /dev/null ||
		install_missing /nonexistent python3-venv
	cd "$top/build"
	make -s -j"$jobs" tests/unit/test_backends tests/unit/test_blocks
	srcdir=$top "$top/tests/store_export.sh"
	KV_SERVICES=$1 "$top/tests/store_services.sh" "$work/services"
}
step_services() { # quick|all
	step_counts services "stores in services, $1" services "$1"
}

# The Python package against the build of quickstart.
python_tests() {
	python3 - <<-'END' 2> /dev/null || install_missing /nonexistent python3-venv python3-dev
		import ensurepip, os, sysconfig, venv
		assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
	END
	make -s -C "$top/build" check-python
}
step_python() { step_counts python "Python package" python_tests; }
