#!/usr/bin/env python3
"""kill -9 at random moments of random processes (worker, keeper, agent, controller) of a running job:
the final bits are those of the undisturbed run, and nothing is left.  Prints TAP.
DSLAUNCH_KILLS (default 10) kills in all, DSLAUNCH_SEED."""
import glob
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
from gather import Checkpoint, differences, newest
from runs import Run, Space, Tap

LAYOUT = dict(data=2, pipeline=2, tensor=2)
KILLS_PER_RUN = 10


def processes(space):
    """pid -> role, of everything that has this space's run folder in its environment."""
    mark = ("XDG_RUNTIME_DIR=" + space.env["XDG_RUNTIME_DIR"]).encode()
    found = {}
    for path in glob.glob("/proc/[0-9]*"):
        try:
            with open(path + "/environ", "rb") as f:
                if mark not in f.read().split(b"\0"):
                    continue
            with open(path + "/cmdline", "rb") as f:
                args = f.read().split(b"\0")
        except OSError:
            continue
        name = os.path.basename(args[0]).decode(errors="replace")
        role = {"dsworker": "worker"}.get(name)
        if name == "dsagent":
            role = "keeper" if b"exec" in args else "agent" if b"serve" in args else None
        if name == "dslaunch" or b"controller" in args:
            role = "controller" if b"controller" in args else "client"
        found[int(path[6:])] = role
    return found


def left_behind(space, deadline=10):
    """What is still there after the deadline: processes, run-time files, shared memory."""
    end = time.monotonic() + deadline
    while True:
        rest = [f"pid {p} ({r})" for p, r in processes(space).items()]
        rest += glob.glob(space.env["XDG_RUNTIME_DIR"] + "/**", recursive=True)[1:]
        rest += glob.glob("/dev/shm/*dsl*")
        if not rest or time.monotonic() > end:
            return rest
        select_tick()


def select_tick():
    """One turn of a poll that has a deadline of its own."""
    import select
    select.select([], [], [], 0.02)


def last_step(run):
    try:
        return max(run.metrics(), default=0)
    except (OSError, ValueError):
        return 0


def disturbed(space, rng, name, spec, kills, log):
    """Runs the job under `kills` kills; returns recovery times of worker kills."""
    run, times, done = Run(space, name), [], 0
    client = subprocess.Popen(space.command("up", spec), env=space.env, cwd=space.dir,
                              stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    end = time.monotonic() + 60 + 20 * kills
    while time.monotonic() < end:
        if client.poll() is not None:
            if client.returncode == 0:
                return times, done
            client = subprocess.Popen(space.command("up", spec), env=space.env, cwd=space.dir,
                                      stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait = time.monotonic() + rng.uniform(0.05, 1.5)
        while time.monotonic() < wait and client.poll() is None:
            select_tick()
        role = rng.choice(["worker", "keeper", "agent", "controller"])
        victims = [p for p, r in processes(space).items() if r == role]
        if done < kills and victims and client.poll() is None:
            before, t0 = last_step(run), time.monotonic()
            generation = max((m["generation"] for m in run.metrics().values()), default=0) if before else 0
            try:
                os.kill(rng.choice(victims), signal.SIGKILL)
            except ProcessLookupError:
                continue
            done += 1
            if role == "worker" and before:
                while time.monotonic() < t0 + 30 and client.poll() is None:
                    try:
                        if any(m["generation"] > generation for m in run.metrics().values()):
                            times.append(time.monotonic() - t0)
                            break
                    except (OSError, ValueError):
                        pass
                    select_tick()
    client.kill()
    client.wait()
    raise RuntimeError(f"{name}: not done in time")


def main():
    kills = int(os.environ.get("DSLAUNCH_KILLS", "10"))
    seed = int(os.environ.get("DSLAUNCH_SEED", str(time.time_ns() % 10**6)))
    print(f"# DSLAUNCH_SEED={seed} DSLAUNCH_KILLS={kills}", flush=True)
    rng, tap, space = random.Random(seed), Tap(), Space()
    shape = dict(LAYOUT, steps=1200, every=10, restart={"max": 1000, "backoff": "10ms"},
                 cluster={"timeouts": {"orphan": "20s"}})
    quiet = space.train(name="quiet", **shape)
    tap.ok(not left_behind(space), "nothing is left after an undisturbed run", left_behind(space, 0))
    times, n = [], 0
    for i in range((kills + KILLS_PER_RUN - 1) // KILLS_PER_RUN):
        name = f"chaos{i}"
        with open(os.path.join(space.dir, name + ".log"), "w") as log:
            try:
                t, done = disturbed(space, rng, name, space.spec(name, **shape),
                                    min(KILLS_PER_RUN, kills - n), log)
            except RuntimeError as why:
                t, done = [], 0
                with open(os.path.join(space.dir, name + ".log")) as f:
                    why = f"{why}\n{f.read()[-3000:]}"
                tap.ok(False, f"{name} ends", why)
        times += t
        n += done
        bad = differences(Checkpoint(newest(os.path.join(space.dir, "ckpt", name))),
                          Checkpoint(newest(quiet.ckpt)))
        same = Run(space, name).curve("loss") == quiet.curve("loss")
        tap.ok(not bad, f"{name}: after {done} kills the same bits", bad[:5])
        gap = sorted(set(quiet.metrics()) - set(Run(space, name).metrics()))
        tap.ok(same, f"{name}: the same curve", f"steps missing in metrics.jsonl: {gap}")
        rest = left_behind(space)
        tap.ok(not rest, f"{name}: nothing is left", "\n".join(rest))
    if times:
        times.sort()
        print(f"# kill of a worker -> next finished step, {len(times)} times: median "
              f"{times[len(times) // 2]:.2f} s, worst {times[-1]:.2f} s", flush=True)
    tap.ok(n >= kills * 0.8, f"{n} of {kills} kills struck")
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
