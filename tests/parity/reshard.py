#!/usr/bin/env python3
"""A checkpoint of any layout loads into any other, optimizer included, to the bit.

A run of layout A ends at step 3.  A run of layout B over a copy of its checkpoints has nothing left to
train; it loads the state and, since the layout differs, saves it once more in its own.  gather.py, which
shares no code with the loader, compares the two.  Prints TAP."""
import itertools
import os
import random
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
from gather import Checkpoint, differences, newest
from runs import GPT2, LLAMA, Space, Tap

LAYOUTS = [dict(), dict(data=2), dict(data=4), dict(pipeline=2), dict(pipeline=4), dict(tensor=2),
           dict(tensor=4), dict(data=2, tensor=2), dict(data=2, pipeline=2),
           dict(pipeline=2, tensor=2), dict(data=2, pipeline=2, tensor=2)]


def main():
    count = int(os.environ.get("DSLAUNCH_PAIRS", "30"))
    tap, space = Tap(), Space()
    rng = random.Random(int(os.environ.get("DSLAUNCH_SEED", "1")))
    pairs = [(m, a, b) for m in (LLAMA, GPT2) for a, b in itertools.permutations(LAYOUTS, 2)]
    saved = {}
    for model, a, b in rng.sample(pairs, count):
        key = (model["arch"], str(a))
        if key not in saved:
            saved[key] = space.train(a, model=model, steps=3)
        source = newest(saved[key].ckpt)
        mine = os.path.join(space.dir, f"pair{space.n}")
        shutil.copytree(saved[key].ckpt, mine)
        space.train(b, model=model, steps=3, ckpt=mine)
        again = [d for d in os.listdir(mine) if d != os.path.basename(source)]
        bad = ["no re-saved checkpoint"]
        if again:
            bad = differences(Checkpoint(os.path.join(mine, again[0])), Checkpoint(source))
        tap.ok(not bad, f"{model['arch']}: {a} -> {b}", bad[:5])
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
