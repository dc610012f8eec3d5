#!/usr/bin/env python3
"""The rank that is killed or stopped is the one that failure.json names, whatever its victims say; and how
long it takes from the kill to the next finished step.  Prints TAP."""
import glob
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
from kills import left_behind, select_tick
from runs import Run, Space, Tap

CASES = [(r, signal.SIGKILL) for r in range(8)] + [(3, signal.SIGSTOP), (6, signal.SIGSEGV)]
HANG = 3


def wait_for(what, deadline=60):
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        try:
            got = what()
        except (OSError, ValueError, KeyError, RuntimeError): # not there yet
            got = None
        if got:
            return got
        select_tick()
    raise RuntimeError("not in time: " + what.__name__)


def main():
    tap, space = Tap(), Space()
    spec = space.spec("culprit", data=2, pipeline=2, tensor=2, steps=10**6, every=50,
                      restart={"max": 1000, "backoff": "10ms", "hang_timeout": f"{HANG}s"})
    run, times = Run(space, "culprit"), []
    client = subprocess.Popen(space.command("up", spec), env=space.env, cwd=space.dir,
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)

    def status():
        return json.loads(space.run("status", "culprit", "--json").stdout)

    generation = 1
    for rank, sig in CASES:
        def running():
            s = status()
            return s if s["state"] == "running" and s["generation"] == generation and \
                max(m["step"] for m in run.metrics().values() if m["generation"] == generation) else None

        pid = [r["pid"] for r in wait_for(running)["ranks"] if r["rank"] == rank][0]
        t0 = time.monotonic()
        os.kill(pid, sig)

        def failed():
            with open(os.path.join(run.dir, "failure.json")) as f:
                found = json.load(f)
            return found if found["generation"] == generation else None

        def stepped():
            return any(m["generation"] > generation for m in run.metrics().values())

        found = wait_for(failed)
        wait_for(stepped)
        if sig == signal.SIGKILL:
            times.append(time.monotonic() - t0)
        want = "hang" if sig == signal.SIGSTOP else "signal"
        tap.ok(found["rank"] == rank and found["cause"] == want,
               f"{sig.name} of rank {rank} is named", json.dumps(found)[:600])
        generation += 1
    space.run("down", "culprit", "--now")
    client.wait(timeout=30)
    times.sort()
    print(f"# kill of a worker -> next finished step, {len(times)} times: median "
          f"{times[len(times) // 2]:.2f} s, worst {times[-1]:.2f} s", flush=True)
    rest = left_behind(space)
    tap.ok(not rest, "nothing is left", "\n".join(rest))
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
