# SPDX-License-Identifier: BSD-3-Clause
"""XChaCha20-Poly1305 in plain Python: RFC 8439 (ChaCha20, Poly1305, AEAD) and
draft-irtf-cfrg-xchacha-03 (HChaCha20), as crypto_aead_xchacha20poly1305_ietf of
libsodium. To be read and compared with: slow, and not of constant time.
"""

import hmac
import struct

KEY_BYTES, NONCE_BYTES, TAG_BYTES = 32, 24, 16
CONSTANTS = struct.unpack("<4I", b"expand 32-byte k")
# Columns, then diagonals of the 4 x 4 state.
ROUNDS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
          (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))


def permuted(state):
    """Twenty rounds."""
    x = list(state)
    for _ in range(10):
        for a, b, c, d in ROUNDS:
            for first, second in ((16, 12), (8, 7)):
                x[a] = (x[a] + x[b]) & 0xFFFFFFFF
                v = x[d] ^ x[a]
                x[d] = (v << first | v >> 32 - first) & 0xFFFFFFFF
                x[c] = (x[c] + x[d]) & 0xFFFFFFFF
                v = x[b] ^ x[c]
                x[b] = (v << second | v >> 32 - second) & 0xFFFFFFFF
    return x


def block(key, counter, nonce):
    """RFC 8439 2.3: 64 bytes of the key stream; nonce: 12 bytes."""
    state = CONSTANTS + struct.unpack("<8I", key) + (counter,) \
        + struct.unpack("<3I", nonce)
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in
                                 zip(state, permuted(state))))


def chacha20(key, counter, nonce, data):
    """RFC 8439 2.4: encrypts and decrypts."""
    out = b""
    for at in range(0, len(data), 64):
        part = data[at:at + 64]
        stream = block(key, counter + at // 64, nonce)
        out += bytes(a ^ b for a, b in zip(part, stream))
    return out


def hchacha20(key, nonce):
    """Draft 2.2: a key from the first 16 bytes of a nonce."""
    x = permuted(CONSTANTS + struct.unpack("<8I", key)
                 + struct.unpack("<4I", nonce))
    return struct.pack("<8I", *(x[:4] + x[12:]))


def poly1305(key, data):
    """RFC 8439 2.5."""
    r = int.from_bytes(key[:16], "little") \
        & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    tag = 0
    for at in range(0, len(data), 16):
        n = int.from_bytes(data[at:at + 16] + b"\1", "little")
        tag = (tag + n) * r % ((1 << 130) - 5)
    tag += int.from_bytes(key[16:], "little")
    return (tag & (1 << 128) - 1).to_bytes(16, "little")


def tag_of(key, nonce, ad, ciphertext):
    """RFC 8439 2.8."""
    data = ad + bytes(-len(ad) % 16) + ciphertext \
        + bytes(-len(ciphertext) % 16) \
        + struct.pack("<QQ", len(ad), len(ciphertext))
    return poly1305(block(key, 0, nonce)[:32], data)


def parts(key, nonce):
    """Draft 2.3: the key and the nonce of ChaCha20."""
    assert len(key) == KEY_BYTES and len(nonce) == NONCE_BYTES
    return hchacha20(key, nonce[:16]), bytes(4) + nonce[16:]


def seal(key, nonce, ad, plaintext):
    """The ciphertext, and the tag behind it."""
    key, nonce = parts(key, nonce)
    ciphertext = chacha20(key, 1, nonce, plaintext)
    return ciphertext + tag_of(key, nonce, ad, ciphertext)


def unseal(key, nonce, ad, sealed):
    """The plaintext; None when the tag is another one."""
    key, nonce = parts(key, nonce)
    ciphertext, tag = sealed[:-TAG_BYTES], sealed[-TAG_BYTES:]
    if not hmac.compare_digest(tag_of(key, nonce, ad, ciphertext), tag):
        return None
    return chacha20(key, 1, nonce, ciphertext)
