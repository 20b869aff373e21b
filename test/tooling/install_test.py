"""An installation works without the build tree: usage: install_test.py CMAKE BUILD_DIRECTORY"""

import pathlib
import subprocess
import sys
import tempfile

cmake, build = sys.argv[1:]
with tempfile.TemporaryDirectory() as directory:
    prefix = pathlib.Path(directory) / "prefix"
    subprocess.run([cmake, "--install", build, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
    explained = subprocess.run([prefix / "bin/trainer", "explain", "--config", "digits"], cwd=directory, check=True,
                               capture_output=True, text=True).stdout
    for split in ("train", "validation"):
        data = prefix / f"share/lockstep/data/digits/{split}.tfrecord"
        assert data.is_file(), f"{data} was not installed"
        assert str(data) in explained, f"the installed recipe does not use {data}:\n{explained}"
    network = ("--model.name", "file", "--model.file", prefix / "share/lockstep/models/resnet18.toml", "--data.format", "synthetic")
    explained = subprocess.run([prefix / "bin/trainer", "explain", *network], cwd=directory, check=True, capture_output=True, text=True).stdout
    assert "layer4.1.conv2" in explained, f"the installed model file is not that of resnet18:\n{explained}"
    assert (prefix / "share/man/man1/trainer.1").read_text().startswith(".TH TRAINER 1")
    assert "complete -o default -F _trainer trainer" in (prefix / "share/bash-completion/completions/trainer").read_text()
    assert (prefix / "share/man/man1/lockstep.1").read_text().startswith(".TH LOCKSTEP 1")
    assert "complete -o default -F _lockstep lockstep" in (prefix / "share/bash-completion/completions/lockstep").read_text()
    started = subprocess.run([prefix / "bin/lockstep", "run", "-np", "2", "--config", "digits", "--train.steps", "1",
                              "--checkpoint.directory", "ranks"], cwd=directory, check=True, capture_output=True, text=True)
    assert "finished at step 1" in started.stdout and started.stderr.count("\n") == 1, started
    # What lies in the build tree and in the source is not looked for: it may be anybody's once they have gone.
    (prefix / "share/lockstep/recipes/resnet50_imagenet.toml").unlink()
    refused = subprocess.run([prefix / "bin/trainer", "explain", "--config", "resnet50_imagenet"], cwd=directory, capture_output=True,
                             text=True)
    assert refused.returncode == 2 and "no recipe of that name" in refused.stderr, refused
    if subprocess.run(["strace", "-o", "/dev/null", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        run = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=file", "-o", "calls", prefix / "bin/trainer", "--config", "digits",
               "--train.steps", "1", "--checkpoint.directory", "run"]
        subprocess.run(run, cwd=directory, check=True, stdout=subprocess.DEVNULL, timeout=100)
        source = pathlib.Path(__file__).resolve().parents[2]
        tree = [pathlib.Path(build).resolve(), *(source / name for name in ("models", "data", "src", "scripts"))]
        calls = (pathlib.Path(directory) / "calls").read_text()
        assert "lockstep_cuda.so" in calls, "no plugin was looked for"
        for path in tree:
            found = [call for call in calls.splitlines() if f'"{path}/' in call]
            assert not found, f"the installed program looks into {path}:\n" + "\n".join(found[:5])
print("the installed recipe finds the installed data")
