#!/usr/bin/env python3
"""Copies a run to MLflow: its settings, the rows of metrics.jsonl, and its outcome.

    to_mlflow.py [--to DIRECTORY|http://HOST:PORT] [--experiment NAME] [--name NAME] RUN_DIRECTORY

`--to` is a directory for MLflow's own files (mlruns, which `mlflow ui --backend-store-uri` shows; MLflow 3 needs
MLFLOW_ALLOW_FILE_STORE=true for that) or the address of a tracking server. Needs nothing but Python; for a server
that requires a login, set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN.
"""

import argparse
import base64
import getpass
import json
import math
import os
import pathlib
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

# Rows of a kind become metrics with this prefix; the weights of an evaluation are part of it.
PREFIXES = {"train": "train/", "eval": "validation/", "checkpoint": "checkpoint/"}
ENDS = {"RUNNING": 1, "FINISHED": 3}
LONGEST_PARAMETER = 6000


def read_rows(directory):
    path = pathlib.Path(directory) / "metrics.jsonl"
    rows = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                row = json.loads(line)
            except ValueError:
                continue  # a line that a running job has not finished, or one that is not a row
            if isinstance(row, dict) and "kind" in row and "step" in row:
                rows.append(row)
    if not rows:
        sys.exit(f"to_mlflow.py: {path} has no rows")
    return rows


def parameters(configuration):
    """{"section.key": text} of the TOML that a run writes: a key and its value on each line."""
    section, found = "", {}
    for line in configuration.splitlines():
        if head := re.fullmatch(r"\[(\w+)\]", line):
            section = head[1]
        elif pair := re.match(r"(\w+) = (.*)", line):
            value = json.loads(pair[2]) if re.fullmatch(r'"(?:[^"\\]|\\.)*"', pair[2]) else pair[2]
            found[f"{section}.{pair[1]}"] = value[:LONGEST_PARAMETER]
    return found


def metrics(rows):
    """(name, value, milliseconds, step) of every number in the rows."""
    for row in rows:
        prefix = PREFIXES.get(row["kind"])
        if prefix is None:
            continue
        if row.get("weights") == "ema":
            prefix = "validation_ema/"
        for name, value in row.items():
            if name in ("kind", "step", "time") or isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            yield prefix + name, float(value), int(1000 * row.get("time", time.time())), int(row["step"])


def describe(rows, directory, name):
    """What is known about the run as a whole."""
    start = [row for row in rows if row["kind"] == "start"]
    last = start[-1] if start else {}
    tags = {"mlflow.runName": name, "mlflow.user": getpass.getuser(), "mlflow.source.name": "lockstep",
            "mlflow.source.type": "LOCAL", "lockstep.directory": str(pathlib.Path(directory).resolve())}
    for key in ("version", "ranks"):
        if key in last:
            tags[f"lockstep.{key}"] = str(last[key])
    if last.get("commit"):
        tags["mlflow.source.git.commit"] = str(last["commit"])
    begin = last_time = None
    ended = False
    for row in rows:
        if row["kind"] == "start":
            ended = False
        elif row["kind"] == "event" and row.get("event") == "summary":
            ended = True
        if "time" in row:
            begin = row["time"] if begin is None else begin
            last_time = row["time"]
    return {"tags": tags, "parameters": parameters(last.get("configuration", "")), "start": int(1000 * (begin or 0)),
            "end": int(1000 * (last_time or 0)), "status": "FINISHED" if ended else "RUNNING"}


def yaml(values):
    """Flat YAML: JSON's strings and numbers are YAML's."""
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items())


