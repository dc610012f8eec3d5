#!/usr/bin/env python3
"""A worker without arithmetic: it speaks the link protocol and does as FAKE_* says.

FAKE_STEP_S   seconds a step takes (0.02)
FAKE_DIR      where rank 0 keeps its "checkpoint", the last finished step
FAKE_MODE     what one rank does in one step of one generation, "WHAT:RANK:STEP:GENERATION"
              (generation *: each); WHAT is exit-N, signal-N, hang (beats no more), victims (exit 1,
              and the others exit 94 naming it), refused (breaks the protocol), nan
FAKE_DEAF     set: an order to stop is not heard
FAKE_LATE_S   seconds before hello
FAKE_FLOOD    lines to print in each step
"""
import mmap
import os
import re
import select
import signal
import socket
import struct
import sys
import time


class Stop(Exception):
    pass


class Worker:
    def __init__(self):
        self.link = socket.socket(fileno=int(os.environ["DSLAUNCH_LINK"]))
        self.page = mmap.mmap(int(os.environ["DSLAUNCH_PAGE"]), 4096)
        self.page[0:8] = struct.pack("<II", 0x64736C70, 1)
        self.page[44:48] = struct.pack("<I", 0xFFFFFFFF)
        self.beats, self.stop, self.pending = 0, False, b""
        time.sleep(float(os.environ.get("FAKE_LATE_S", "0")))
        self.say("hello proto=1")
        w = self.wait("welcome")
        self.rank, self.world = int(w["rank"]), int(w["world"])
        self.generation = int(w["generation"])
        spec = bytes.fromhex(w["spec"]).decode()
        self.steps = int(re.search(r"^  steps: (\d+)", spec, re.M).group(1))

    def say(self, line):
        self.link.sendall(line.encode() + b"\n")

    def beat(self, phase, step):
        self.beats += 1
        self.page[8:32] = struct.pack("<QQII", self.beats, step, phase, 0)

    def hear(self, seconds):
        """Lines that arrive within that time."""
        if select.select([self.link], [], [], seconds)[0]:
            got = self.link.recv(1 << 16)
            if not got:
                sys.exit(94)
            self.pending += got
        *lines, self.pending = self.pending.split(b"\n")
        for line in lines:
            verb, *pairs = line.decode().split()
            if verb == "stop":
                self.stop = "FAKE_DEAF" not in os.environ
            elif verb == "refused":
                print("refused:", bytes.fromhex(pairs[0].split("=")[1]).decode(), flush=True)
                sys.exit(1)
            else:
                yield verb, dict(p.split("=", 1) for p in pairs)

    def wait(self, wanted, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for verb, pairs in self.hear(0.05):
                if verb == wanted:
                    return pairs
        print(f"no {wanted}", flush=True)
        sys.exit(1)

    def meet(self):
        self.beat(0, 0)
        mine = f"addr {self.rank} g{self.generation}"
        self.say(f"put key=addr/{self.rank} value={mine.encode().hex()}")
        self.say("barrier")
        self.wait("released")
        other = (self.rank + 1) % self.world
        self.say(f"get key=addr/{other}")
        got = bytes.fromhex(self.wait("value")["value"]).decode()
        assert got == f"addr {other} g{self.generation}", got

    def fail(self, code, text, peer="-"):
        self.say(f"failed kind=rank peer={peer} text={text.encode().hex()}")
        print(text, flush=True)
        sys.exit(code)

    def misbehave(self, step):
        mode = os.environ.get("FAKE_MODE", "")
        if not mode:
            return
        what, rank, at, generation = mode.split(":")
        if int(at) != step or generation not in ("*", str(self.generation)):
            return
        if int(rank) != self.rank:
            if what == "victims":
                time.sleep(0.05)
                self.fail(94, f"lost rank {rank}", rank)
            return
        kind, _, number = what.partition("-")
        if kind == "signal":
            os.kill(os.getpid(), int(number))
        if kind == "hang":
            self.page[32:36] = struct.pack("<I", 0)
            signal.pause()
        if kind == "refused":
            self.say(f"put key=addr/{self.rank} value=00")
            self.wait("nothing")
        self.fail(int(number or 1), f"rank {self.rank} was told to fail in step {step}")

    def run(self):
        self.meet()
        state = os.path.join(os.environ["FAKE_DIR"], "step")
        step = int(open(state).read()) if os.path.exists(state) else 0
        if self.rank == 0 and step:
            self.say("event text=" + f"resumed from step {step}".encode().hex())
        pause = float(os.environ.get("FAKE_STEP_S", "0.02"))
        while step < self.steps and not self.stop:
            self.beat(3, step)
            for _ in self.hear(pause):
                pass
            self.misbehave(step + 1)
            step += 1
            self.beat(6, step)
            for i in range(int(os.environ.get("FAKE_FLOOD", "0"))):
                print(f"rank {self.rank} step {step} line {i}")
            print(f"rank {self.rank} finished step {step}", flush=True)
            if self.rank == 0:
                with open(state + ".tmp", "w") as f:
                    f.write(str(step))
                os.rename(state + ".tmp", state)
                self.say(f"metrics step={step} loss={5 / (1 + step):.6f} grad_norm=1.5 lr=0.0003 "
                         f"tokens_per_s=1000 step_ms={pause * 1e3:.3f}")
        self.say(f"done reason={'completed' if step >= self.steps else 'stopped'} step={step}")


Worker().run()
