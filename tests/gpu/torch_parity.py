#!/usr/bin/env python3
"""Ten steps of GPT-2 from PyTorch's initial weights, by PyTorch and by the trainer, side by side.

PyTorch draws the weights, this script writes them as a checkpoint of step 0 (docs/checkpoint.md)
with zero moments, and starts the worker by hand on it.  Tokens come from one shard file that both
read; the order of windows is computed here anew (worker/data/shuffle.c is the original).  Printed:
loss and gradient norm before clipping of both at every step, and the largest relative differences;
exit 1 if one is above its limit.

  torch_parity.py --worker build/dsworker-cuda --device cuda --precision bf16
  torch_parity.py --worker build/dsworker --tiny          two small layers, on any CPU

Needs torch, numpy and xxhash.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
import xxhash

FULL = dict(layers=12, hidden=768, heads=12, positions=1024, vocab=50257, batch=4, seq_len=1024)
TINY = dict(layers=2, hidden=64, heads=4, positions=64, vocab=1009, batch=4, seq_len=64)
STEPS, LR, BETAS, EPS, DECAY, CLIP, SEED = 10, 3e-4, (0.9, 0.95), 1e-8, 0.1, 1.0, 7
# docs/design.md, "Tolerances"; both sides round to bf16 in other places.
LIMITS = {"fp32": (1e-5, 1e-4), "bf16": (5e-3, 2e-2), "fp16": (5e-3, 2e-2)}
U64 = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & U64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & U64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & U64
    return x ^ (x >> 31)


def shuffled(seed, epoch, n, i):
    """Place i of the data order of n windows: a Feistel network of six rounds, cycle walking."""
    half = 1
    while half < 32 and (n - 1) >> (2 * half):
        half += 1
    mask, key = (1 << half) - 1, mix(seed ^ mix(epoch))
    while True:
        left, right = i >> half, i & mask
        for k in range(6):
            left, right = right, left ^ (mix(key ^ mix((right + (k << 56)) & U64)) & mask)
        i = left << half | right
        if i < n:
            return i


def write_shard(path, tokens):
    """llm.c's uint16 token file: 256 int32 of header (magic, version, count), then tokens."""
    head = np.zeros(256, dtype="<i4")
    head[:3] = 20240520, 1, len(tokens)
    with open(path, "wb") as f:
        f.write(head.tobytes() + tokens.astype("<u2").tobytes())


def initial_weights(m):
    """GPT-2's published initialisation, by PyTorch; names and shapes of Hugging Face."""
    torch.manual_seed(SEED)
    w, h = {}, m["hidden"]

    def normal(name, *shape, std=0.02):
        w[name] = torch.empty(*shape).normal_(0, std)

    def linear(name, rows, cols, std=0.02):
        normal(name + ".weight", rows, cols, std=std)
        w[name + ".bias"] = torch.zeros(cols)

    def norm(name):
        w[name + ".weight"], w[name + ".bias"] = torch.ones(h), torch.zeros(h)

    normal("transformer.wte.weight", m["vocab"], h)
    normal("transformer.wpe.weight", m["positions"], h)
    for i in range(m["layers"]):
        at = f"transformer.h.{i}."
        norm(at + "ln_1")
        linear(at + "attn.c_attn", h, 3 * h)
        linear(at + "attn.c_proj", h, h, std=0.02 / (2 * m["layers"]) ** 0.5)
        norm(at + "ln_2")
        linear(at + "mlp.c_fc", h, 4 * h)
        linear(at + "mlp.c_proj", 4 * h, h, std=0.02 / (2 * m["layers"]) ** 0.5)
    norm("transformer.ln_f")
    return w


def write_checkpoint(path, weights, spec_text):
    """One file, one box per tensor."""
    os.makedirs(path)
    header, tensors, data = {}, {}, []
    at = 0
    for name, t in weights.items():
        for tail in ("", ".exp_avg", ".exp_avg_sq"):
            raw = (t if not tail else torch.zeros_like(t)).numpy().tobytes()
            shape, start = list(t.shape), [0] * t.dim()
            key = name + tail + "@" + ",".join(str(x) for x in (start + [0])[:2])
            header[key] = dict(dtype="F32", shape=shape, data_offsets=[at, at + len(raw)])
            box = dict(start=start, shape=shape, file=0, offset=at,
                       digest=xxhash.xxh3_128(raw).hexdigest())
            tensors[name + tail] = dict(dtype="F32", shape=shape, boxes=[box])
            data.append(raw)
            at += len(raw)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(os.path.join(path, "rank-00000.safetensors"), "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head + b"".join(data))
    manifest = dict(format="dslaunch-checkpoint", version=1, job="parity", step=0, generation=1,
                    consumed_samples=0, optimizer_t=0, loss_scale=1.0, data_digest="0" * 16,
                    layout=dict(data=1, tensor=1, pipeline=1), spec=spec_text,
                    files=[dict(name="rank-00000.safetensors", bytes=8 + len(head) + at)],
                    tensors=tensors)
    with open(os.path.join(path, "manifest.json"), "w") as f:
        json.dump(manifest, f)


def spec_of(m, precision, device, folder):
    return f"""name: parity
cluster: {{workdir: {folder}}}
job: {{device: {device}}}
model: {{arch: gpt2, layers: {m['layers']}, hidden: {m['hidden']}, heads: {m['heads']}, ffn: {4 * m['hidden']}, vocab: {m['vocab']}, max_positions: {m['positions']}}}
parallel: {{data: 1}}
train: {{steps: {STEPS}, batch: {m['batch']}, micro_batch: {m['batch']}, seq_len: {m['seq_len']}, precision: {precision}, clip: {CLIP}, seed: {SEED},
  optimizer: {{kind: adamw, betas: [{BETAS[0]}, {BETAS[1]}], eps: {EPS}, weight_decay: {DECAY}}}, lr: {{peak: {LR}, warmup: 0, schedule: constant}}}}
data: {{kind: shards, files: [{folder}/tokens.bin]}}
checkpoint: {{dir: {folder}/ckpt, every: 0}}
"""


def gpt2(w, m, ids):
    b, t = ids.shape
    h, hd = m["heads"], m["hidden"] // m["heads"]
    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][:t]
    mask = torch.ones(t, t, dtype=torch.bool, device=ids.device).triu(1)
    for i in range(m["layers"]):
        def p(name):
            return w[f"transformer.h.{i}.{name}.weight"], w[f"transformer.h.{i}.{name}.bias"]

        def conv(z, name):
            weight, bias = p(name)
            return F.linear(z, weight.T, bias)

        n = F.layer_norm(x, (m["hidden"],), *p("ln_1"))
        q, k, v = (z.view(b, t, h, hd).transpose(1, 2)
                   for z in conv(n, "attn.c_attn").split(m["hidden"], -1))
        s = (q @ k.transpose(-2, -1)) / hd ** 0.5
        a = s.float().masked_fill(mask, float("-inf")).softmax(-1).to(v.dtype) @ v
        x = x + conv(a.transpose(1, 2).reshape(b, t, -1), "attn.c_proj")
        n = F.layer_norm(x, (m["hidden"],), *p("ln_2"))
        x = x + conv(F.gelu(conv(n, "mlp.c_fc"), approximate="tanh"), "mlp.c_proj")
    x = F.layer_norm(x, (m["hidden"],), w["transformer.ln_f.weight"], w["transformer.ln_f.bias"])
    return x @ w["transformer.wte.weight"].T


