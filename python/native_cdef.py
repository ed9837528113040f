# SPDX-License-Identifier: BSD-3-Clause
"""The declarations of the C library for cffi, from its public headers."""
import os
import re

# In the order in which they need each other.
HEADERS = ("base", "geometry", "io", "keys", "sources", "profile", "predictor", "lossy", "stored",
           "repair", "writer", "reader", "file", "canary", "train", "store", "blocks", "device")

# Calls of the library into Python; void pointers are handles of cffi unless said otherwise.
CALLBACKS = """
extern "Python" {
    int64_t kvpy_read(void *, void *, size_t, uint64_t);
    int kvpy_read_ranges(void *, const kvarc_byte_range *, size_t);
    int kvpy_write(void *, const void *, size_t, uint64_t);
    int kvpy_flush(void *);
    int kvpy_truncate(void *, uint64_t);
    int kvpy_progress(void *, uint64_t, uint64_t);
    int kvpy_fetch(void *, uint32_t, uint32_t, uint32_t, uint64_t, uint32_t, void *);
    const kvarc_profile *kvpy_find_profile(void *, const uint8_t *, const char *);
    int kvpy_item_open(void *, const kvarc_item *, kvarc_sink *);
    void kvpy_damage(void *, const kvarc_damage *);
    int kvpy_version(void *, const kvarc_session_version *);
    int kvpy_pair(void *, const char *, const char *);
    int kvpy_found(void *, const kvarc_found *);
    void kvpy_line(void *, const char *);
    int kvpy_block(void *, const kvarc_block *);
    int kvpy_external_open(void *, void **);
    void kvpy_external_close(void *);
    int kvpy_external_segment(void *, const int32_t *, const int32_t *, size_t);
    int kvpy_external_predict(void *, uint32_t, float *, float *);
    int kvpy_external_advance(void *, uint32_t, const float *, const float *);
    int kvpy_external_restart(void *);
}
"""

_INTEGER = re.compile(r"0[xX][0-9a-fA-F]+[uUlL]*|[0-9]+[uUlL]*")


def _constants(text):
    """Constants of a header: literal ones as they are, others for the compiler to find out."""
    for name, value in re.findall(r"^#define (KVARC_[A-Z0-9_]+)[ \t]+(\S[^\n\\]*)$", text, re.M):
        value = value.strip().strip("()")
        if _INTEGER.fullmatch(value):
            yield f"#define {name} {value}"
        elif value in ("UINT64_MAX", "UINT32_MAX"):
            yield f"#define {name} ..."


def _declarations(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S).replace("\\\n", " ")
    text = re.sub(r"^#ifdef __cplusplus$.*?^#endif$", "", text, flags=re.S | re.M)
    text = re.sub(r"^#if defined\(__GNUC__\)$.*?^#endif$", "", text, flags=re.S | re.M)
    constants = list(_constants(text))
    text = re.sub(r"^#[^\n]*$", "", text, flags=re.M)
    text = re.sub(r"\bKVARC_(API|MUST_CHECK)\b", "", text)
    text = re.sub(r"\n\s*\n+", "\n", text)
    return "\n".join(constants) + "\n" + text


def declarations(include):
    """All of them, for ffi.cdef. include: the folder of kvarc.h."""
    parts = [_declarations(os.path.join(include, "kvarc", name + ".h")) for name in HEADERS]
    return "\n".join(parts) + CALLBACKS + "static const char *const KVPY_PROFILE_DIR;\n"
