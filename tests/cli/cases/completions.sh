# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The committed files are what the command prints; shells can read them.
kv --completions bash | cmp - "$top/completions/kvarc.bash"
kv --completions zsh | cmp - "$top/completions/_kvarc"
kv --completions fish | cmp - "$top/completions/kvarc.fish"
bash=$(command -v bash) || bash=
if [ -n "$bash" ]; then
	"$bash" -n "$top/completions/kvarc.bash"
	"$bash" -c '. "$1"
		try() {
			COMP_WORDS=("$@")
			COMP_CWORD=$(($# - 1))
			_kvarc
			echo "$*: ${COMPREPLY[*]}" >&2
		}
		try kvarc u
		try kvarc pack --st
		try kvarc pack --isa av
		try kvarc info --pl
		try kvarc help c
		try kvarc session l
		try kvarc store g' bash "$top/completions/kvarc.bash" 2>&1
	# the names of sessions; one that is a command is not run
	cat > kvarc <<-'END'
		#!/bin/sh
		echo "     1  2026-09-21 14:13        160 tokens     3.7 MB  chat/42"
		echo '     1  2026-09-21 14:13        160 tokens     3.7 MB  $(touch run)'
	END
	chmod +x kvarc
	for begin in '' ch; do
		PATH=$PWD:$PATH "$bash" -c '. "$1"
			COMP_WORDS=(kvarc session load "$2")
			COMP_CWORD=3
			_kvarc
			printf "%s\n" "${COMPREPLY[@]}"' bash "$top/completions/kvarc.bash" "$begin"
	done
	[ ! -e run ] || echo "the name of a session was run"
else
	skip "bash is missing"
fi
if command -v zsh > /dev/null; then zsh -n "$top/completions/_kvarc"; fi
if command -v fish > /dev/null; then fish -n "$top/completions/kvarc.fish"; fi
