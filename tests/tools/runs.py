"""Runs of `dslaunch up` for the parity and chaos tests: own state, own run folder, nothing left."""
import json
import os
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("DSLAUNCH_BUILD", os.path.join(ROOT, "build"))

# A vocabulary that no tensor size divides, files of unequal length (so that windows are padded and
# micro-batches differ in tokens), and replicated KV heads at tensor = 4.
LLAMA = dict(arch="llama", layers=4, hidden=32, heads=4, kv_heads=2, ffn=48, vocab=259)
GPT2 = dict(arch="gpt2", layers=4, hidden=32, heads=4, vocab=259)


def texts(directory, n=48):
    """n files of 5 to 400 bytes, always the same."""
    os.makedirs(directory, exist_ok=True)
    with open("/usr/share/common-licenses/GPL-3", "rb") as f:
        source = f.read()
    x = 12345
    for i in range(n):
        x = (1103515245 * x + 12345) % 2**31
        size, at = 5 + x % 396, (x >> 8) % (len(source) - 400)
        with open(os.path.join(directory, f"t{i:02d}.txt"), "wb") as f:
            f.write(source[at : at + size])


class Space:
    """A folder with texts, state and run folder; one per test program."""

    def __init__(self):
        self.tmp = tempfile.TemporaryDirectory(prefix="dsl-")
        self.dir = self.tmp.name
        texts(os.path.join(self.dir, "texts"))
        for d in ("home", "run"):
            os.mkdir(os.path.join(self.dir, d), 0o700)
        self.env = dict(os.environ, DSLAUNCH_HOME=os.path.join(self.dir, "home"),
                        XDG_RUNTIME_DIR=os.path.join(self.dir, "run"), NO_COLOR="1")
        self.n = 0

    def spec(self, name, model=LLAMA, steps=20, batch=8, micro=1, data=1, tensor=1, pipeline=1,
             sequence=None, schedule="1f1b", stages=None, every=0, ckpt=None, lr=3e-3, source=None, sample=None, **extra):
        """Writes a spec; returns its path."""
        doc = {
            "name": name,
            "model": model,
            "parallel": {"data": data, "tensor": tensor, "pipeline": pipeline,
                         "sequence": tensor > 1 if sequence is None else sequence,
                         "schedule": schedule, **({"stages": stages} if stages else {})},
            "train": {"steps": steps, "batch": batch, "micro_batch": micro, "seq_len": 32, "seed": 7,
                      "clip": extra.pop("clip", 1.0), "z_loss": extra.pop("z_loss", 0), "sample": sample or {},
                      "lr": {"peak": lr, "min": lr / 10, "warmup": min(5, steps),
                             "schedule": extra.pop("lr_schedule", "cosine")}},
            "data": source or {"files": [os.path.join(self.dir, "texts", "*.txt")]},
            "checkpoint": {"dir": ckpt or os.path.join(self.dir, "ckpt", name), "every": every,
                           "keep": extra.pop("keep", 3)},
            "restart": {"max": 5, "backoff": "1s", "hang_timeout": "20s",
                        **extra.pop("restart", {})},
            # The run folder is the mark by which a space's processes are found.
            "job": {"env": ["DSLAUNCH_PLANT", "XDG_RUNTIME_DIR"]},
            **extra,
        }
        path = os.path.join(self.dir, name + ".yaml")
        with open(path, "w") as f:
            json.dump(doc, f)
        return path

    def command(self, *args):
        return [os.path.join(BUILD, "dslaunch"), *args]

    def run(self, *args, timeout=120, env=None, check=0):
        r = subprocess.run(self.command(*args), env={**self.env, **(env or {})}, cwd=self.dir,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, timeout=timeout, text=True)
        if check is not None and r.returncode != check:
            raise RuntimeError(f"{args}: exit {r.returncode}\n{r.stdout[-4000:]}")
        return r

    def by_hand(self, **kw):
        """One worker without a launcher; returns the folder of its checkpoints."""
        self.n += 1
        name = f"hand{self.n}"
        env = {k: v for k, v in self.env.items() if k != "OPENBLAS_CORETYPE"}
        subprocess.run([os.path.join(BUILD, "dsworker"), self.spec(name, **kw)], env=env, cwd=self.dir,
                       check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=120)
        return os.path.join(self.dir, "ckpt", name)

    def train(self, layout=None, env=None, **kw):
        """A whole run; returns Run."""
        self.n += 1
        name = kw.pop("name", f"r{self.n}")
        self.run("up", self.spec(name, **kw, **(layout or {})), env=env)
        return Run(self, name, kw.get("ckpt"))


class Run:
    def __init__(self, space, name, ckpt=None):
        self.dir = os.path.join(space.dir, "home", name)
        self.ckpt = ckpt or os.path.join(space.dir, "ckpt", name)

    def metrics(self):
        """step -> the last generation's object."""
        by_step = {}
        with open(os.path.join(self.dir, "metrics.jsonl")) as f:
            for line in f:
                m = json.loads(line)
                if "loss" in m:
                    by_step[m["step"]] = m
        return by_step

    def curve(self, key):
        m = self.metrics()
        return [m[s][key] for s in sorted(m)]


class Tap:
    def __init__(self):
        self.n = self.bad = 0

    def ok(self, good, what, why=""):
        self.n += 1
        self.bad += not good
        print(f"{'ok' if good else 'not ok'} {self.n} - {what}", flush=True)
        if why and not good:
            print("\n".join("# " + line for line in str(why).splitlines()), flush=True)
        return good

    def done(self):
        print(f"1..{self.n}", flush=True)
        return 1 if self.bad else 0
