"""The Debian package: what it declares, what is in it, and that it works from where it was unpacked. Without Debian's tools
the test is skipped.

    package_test.py CPACK BUILD_DIRECTORY VERSION
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FILES = """usr/bin/lockstep
usr/bin/lockstep-run
usr/bin/trainer
usr/share/bash-completion/completions/lockstep
usr/share/bash-completion/completions/trainer
usr/share/doc/lockstep/CHANGELOG.md
usr/share/doc/lockstep/LICENSE
usr/share/doc/lockstep/NOTICE
usr/share/lockstep/data/digits/README.md
usr/share/lockstep/data/digits/train.tfrecord
usr/share/lockstep/data/digits/validation.tfrecord
usr/share/lockstep/models/inception_v3.toml
usr/share/lockstep/models/resnet18.toml
usr/share/lockstep/plot.py
usr/share/lockstep/recipes/digits.toml
usr/share/lockstep/recipes/inception_v3_imagenet.toml
usr/share/lockstep/slurm/README.md
usr/share/lockstep/slurm/mpirun.sbatch
usr/share/lockstep/slurm/srun.sbatch
usr/share/lockstep/to_mlflow.py
usr/share/man/man1/lockstep.1
usr/share/man/man1/trainer.1""".splitlines()
EXECUTABLES = ("usr/bin/lockstep", "usr/bin/lockstep-run", "usr/bin/trainer", "usr/share/lockstep/plot.py",
               "usr/share/lockstep/to_mlflow.py")


def output_of(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def check_declaration(package, version):
    fields = dict(re.findall(r"^([A-Z][\w-]*): (.*)$", output_of("dpkg-deb", "--field", package), re.MULTILINE))
    assert fields["Package"] == "lockstep" and fields["Version"] == version, fields
    return {dependency.split()[0] for dependency in fields["Depends"].split(",")}


def check_contents(package):
    """Everything belongs to root and can be read by everybody; nothing lies outside of /usr."""
    found = set()
    for line in output_of("dpkg-deb", "--contents", package).splitlines():
        mode, owner, _, _, _, path = line.split(maxsplit=5)
        path = path.removeprefix("./").rstrip("/")
        assert owner == "root/root", line
        wanted = "drwxr-xr-x" if mode[0] == "d" else "-rwxr-xr-x" if path in EXECUTABLES else "-rw-r--r--"
        assert mode == wanted, f"mode {mode} instead of {wanted}: {line}"
        if mode[0] != "d":
            found.add(path)
            assert re.match("usr/(bin/(trainer|lockstep|lockstep-run)$|share/((doc/)?lockstep/|man/man1/(trainer|lockstep)|"
                            "bash-completion/completions/(trainer|lockstep)$))", path), line
    assert found >= set(FILES), f"missing: {set(FILES) - found}"


def check_dependencies(program, declared):
    """The packages of all libraries that the program names are dependencies, and so is mpirun's."""
    assert "openmpi-bin" in declared, declared
    needed = re.findall(r"^ +NEEDED +(\S+)", output_of("objdump", "-p", program), re.MULTILINE)
    paths = dict(re.findall(r"(\S+) => (/\S+)", output_of("ldd", program)))
    for library in needed:
        if library.startswith("ld-linux"):
            continue
        path = paths[library]
        owners = [owner for candidate in (path, os.path.realpath(path), path.removeprefix("/usr"))
                  for owner in re.findall(r"^([^:, ]+)", subprocess.run(["dpkg", "-S", candidate], text=True,
                                                                        capture_output=True).stdout, re.MULTILINE)]
        assert declared & set(owners), f"{library} of {owners} is not in Depends: {declared}"


def main(cpack, build, version):
    for tool in ("dpkg-deb", "dpkg-shlibdeps", "file", "objdump"):
        if not shutil.which(tool):
            print(f"skipped: no {tool}")
            return 77
    with tempfile.TemporaryDirectory() as directory:
        os.umask(0o077)
        output_of(cpack, "-G", "DEB", "--config", f"{build}/CPackConfig.cmake", "-B", directory)
        package, = pathlib.Path(directory).glob("*.deb")
        declared = check_declaration(package, version)
        check_contents(package)
        root = pathlib.Path(directory) / "root"
        output_of("dpkg-deb", "--extract", package, root)
        check_dependencies(root / "usr/bin/trainer", declared)
        explained = output_of(root / "usr/bin/trainer", "explain", "--config", "digits", cwd=directory)
        assert str(root / "usr/share/lockstep/data/digits/train.tfrecord") in explained, explained
        command = output_of(root / "usr/bin/lockstep", "run", "-np", "2", "--print", "--config", "digits")
        assert f" {root}/usr/bin/trainer --config digits\n" in command and " mpirun -np 2 " in command, command
    print(f"{package.name} is complete and works; it depends on {len(declared)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
