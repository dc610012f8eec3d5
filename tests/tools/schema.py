#!/usr/bin/env python3
"""schema.py DSLAUNCH: `dslaunch schema` and the parser of specs are of one mind.

The configs are valid; specs that the parser refuses for a name, a type or a range are not; and each
number's bounds are where the program says "out of range".
"""
import glob
import json
import os
import re
import subprocess
import sys

import jsonschema
import yaml

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
DSLAUNCH = sys.argv[1]
CONFIG = os.path.join(ROOT, "configs/local-1.yaml")
# tests/golden/spec: wrong by themselves, not only with other keys.
WRONG = "03 04 05 06 07 08 09 10 11 12 13 14 15 16 17 18 28 45 49"


class Loader(yaml.SafeLoader):
    """PyYAML knows YAML 1.1, where 3e-4 is no number."""


Loader.add_implicit_resolver("tag:yaml.org,2002:float",
                             re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789"))


def load(path):
    with open(path, encoding="utf-8") as f:
        return yaml.load(f, Loader)  # noqa: S506: a SafeLoader


def leaves(node, path=""):
    for name, o in node.get("properties", {}).items():
        yield from leaves(o, f"{path}.{name}" if path else name)
    if "properties" not in node:
        yield path, node


def out_of_range(key, value):
    r = subprocess.run([DSLAUNCH, "plan", "--set", f"{key}={value}", CONFIG], capture_output=True, text=True,
                       check=False, timeout=60)
    return re.search(rf"{re.escape(key)}: .* is out of range", r.stderr) is not None


def main():
    schema = json.loads(subprocess.run([DSLAUNCH, "schema"], capture_output=True, check=True, timeout=10).stdout)
    jsonschema.Draft7Validator.check_schema(schema)
    judge, bad = jsonschema.Draft7Validator(schema), []
    for path in glob.glob(os.path.join(ROOT, "configs/*.yaml")):
        bad += [f"{path}: {e.json_path}: {e.message}" for e in judge.iter_errors(load(path))]
    for n in WRONG.split():
        path, = glob.glob(os.path.join(ROOT, f"tests/golden/spec/{n}-*.yaml"))
        if judge.is_valid(load(path)):
            bad.append(f"{path} is valid")
    tried = 0
    for key, o in leaves(schema):
        if o["type"] not in ("integer", "number"):
            continue
        low, high = o["minimum"], o["maximum"]
        # The largest allowed size is not tried where a plan would be made of it.
        for value, wrong in ((low - 1, True), (low, False), (high * 2 + 1, True)):
            tried += 1
            if out_of_range(key, value) != wrong:
                bad.append(f"{key}={value}: the program and the schema differ")
    print(*bad, f"{tried} values tried", sep="\n")
    sys.exit(1 if bad or tried < 60 else 0)


main()
