#!/usr/bin/env python3
"""bigram.py HELD_OUT TRAIN...: cross-entropy, in nats per byte, of HELD_OUT under an add-0.1 byte bigram
table counted on the TRAIN files (each real file once, HELD_OUT taken out), as a model should beat."""
import math
import os
import sys


def main():
    held, train = sys.argv[1], sys.argv[2:]
    seen = {os.path.realpath(held)}
    counts = [[0.1] * 256 for _ in range(256)]
    for path in train:
        if os.path.realpath(path) in seen or not os.path.isfile(path):
            continue
        seen.add(os.path.realpath(path))
        with open(path, "rb") as f:
            text = f.read()
        for a, b in zip(text, text[1:]):
            counts[a][b] += 1
    sums = [sum(row) for row in counts]
    with open(held, "rb") as f:
        text = f.read()
    nats = sum(math.log(sums[a] / counts[a][b]) for a, b in zip(text, text[1:]))
    print(f"{nats / (len(text) - 1):.4f}")


if __name__ == "__main__":
    main()
