# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Each of these gets one line that says what to do.
kv
kv pak x
kv frobnicate
kv -k x
kv --level 1 x
kv pack --leve 1 x
kv pack --levle=1 x
kv pack --jsn x
kv pack --frobnicate x
kv pack --plot x.svg x
kv pack -Z x
kv pack -T
kv pack --threads
kv pack -T many x
kv pack --threads= x
kv pack --force=yes x
kv pack --level two x
kv pack --isa mmx x
kv pack -M 12Q x
kv pack -M 0 x
kv pack ''
kv unpack --to pdf x
kv unpack --tokens 5-3 x
kv unpack --tokens 0-3 x
kv cut --layers 99999999999999999999 x
kv cut x
kv cut a b -o c
kv info --identity model x
kv help pac
kv --completions csh
