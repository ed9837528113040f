# SPDX-License-Identifier: BSD-3-Clause
"""peers.py - nvCOMP's ANS on the numbers of gpu_speed -o: exponents alone, and bytes as they are

usage: peers.py RAW

Prints an object of JSON. Needs cupy and nvCOMP's package; without them it is skipped (77).
"""
import json
import sys

try:
    import cupy
    from nvidia import nvcomp
except ImportError as error:
    print(json.dumps({"skipped": str(error)}))
    sys.exit(77)

TIMES = 7


def timed(call):
    """The median of the milliseconds that the GPU takes, and the result."""
    seconds = []
    for _ in range(TIMES + 2):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        result = call()
        end.record()
        end.synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(begin, end))
    return sorted(seconds[2:])[TIMES // 2], result


def measure(numbers, bytes_of_cache):
    codec = nvcomp.Codec(algorithm="ANS", uncomp_chunk_size=1 << 16)
    encode_ms, encoded = timed(lambda: codec.encode(nvcomp.as_array(numbers)))
    decode_ms, decoded = timed(lambda: codec.decode(encoded))
    back, given = cupy.asarray(decoded).view(cupy.uint8), numbers.view(cupy.uint8)
    return {"same": bool((back.ravel() == given.ravel()).all()),
            "bytes": int(getattr(encoded, "buffer_size", encoded.size)),
            "encode_gbs": bytes_of_cache / encode_ms / 1e6,
            "decode_gbs": bytes_of_cache / decode_ms / 1e6}


def main():
    raw = cupy.fromfile(sys.argv[1], dtype=cupy.uint16)
    kinds = {"exponents": ((raw >> 7) & 255).astype(cupy.uint8), "bytes": raw.view(cupy.uint8)}
    results = {"nvcomp": getattr(nvcomp, "__version__", "?")}
    for name, numbers in kinds.items():
        try:
            results[name] = measure(numbers, raw.nbytes)
        except Exception as error:  # pylint: disable=broad-except
            results[name] = {"failed": repr(error)[:300]}
    print(json.dumps(results))


main()