def to_files(root, experiment, name, run, rows):
    root = pathlib.Path(root).resolve()
    experiments = {}
    for path in root.glob("*/meta.yaml"):
        found = re.search(r"^name: (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            experiments[found[1].strip("'\"")] = path.parent
    place = experiments.get(experiment)
    if place is None:
        number = str(int(time.time() * 1e6))
        place = root / number
        place.mkdir(parents=True)
        now = int(1000 * time.time())
        (place / "meta.yaml").write_text(yaml({
            "artifact_location": place.as_uri(), "creation_time": now, "experiment_id": number, "last_update_time": now,
            "lifecycle_stage": "active", "name": experiment}), encoding="utf-8")
    identity = uuid.uuid4().hex
    place_of_run = place / identity
    for part in ("artifacts", "metrics", "params", "tags"):
        (place_of_run / part).mkdir(parents=True)
    (place_of_run / "meta.yaml").write_text(yaml({
        "artifact_uri": (place_of_run / "artifacts").as_uri(), "end_time": run["end"] if run["status"] == "FINISHED" else None,
        "entry_point_name": "", "experiment_id": place.name, "lifecycle_stage": "active", "run_id": identity,
        "run_name": name, "run_uuid": identity, "source_name": "", "source_type": 4, "source_version": "",
        "start_time": run["start"], "status": ENDS[run["status"]], "tags": [], "user_id": run["tags"]["mlflow.user"]}),
        encoding="utf-8")
    for part, values in (("params", run["parameters"]), ("tags", run["tags"])):
        for key, value in values.items():
            (place_of_run / part / key).write_text(value, encoding="utf-8")
    lines = {}
    for key, value, stamp, step in metrics(rows):
        lines.setdefault(key, []).append(f"{stamp} {value!r} {step}\n")
    for key, text in lines.items():
        path = place_of_run / "metrics" / key
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(text), encoding="utf-8")
    return place_of_run


class Server:
    """The REST interface of a tracking server."""

    def __init__(self, address):
        self.address = address.rstrip("/")
        self.headers = {"Content-Type": "application/json"}
        user, token = os.environ.get("MLFLOW_TRACKING_USERNAME"), os.environ.get("MLFLOW_TRACKING_TOKEN")
        if user is not None:
            login = f"{user}:{os.environ.get('MLFLOW_TRACKING_PASSWORD', '')}"
            self.headers["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
        elif token:
            self.headers["Authorization"] = "Bearer " + token

    def call(self, path, values=None, query=None):
        url = f"{self.address}/api/2.0/mlflow/{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        request = urllib.request.Request(url, json.dumps(values).encode() if values is not None else None, self.headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def experiment(self, name):
        try:
            return self.call("experiments/get-by-name", query={"experiment_name": name})["experiment"]["experiment_id"]
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return self.call("experiments/create", {"name": name})["experiment_id"]


def to_server(address, experiment, name, run, rows):
    server = Server(address)
    values = {"experiment_id": server.experiment(experiment), "run_name": name, "start_time": run["start"],
              "tags": [{"key": key, "value": value} for key, value in run["tags"].items()]}
    identity = server.call("runs/create", values)["run"]["info"]["run_id"]
    pending = [{"key": key, "value": value} for key, value in run["parameters"].items()]
    for i in range(0, len(pending), 100):  # the most that a request may have
        server.call("runs/log-batch", {"run_id": identity, "params": pending[i:i + 100]})
    pending = [{"key": key, "value": value, "timestamp": stamp, "step": step}
               for key, value, stamp, step in metrics(rows) if math.isfinite(value)]
    for i in range(0, len(pending), 1000):
        server.call("runs/log-batch", {"run_id": identity, "metrics": pending[i:i + 1000]})
    if run["status"] == "FINISHED":
        server.call("runs/update", {"run_id": identity, "status": "FINISHED", "end_time": run["end"]})
    return f"{server.address}/#/experiments/{values['experiment_id']}/runs/{identity}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="the directory of a run")
    parser.add_argument("--to", default="mlruns", help="a directory, or the address of a server [default mlruns]")
    parser.add_argument("--experiment", default="lockstep", help="the experiment [default lockstep]")
    parser.add_argument("--name", help="the name of the run [default that of its directory]")
    options = parser.parse_args()
    try:
        rows = read_rows(options.run)
        name = options.name or pathlib.Path(options.run).resolve().name
        run = describe(rows, options.run, name)
        write = to_server if re.match("https?://", options.to) else to_files
        print(write(options.to, options.experiment, name, run, rows))
    except OSError as error:
        sys.exit(f"to_mlflow.py: {error}")


if __name__ == "__main__":
    main()