def run_torch(m, weights, tokens, precision, device):
    """[(loss, gradient norm)] of each step."""
    torch.backends.cuda.matmul.allow_tf32 = False
    w = {k: v.clone().to(device).requires_grad_() for k, v in weights.items()}
    opt = torch.optim.AdamW(
        [{"params": [v for v in w.values() if v.dim() > 1]},
         {"params": [v for v in w.values() if v.dim() == 1], "weight_decay": 0.0}],
        lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY)
    n, out = (len(tokens) - 1) // m["seq_len"], []
    low = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    for step in range(STEPS):
        rows = [shuffled(SEED, s // n, n, s % n) * m["seq_len"]
                for s in range(step * m["batch"], (step + 1) * m["batch"])]
        both = torch.stack([torch.from_numpy(tokens[r:r + m["seq_len"] + 1].astype(np.int64))
                            for r in rows]).to(device)
        with torch.autocast(device, low or torch.bfloat16, enabled=low is not None):
            logits = gpt2(w, m, both[:, :-1])
        loss = F.cross_entropy(logits.float().view(-1, m["vocab"]), both[:, 1:].reshape(-1))
        opt.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(w.values(), CLIP)
        opt.step()
        out.append((loss.item(), norm.item()))
    return out


def run_worker(worker, spec_path):
    r = subprocess.run([worker, spec_path], text=True, capture_output=True, timeout=480)
    found = re.findall(r"^step=\d+ loss=(\S+) grad_norm=(\S+)", r.stdout, re.M)
    if r.returncode or len(found) != STEPS or "resumed from" not in r.stdout + r.stderr:
        sys.exit(f"{worker}: exit {r.returncode}, {len(found)} steps\n{r.stdout}{r.stderr}")
    return [(float(a), float(b)) for a, b in found]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--worker", required=True)
    a.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    a.add_argument("--precision", default="fp32", choices=LIMITS)
    a.add_argument("--tiny", action="store_true")
    a = a.parse_args()
    m = TINY if a.tiny else FULL
    # Zipf-like, so that there is something to learn in ten steps.
    g = np.random.default_rng(SEED)
    tokens = np.minimum(g.zipf(1.3, m["seq_len"] * m["batch"] * (STEPS + 2) + 1) - 1,
                        m["vocab"] - 1).astype(np.uint16)
    weights = initial_weights(m)
    with tempfile.TemporaryDirectory() as folder:
        spec = spec_of(m, a.precision, a.device, folder)
        spec_path = os.path.join(folder, "parity.yaml")
        with open(spec_path, "w") as f:
            f.write(spec)
        write_shard(os.path.join(folder, "tokens.bin"), tokens)
        write_checkpoint(os.path.join(folder, "ckpt/step-00000000-g1"), weights, spec)
        ours = run_worker(a.worker, spec_path)
    theirs = run_torch(m, weights, tokens, a.precision, a.device)
    print(f"torch {torch.__version__} {a.device} {a.precision}: {m}")
    print("step   loss (torch)   loss (ours)    norm (torch)   norm (ours)")
    worst = [0.0, 0.0]
    for i, (x, y) in enumerate(zip(theirs, ours)):
        print(f"{i + 1:4d}   {x[0]:.7f}     {y[0]:.7f}     {x[1]:.6f}       {y[1]:.6f}")
        for j in range(2):
            worst[j] = max(worst[j], abs(x[j] - y[j]) / abs(x[j]))
    limits = LIMITS[a.precision]
    good = all(x <= limit for x, limit in zip(worst, limits))
    print(f"{'ok' if good else 'NOT OK'}: largest relative difference: loss {worst[0]:.2e} "
          f"(limit {limits[0]:g}), norm {worst[1]:.2e} (limit {limits[1]:g})")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
