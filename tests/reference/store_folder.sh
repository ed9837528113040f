#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# store_folder.sh - the reference decoder reads from the folder of a store what `kvarc session save`
# has put there (spec/store.md), byte for byte, and gives no bytes where a part of it is damaged.
# In the build folder; KVARC is the command (./kvarc).
set -u
srcdir=${srcdir:-.}
. "$srcdir/tests/libraries_lock.sh"
libraries_lock -s
case ${KVARC:=./kvarc} in /*) ;; *) KVARC=$PWD/$KVARC ;; esac
case $srcdir in /*) ;; *) srcdir=$PWD/$srcdir ;; esac
python=${PYTHON3:-}
sample=$srcdir/tests/data/sample
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 99
HOME=$tmp XDG_CACHE_HOME=$tmp/cache KVARC_CACHE=off
export HOME XDG_CACHE_HOME KVARC_CACHE
unset KVARC_STORE KVARC_MODEL_PATH KVARC_PROFILE_PATH

if [ -z "$python" ] || ! command -v zstd > /dev/null; then
	echo "the reference decoder needs python3 and zstd"
	exit 77
fi
passed=0 wrong=0
fail() {
	echo "FAIL: $*"
	wrong=$((wrong + 1))
}
save() { # SESSION FILE [OPTION...]
	"$KVARC" session save "$@" -q --store A 2> err || {
		cat err
		exit 99
	}
}
read_back() { # FOLDER SESSION [OPTION...]
	rm -rf out
	"$python" "$srcdir/spec/reference/kvarc_store_folder.py" "$@" -o out > said 2>&1
}
same() { # FILE FOLDER SESSION [OPTION...]
	file=$1
	shift
	if read_back "$@" && cmp -s out/item-0 "$file"; then
		passed=$((passed + 1))
	else
		fail "$*: not $file: $(cat said)"
	fi
}
refused() { # STATUS ANSWER FOLDER SESSION [OPTION...]
	status=$1 answer=$2
	shift 2
	read_back "$@"
	rc=$?
	if [ $rc -eq "$status" ] && [ ! -e out ] && grep -q "^$answer: " said; then
		passed=$((passed + 1))
	else
		fail "$*: exit $rc in place of $answer: $(cat said)"
	fi
}
pack_of() { # FOLDER VERSION: the path of its archive
	id=$(sed -n 's/^pack=//p' "$1/sessions/$2")
	echo "$1/packs/$(echo "$id" | cut -c 1-2)/$id.kva"
}
flip() { # FILE: changes a byte in its middle
	"$python" - "$1" << 'END'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(0, 2)
    f.seek(f.tell() // 2)
    byte = f.read(1)
    f.seek(-1, 1)
    f.write(bytes([byte[0] ^ 1]))
END
}

# A layer of the sample: its first tokens, also with another first element, or without token ids;
# and 520 tokens in three segments, of which another file has the first.
"$KVARC" pack -q -o slot.kva "$sample/smollm2-135m-f16-160.slot" || exit 99
"$KVARC" unpack -q --to llama --tokens 0-3 -o slot slot.kva || exit 99
"$KVARC" cut -q --layers 0-0 -o layer.kva slot.kva || exit 99
for n in 36 48 49 56 64; do
	"$KVARC" unpack -q --to safetensors --tokens "0-$((n - 1))" -o t$n layer.kva || exit 99
done
"$python" - << 'END' || exit 99
import json, struct

def put(path, tensors):
    """tensors: name, dtype, shape, bytes"""
    head, data = {}, b""
    for name, dtype, shape, raw in tensors:
        head[name] = {"dtype": dtype, "shape": shape,
                      "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(head).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + data)

def get(path):
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    return [(name, t["dtype"], t["shape"], data[slice(*t["data_offsets"])])
            for name, t in head.items() if name != "__metadata__"]

put("bare", [t for t in get("t48") if t[0] != "tokens"])
for n in 48, 64:
    put("other%d" % n, [(*t, raw if t[0] == "tokens" else bytes([raw[0] ^ 1]) + raw[1:])
                        for *t, raw in get("t%d" % n)])
for path, ids in ("long", [*range(520)]), ("short", [*range(256), 999]):
    put(path, [("tokens", "I32", [len(ids)], struct.pack("<%di" % len(ids), *ids))]
        + [("layers.0." + name, "F16", [1, len(ids), 8],
            b"".join(struct.pack("<8e", *((id * k % 97) / 97 for k in range(1, 9)))
                     for id in ids)) for name in ("key", "value")])
END

"$KVARC" session save slot slot -q --store A 2> err || {
	cat err
	grep -q 'SQLite' err && exit 77
	exit 99
}
save chat/1 t36
save chat/1 t48 --label 'check=100 %'
save chat/1 t49 -0
save chat/1 t64
save half t56
"$KVARC" session fork chat/1@2 '42/.x y' -q --store A || exit 99
save chat/1 t48 --namespace 12
save chat/1 t64 --namespace 12
# the same chain values, other elements
save other other48 --namespace 12
save other other64 --namespace 12
save bare bare
save bare/2 bare --label twice
save bare bare --namespace 12
save long long
save short short
save notes "$srcdir/NEWS" --opaque
save fitted t36 -2 --profile "$sample/smollm2-135m-level2.kvp" --namespace 'a profile/é'
"$KVARC" keygen key || exit 99
echo "key $(cat key)" > key.txt
save secret t48 --encrypt --key-file key
save secret t64 --key-file key
save veiled bare --encrypt --key-file key
save veiled/2 bare --encrypt --key-file key
# Names that are of no session, and of no archive.
mkdir -p A/packs/00 A/blocks/00 A/service
for name in sessions/chat/%31/007 sessions/chat/%31/9.bak sessions/chat/%31/.12 \
	sessions/chat/%31/=99 packs/00/readme blocks/00/00.kva service/keeps; do
	echo 1 > "A/$name"
done

# The index is a cache: nothing needs it.
rm A/index.sqlite
for i in 1:t36 2:t48 3:t49 4:t64; do
	same ${i#*:} A "chat/1@${i%:*}"
done
same t64 A chat/1
same slot A slot
same t56 A half
same t48 A '42/.x y'
same other64 A other --namespace 12
same t48 A chat/1@1 --namespace 12
same t64 A chat/1 --namespace 12
same bare A bare
same bare A bare/2
same long A long
same short A short
same "$srcdir/NEWS" A notes
same t36 A fitted --namespace 'a profile/é' --profile "$sample/smollm2-135m-level2.kvp"
refused 4 predictor A fitted --namespace 'a profile/é'
same t48 A secret@1 --key key.txt
same t64 A secret --key key.txt
same bare A veiled/2 --key key.txt
refused 6 key A secret
refused 7 store A nobody
refused 7 store A chat/1 --namespace other
refused 7 store A chat/1@5

# What shares no segment cannot have been a test of that.
for version in chat/%31/4 half/1 bare/%32/1 =%312/chat/%31/2 =%312/other/2 short/1 secret/2 \
	veiled/%32/1; do
	"$KVARC" info --key-file key "$(pack_of A "$version")" > said 2>&1
	grep -q "tokens lie in a store" said || fail "$version shares nothing: $(cat said)"
done

# Damage: the version's own archive, one that it needs, its manifest.
cp -R A B
flip "$(pack_of B chat/%31/4)"
refused 1 data B chat/1
same t49 B chat/1@3
flip "$(pack_of B chat/%31/1)"
refused 7 store B chat/1@2
same t64 B chat/1 --namespace 12
# what is damaged is found, and another archive has it
"$KVARC" store verify -q --store B > said 2>&1
"$KVARC" session save again t36 -q --store B || exit 99
same t48 B chat/1@2
cp "$(pack_of A chat/%31/2)" "$(pack_of B half/1)"
refused 1 data B half
cp "$(pack_of A secret/1)" "$(pack_of B secret/2)"
refused 1 data B secret --key key.txt
# what has no key, and what another namespace has, is not taken
rm "$(pack_of B veiled/1)"
refused 7 store B veiled/2 --key key.txt
rm "$(pack_of B bare/1)"
refused 7 store B bare
refused 7 store B bare/2
sed 's/^tokens=4$/tokens=5/' A/sessions/slot/1 > B/sessions/slot/1
refused 1 data B slot
sed "s/^pack=.*/pack=$(sed -n 's/^pack=//p' A/sessions/long/1)/" A/sessions/secret/2 |
	sed '$d' > B/sessions/secret/2
"$python" - "$srcdir/spec/reference" << 'END'
import sys
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
from xxh3 import h128
for path, later in ("B/sessions/secret/2", 0), ("B/sessions/notes/1", 1):
    with open(path, "rb") as f:
        text = f.read()
    if later:
        text = text[:-39].replace(b"session=1", b"session=2")
    with open(path, "wb") as f:
        f.write(text + b"check=%s\n" % h128(text).hex().encode())
END
refused 7 store B secret --key key.txt
refused 3 unsupported B notes

# gc writes again what others need of archives that no manifest names.
"$KVARC" session rm chat/1 -q --store A && "$KVARC" session rm long -q --store A &&
	"$KVARC" store gc --grace 0 --json --store A > json ||
	exit 99
grep -q '"repacked":[1-9]' json || fail "nothing was repacked: $(cat json)"
same t56 A half
same t48 A '42/.x y'
same short A short
echo "$passed answers as spec/store.md says, $wrong not"
[ $wrong -eq 0 ]
