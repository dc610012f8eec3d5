#!/usr/bin/env python3
"""Tokens per second of dsworker-cuda beside PyTorch, one GPU, bf16, the same shapes in one run.

PyTorch: compiled, bf16 autocast over fp32 weights, fused AdamW, the faster of flash and cuDNN
attention.  Ours: train.precision bf16, fp32 masters, one worker started by hand.  Both train on
random tokens with gradient clipping; medians of the steps after the warm-up.  Each side runs in
its own process, so that neither's memory is in the other's way.

  torch_speed.py --worker build/dsworker-cuda [--only gpt2-124m,llama-1.2b] [--steps 20]
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

# layers, hidden, heads, kv heads, ffn, vocabulary, T, llama, B
SHAPES = {
    "gpt2-124m": (12, 768, 12, 12, 3072, 50257, 1024, False, 64),
    "gpt2-774m": (36, 1280, 20, 20, 5120, 50257, 1024, False, 32),
    "gpt2-1558m": (48, 1600, 25, 25, 6400, 50257, 1024, False, 16),
    "llama-1.2b": (16, 2048, 32, 8, 8192, 128256, 4096, True, 4),
    "llama-3.2b": (28, 3072, 24, 8, 8192, 128256, 4096, True, 2),
}
WARM = 6


def torch_side(name, steps, backend):
    """In a process of its own: one JSON line."""
    import torch
    from torch import nn
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    layers, hidden, heads, kv, ffn, vocab, t, llama, b = SHAPES[name]
    vocab = (vocab + 63) // 64 * 64  # as nanoGPT and llm.c pad it: PyTorch is faster so
    hd, norm = hidden // heads, nn.RMSNorm if llama else nn.LayerNorm
    torch.set_float32_matmul_precision("high")

    def rotate(x, c, s):
        u, v = x.chunk(2, -1)
        return torch.cat([u * c - v * s, v * c + u * s], -1).to(x.dtype)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            bias = not llama
            self.n1, self.n2 = norm(hidden), norm(hidden)
            self.qkv = nn.Linear(hidden, (heads + 2 * kv) * hd, bias=bias)
            self.out = nn.Linear(hidden, hidden, bias=bias)
            self.up = nn.Linear(hidden, ffn * (2 if llama else 1), bias=bias)
            self.down = nn.Linear(ffn, hidden, bias=bias)

        def forward(self, x, c, s):
            q, k, v = self.qkv(self.n1(x)).split([heads * hd, kv * hd, kv * hd], -1)
            q, k, v = (z.view(b, t, -1, hd).transpose(1, 2) for z in (q, k, v))
            if llama:
                q, k = rotate(q, c, s), rotate(k, c, s)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv != heads)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, hidden))
            u = self.up(self.n2(x))
            if llama:
                gate, u = u.chunk(2, -1)
                u = F.silu(gate) * u
            else:
                u = F.gelu(u, approximate="tanh")
            return x + self.down(u)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = nn.Embedding(vocab, hidden)
            self.wpe = None if llama else nn.Embedding(t, hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = norm(hidden)
            freq = 500000.0 ** (-torch.arange(0, hd, 2).float() / hd)
            angle = torch.outer(torch.arange(t).float(), freq)
            self.register_buffer("c", angle.cos())
            self.register_buffer("s", angle.sin())
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)

        def forward(self, x, y):
            h = self.wte(x)
            if self.wpe is not None:
                h = h + self.wpe.weight[None]
            for block in self.blocks:
                h = block(h, self.c, self.s)
            logits = F.linear(self.norm(h), self.wte.weight)
            return F.cross_entropy(logits.view(-1, vocab).float(), y.view(-1))

    with torch.device("cuda"):
        model = Model()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    run = torch.compile(model)
    data = [torch.randint(SHAPES[name][5], (b, t), device="cuda") for _ in range(4)]
    took = []
    for i in range(WARM + steps):
        torch.cuda.synchronize()
        t0 = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16), sdpa_kernel([getattr(SDPBackend, backend)]):
            loss = run(data[i % 4], data[(i + 1) % 4])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        took.append(time.perf_counter() - t0)
    print(json.dumps(dict(tokens_per_s=b * t / statistics.median(took[WARM:]),
                          gib=torch.cuda.max_memory_allocated() / 2**30, loss=loss.item())))


def run_torch(name, steps):
    best = {}
    for backend in ("CUDNN_ATTENTION", "FLASH_ATTENTION"):
        r = subprocess.run([sys.executable, __file__, "--torch-side", name, "--backend", backend,
                            "--steps", str(steps)], text=True, capture_output=True)
        if r.returncode:
            print(f"torch {name} {backend}: {r.stderr.strip().splitlines()[-1:]}", flush=True)
            continue
        got = json.loads(r.stdout.strip().splitlines()[-1])
        if got["tokens_per_s"] > best.get("tokens_per_s", 0):
            best = dict(got, backend=backend.split("_")[0].lower())
    return best


def write_tokens(folder, vocab, count):
    import numpy as np
    path, g = f"{folder}/{vocab}.bin", np.random.default_rng(1)
    if not os.path.exists(path):
        head = np.zeros(256, dtype="<i4")
        head[:3] = (20240520, 1, count) if vocab < 1 << 16 else (20240801, 7, count)
        kind = "<u2" if vocab < 1 << 16 else "<u4"
        with open(path, "wb") as f:
            f.write(head.tobytes() + g.integers(0, vocab, count).astype(kind).tobytes())
    return path


def run_ours(worker, name, steps, folder):
    vocab, t, b = SHAPES[name][5], SHAPES[name][6], SHAPES[name][8]
    spec = f"{folder}/{name}.yaml"
    with open(spec, "w") as f:
        f.write(f"name: speed\ncluster: {{workdir: {folder}}}\njob: {{device: cuda}}\n"
                f"model: {{preset: {name}, tied: true, max_positions: {t}}}\nparallel: {{data: 1}}\n"
                f"train: {{steps: {WARM + steps}, batch: {b}, micro_batch: {b}, seq_len: {t}, "
                f"precision: bf16, lr: {{peak: 1e-4, warmup: 0, schedule: constant}}}}\n"
                f"data: {{kind: shards, files: [{write_tokens(folder, vocab, b * t * 8 + 1)}]}}\n"
                f"checkpoint: {{dir: {folder}/ckpt-{name}, every: 0}}\n")
    t0 = time.perf_counter()
    r = subprocess.run([worker, spec], text=True, capture_output=True)
    wall = time.perf_counter() - t0
    rates = [float(x) for x in re.findall(r"^step=\d+ .*tokens_per_s=(\S+)", r.stdout, re.M)]
    losses = re.findall(r"^step=\d+ loss=(\S+)", r.stdout, re.M)
    subprocess.run(["rm", "-rf", f"{folder}/ckpt-{name}"], check=True)
    if r.returncode or len(rates) < WARM + 1:
        print(f"ours {name}: exit {r.returncode}\n{(r.stdout + r.stderr)[-2000:]}", flush=True)
        return {}
    return dict(tokens_per_s=statistics.median(rates[WARM:]), loss=float(losses[-1]), wall=wall)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--worker")
    a.add_argument("--only", default=",".join(SHAPES))
    a.add_argument("--steps", type=int, default=20)
    a.add_argument("--torch-side", choices=SHAPES, help=argparse.SUPPRESS)
    a.add_argument("--backend", help=argparse.SUPPRESS)
    a.add_argument("--no-torch", action="store_true")
    a = a.parse_args()
    if a.torch_side:
        return torch_side(a.torch_side, a.steps, a.backend)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in a.only.split(","):
            theirs = {} if a.no_torch else run_torch(name, a.steps)
            ours = run_ours(a.worker, name, a.steps, folder)
            rows.append((name, theirs, ours))
            print(f"{name}: torch {theirs} ours {ours}", flush=True)
    print(f"\n{'model':12} {'torch tok/s':>12} {'ours tok/s':>12} {'ratio':>6}  {'torch GiB':>9}"
          f"  {'loss torch':>10} {'loss ours':>9}  {'ours, s':>7}")
    for name, theirs, ours in rows:
        x, y = theirs.get("tokens_per_s", 0), ours.get("tokens_per_s", 0)
        print(f"{name:12} {x:12,.0f} {y:12,.0f} {y / x if x else 0:6.2f}  "
              f"{theirs.get('gib', 0):9.1f}  {theirs.get('loss', 0):10.3f} "
              f"{ours.get('loss', 0):9.3f}  {ours.get('wall', 0):7.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
