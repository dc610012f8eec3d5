#!/usr/bin/env python3
"""Gathers checkpoints by their manifests alone and compares them bit for bit.

An independent reader: it shares no code with the trainer.
  gather.py DIR            names, shapes and a digest of each logical tensor
  gather.py DIR_A DIR_B    exit 0 if all tensors are equal to the bit, else 1 and the differences
"""
import hashlib
import json
import math
import os
import struct
import sys

ITEM = {"F32": 4, "F64": 8, "BF16": 2, "F16": 2, "I32": 4, "I64": 8, "U8": 1}


class Checkpoint:
    def __init__(self, path):
        self.path = path
        with open(os.path.join(path, "manifest.json")) as f:
            self.manifest = json.load(f)
        self.files = {}

    def _data(self, index):
        """(bytes of the file's data section, its header) by safetensors' own layout."""
        if index not in self.files:
            entry = self.manifest["files"][index]
            with open(os.path.join(self.path, entry["name"]), "rb") as f:
                raw = f.read()
            if len(raw) != entry["bytes"]:
                raise ValueError(f"{entry['name']}: {len(raw)} bytes, manifest says {entry['bytes']}")
            (n,) = struct.unpack("<Q", raw[:8])
            self.files[index] = (raw[8 + n :], json.loads(raw[8 : 8 + n]))
        return self.files[index]

    def tensor(self, name):
        """(shape, bytes) of a logical tensor, row-major; every element exactly once."""
        t = self.manifest["tensors"][name]
        size = ITEM[t["dtype"]]
        rows, cols = (t["shape"] + [1])[:2]
        out = bytearray(rows * cols * size)
        seen = bytearray(rows * cols)
        for b in t["boxes"]:
            r0, c0 = (b["start"] + [0])[:2]
            nr, nc = (b["shape"] + [1])[:2]
            data, header = self._data(b["file"])
            key = f"{name}@{r0},{c0}"
            begin, end = header[key]["data_offsets"]
            if begin != b["offset"] or end - begin != nr * nc * size:
                raise ValueError(f"{key}: header and manifest differ")
            for r in range(nr):
                at = ((r0 + r) * cols + c0) * size
                out[at : at + nc * size] = data[begin + r * nc * size : begin + (r + 1) * nc * size]
                mark = (r0 + r) * cols + c0
                if any(seen[mark : mark + nc]):
                    raise ValueError(f"{name}: an element is stored twice")
                seen[mark : mark + nc] = b"\x01" * nc
        if not all(seen):
            raise ValueError(f"{name}: elements are missing")
        return t["shape"], bytes(out)

    def names(self):
        return sorted(self.manifest["tensors"])

    def floats(self, name):
        _, raw = self.tensor(name)
        return struct.unpack(f"<{len(raw) // 4}f", raw)


def newest(directory):
    """The newest committed checkpoint below a checkpoint.dir."""
    found = [d for d in os.listdir(directory) if d.startswith("step-") and "." not in d]
    if not found:
        raise FileNotFoundError(f"no checkpoint in {directory}")
    found.sort(key=lambda d: (int(d.split("-")[1]), int(d.split("-g")[1])))
    return os.path.join(directory, found[-1])


def differences(a, b):
    """Names whose bits differ, or that only one has."""
    names = set(a.names()) | set(b.names())
    bad = []
    for n in sorted(names):
        if n not in a.manifest["tensors"] or n not in b.manifest["tensors"] or a.tensor(n) != b.tensor(n):
            bad.append(n)
    return bad


def distance(a, b, name):
    """||a - b|| / ||b||."""
    x, y = a.floats(name), b.floats(name)
    d = math.sqrt(sum((p - q) ** 2 for p, q in zip(x, y)))
    n = math.sqrt(sum(q * q for q in y))
    return d / n if n else d


def main():
    if len(sys.argv) == 2:
        c = Checkpoint(sys.argv[1])
        for n in c.names():
            shape, raw = c.tensor(n)
            print(f"{hashlib.sha256(raw).hexdigest()[:16]} {shape} {n}")
        return 0
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    bad = differences(Checkpoint(sys.argv[1]), Checkpoint(sys.argv[2]))
    for n in bad:
        print(f"differs: {n}")
    print(f"{len(bad)} tensors differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
