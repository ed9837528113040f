# SPDX-License-Identifier: BSD-3-Clause
"""Known answers of what frames.md is built on: ChaCha20, Poly1305 and their
AEAD (RFC 8439), XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03), Argon2id
(RFC 9106), and the field and the matrix of PARITY.

Exit 0: all are right; 1: not.
"""

import itertools
import sys

sys.dont_write_bytecode = True

import argon2  # noqa: E402
import kvarc_parity as parity  # noqa: E402
import xchacha  # noqa: E402

TEXT = b"Ladies and Gentlemen of the class of '99: If I could offer you " \
    b"only one tip for the future, sunscreen would be it."
AD = bytes.fromhex("50515253c0c1c2c3c4c5c6c7")
KEY = bytes(range(0x80, 0xA0))


def known_answers():
    """(where it is from, what comes out, what must)"""
    yield "RFC 8439 2.3.2", xchacha.block(
        bytes(range(32)), 1, bytes.fromhex("000000090000004a00000000")), \
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e" \
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    yield "RFC 8439 2.5.2", xchacha.poly1305(
        bytes.fromhex("85d6be7857556d337f4452fe42d506a8"
                      "0103808afb0db2fd4abff6af4149f51b"),
        b"Cryptographic Forum Research Group"), \
        "a8061dc1305136c6c22b8baf0c0127a9"
    nonce = bytes.fromhex("070000004041424344454647")
    ciphertext = xchacha.chacha20(KEY, 1, nonce, TEXT)
    yield "RFC 8439 2.8.2", ciphertext[:16] + xchacha.tag_of(
        KEY, nonce, AD, ciphertext), \
        "d31a8d34648e60db7b86afbc53ef7ec21ae10b594f09e26a7e902ecbd0600691"
    yield "draft 2.2.1", xchacha.hchacha20(
        bytes(range(32)), bytes.fromhex("000000090000004a0000000031415927")), \
        "82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc"
    sealed = xchacha.seal(KEY, bytes(range(0x40, 0x58)), AD, TEXT)
    yield "draft A.3.1", sealed, \
        "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb" \
        "731c7f1b0b4aa6440bf3a82f4eda7e39ae64c6708c54c216cb96b72e1213b452" \
        "2f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b2383565d3fff9" \
        "21f9664c97637da9768812f615c68b13b52ec0875924c1c7987947deafd8780acf49"
    yield "unsealed", xchacha.unseal(
        KEY, bytes(range(0x40, 0x58)), AD, sealed), TEXT.hex()
    yield "RFC 9106 5.3", argon2.argon2id(
        b"\1" * 32, b"\2" * 16, 3, 32, 32, 4, b"\3" * 8, b"\4" * 12), \
        "0d640df58d78766c08c037a34a8b53c9d01ef0452d75b65eb52520e96b01e659"


def product(a, b):
    """In GF(2^8), bit by bit."""
    out = 0
    while b:
        out ^= a if b & 1 else 0
        a, b = a << 1 ^ (0x11D if a & 0x80 else 0), b >> 1
    return out


def wrong_of_parity():
    """The field, and that losses of every kind are solved."""
    for a, b in itertools.product(range(256), repeat=2):
        if parity.times(a, b) != product(a, b):
            yield "%d * %d" % (a, b)
    for k in (1, 2, 5, 17, 254):
        if any(parity.coefficient(k, 0, j) != 1 for j in range(k)):
            yield "row 0 of %d pieces" % k
    k, m = 6, 4
    data = [bytes((7 * j * i + j) % 256 for i in range(9)) for j in range(k)]
    rows = []
    for r in range(m):
        row = bytearray(9)
        for j in range(k):
            parity.add_scaled(row, parity.coefficient(k, r, j), data[j])
        rows.append(row)
    for n in range(1, m + 1):
        for lost in itertools.combinations(range(k), n):
            for chosen in itertools.combinations(range(m), n):
                values = [bytearray(rows[r]) for r in chosen]
                for j in set(range(k)) - set(lost):
                    for r, value in zip(chosen, values):
                        parity.add_scaled(
                            value, parity.coefficient(k, r, j), data[j])
                found = parity.solve([[parity.coefficient(k, r, j)
                                       for j in lost] for r in chosen],
                                     values)
                if [bytes(v) for v in found] != [data[j] for j in lost]:
                    yield "pieces %s by rows %s" % (lost, chosen)


def main():
    wrong = 0
    for name, found, want in known_answers():
        if found is None or found.hex() != want:
            print("%s differs" % name)
            wrong += 1
    for what in wrong_of_parity():
        print("parity: %s is wrong" % what)
        wrong += 1
    return 1 if wrong else 0


sys.exit(main())
