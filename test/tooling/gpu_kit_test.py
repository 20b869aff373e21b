"""The GPU kit against programs that crash, hang, print NaN, never stop printing, or during which the kit is killed: in each step
in turn. A whole report remains, names the step and what happened, and the steps around it are not touched.

Real processes: the kit itself, and a stand-in for the programs that it starts.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
KIT = HERE.parents[1] / "scripts/gpu_kit"
STAND_IN = HERE / "gpu_kit/stand_in.py"
MODES = ("smoke", "accept", "engines", "pytorch")
DEADLINE = 100  # seconds that anything here may take
# What the report says of a step in which a program fails so.
SAYS = {"crash": "SIGSEGV", "hang": "had not ended", "nan": "(?i)nan", "flood": "printed more than 64 MiB"}


def is_alive(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def stand_ins_of(directory):
    """The living processes whose environment says that they belong to a run of this directory."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(directory).encode() in entry.read_bytes() and is_alive(entry.parent.name):
                found.append(entry.parent.name)
        except OSError:
            continue
    return found


class KitTest(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="gpu_kit_test."))
        self.addCleanup(shutil.rmtree, self.directory)
        bundle, path = self.directory / "bundle", self.directory / "path"
        for names, where in ((("trainer", "mpirun"), bundle), (("backend_test", "golden_test", "gpu_lab"), bundle / "bin"),
                             (("nvidia-smi", "ldd", "compute-sanitizer", "python"), path)):
            where.mkdir(parents=True, exist_ok=True)
            for name in names:
                (where / name).write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {STAND_IN} {name} "$@"\n')
                (where / name).chmod(0o755)
        (bundle / "run").write_text('#!/bin/sh\nexec "$@"\n')
        (bundle / "run").chmod(0o755)
        (bundle / "VERSION").write_text("0123456789ab\n")
        (bundle / "lib/lockstep").mkdir(parents=True)
        (bundle / "share").mkdir()
        shutil.copy(HERE.parents[1] / "test/models/step_budget.tsv", bundle / "share")
        (bundle / "lib/lockstep/lockstep_cuda.so").touch()
        self.bundle, self.path = bundle, path
        self.scratch = self.directory / "scratch"
        self.scratch.mkdir()

    def command(self, *options):
        return [sys.executable, str(KIT), "--bundle", str(self.bundle), "--out", str(self.directory / "out"),
                "--python", str(self.path / "python"), *options]

    def environment(self, faults):
        return dict(os.environ, PATH=f"{self.path}:{os.environ['PATH']}", STAND_IN_FAULTS=json.dumps(faults),
                    GPU_KIT_TEST=str(self.directory), TMPDIR=str(self.scratch))

    def run_kit(self, *options, faults=None):
        shutil.rmtree(self.directory / "out", ignore_errors=True)
        done = subprocess.run(self.command(*options), env=self.environment(faults or {}), timeout=DEADLINE, capture_output=True,
                              text=True, check=False)
        self.assertEqual(list(self.scratch.iterdir()), [])
        return done, self.read_report()

    def read_report(self):
        """The report, after the proof that both its files are whole."""
        def refuse(constant):
            self.fail(f"report.json has {constant}")

        text = (self.directory / "out/report.json").read_text()
        report = json.loads(text, parse_constant=refuse)
        markdown = (self.directory / "out/report.md").read_text()
        self.assertTrue(markdown.endswith("\n"))
        for step in report["steps"]:
            self.assertIn(f"| {step['step']} | {step['verdict']} |", markdown)
        return report

    def module(self, name):
        sys.path.insert(0, str(KIT))
        self.addCleanup(sys.path.remove, str(KIT))
        return __import__(name)

    def steps_of(self, mode):
        listed = subprocess.run(self.command("--mode", mode, "--list"), env=self.environment({}), check=True, timeout=DEADLINE,
                                capture_output=True, text=True).stdout
        self.assertEqual(list(self.scratch.iterdir()), [])
        return [line.split("\t")[2] for line in listed.splitlines()]

    def assert_faults_show(self, mode, *kinds):
        """Every third step fails, then their neighbours, then theirs: so each step, between others that do not. `kinds` of faults
        take turns."""
        steps = self.steps_of(mode)
        for first in range(3):
            faults = {step: kinds[i % len(kinds)] for i, step in enumerate(steps) if i % 3 == first}
            hanging = "|".join(f"^{re.escape(step)}$" for step, fault in faults.items() if fault == "hang") or "^$"
            done, report = self.run_kit("--mode", mode, "--go-on", "--limit", f"{hanging}=0.3", faults=faults)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(report["end"], "ended")
            self.assertEqual([step["step"] for step in report["steps"]], steps)
            for step in report["steps"]:
                with self.subTest(step=step["step"], fault=faults.get(step["step"])):
                    if step["step"] in faults:
                        self.assertEqual(step["verdict"], "FAILED", step)
                        self.assertRegex(step["remark"], SAYS[faults[step["step"]]])
                    else:
                        self.assertEqual(step["verdict"], "passed", step)
            self.assertEqual(stand_ins_of(self.directory), [])

    def wait_for(self, condition):
        end = time.monotonic() + DEADLINE
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def kill_in(self, mode, step, number):
        """The kit is killed while a step runs, as a call is at its limit."""
        shutil.rmtree(self.directory / "out", ignore_errors=True)
        with subprocess.Popen(self.command("--mode", mode, "--step", f"^{re.escape(step)}$"), env=self.environment({step: "hang"}),
                              stdout=subprocess.DEVNULL) as process:
            running = self.directory / "out/running.txt"
            self.wait_for(lambda: running.exists() and "about to hang" in running.read_text())
            process.send_signal(number)
            process.wait(timeout=DEADLINE)
        return process.returncode, self.read_report()


class Reasons(unittest.TestCase):
    def test_the_trainer_s_own_error_comes_before_what_looks_like_one(self):
        noise = "[hwloc/linux] failed to find sysfs cpu topology directory\n"
        ours = "rank 0@vm: error: rank 0@vm and rank 1@vm would compute on the same GPU"
        sys.path.insert(0, str(KIT))
        from children import telling_lines  # a module of the kit
        self.assertEqual(telling_lines(3 * noise + ours + "\nthe job has been aborted\n"), ours)
        self.assertIn("hwloc", telling_lines(noise + "it goes on\n"))


class Whole(KitTest):
    def test_a_run_without_faults_passes_and_names_the_device_as_fake(self):
        for mode in MODES:
            done, report = self.run_kit("--mode", mode)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual({step["verdict"] for step in report["steps"]}, {"passed"}, report["steps"])
            self.assertEqual(report["facts"]["commit"], "0123456789ab")
            self.assertIn("A fake device (Stand-in (fake)", report["warning"])
            self.assertIn("**A fake device (Stand-in (fake)", (self.directory / "out/report.md").read_text())

    def test_each_step_fails_in_some_way_and_the_others_go_on(self):
        self.assert_faults_show("smoke", "crash", "nan", "hang", "nan", "crash")

    def test_a_program_that_never_stops_printing_is_ended_and_the_log_stays_small(self):
        _, report = self.run_kit("--step", "probe", faults={"probe": "flood"})
        self.assertRegex(report["steps"][0]["remark"], SAYS["flood"])
        self.assertLess((self.directory / "out/log.txt").stat().st_size, 16 << 20)

    def test_other_modes_are_skipped_only_after_a_failure_that_leaves_them_without_sense(self):
        others = ("probe", "the plugin opens", "the device as cuDNN sees it", "every operation, every precision",
                  "golden values: cifar10_cnn", "one rank with NCCL, captured")
        pattern = "|".join(f"^{re.escape(step)}$" for step in (*others, "not captured"))
        for i, failed in enumerate(others):
            _, report = self.run_kit("--mode", "smoke,pytorch", "--step", pattern, faults={failed: "crash"})
            verdicts = {step["step"]: step["verdict"] for step in report["steps"]}
            self.assertEqual(verdicts.pop("not captured"), "skipped" if i < 3 else "passed")
            self.assertEqual(verdicts, {step: "FAILED" if step == failed else "passed" for step in others})
            if i < 3:
                self.assertIn(f'"{failed}" failed', report["steps"][-1]["remark"])

    def test_without_time_left_a_step_is_skipped_not_failed(self):
        done, report = self.run_kit("--seconds", "2")
        self.assertEqual(done.returncode, 1)  # nothing was tested
        self.assertEqual({step["verdict"] for step in report["steps"]}, {"skipped"})
        self.assertEqual(report["steps"][0]["remark"], "2 s left of the 25 s it may need")

    def test_a_step_is_started_with_half_of_the_time_that_it_may_need(self):
        _, report = self.run_kit("--mode", "pytorch", "--step", "^ceilings$|^compiled|^not captured$", "--seconds", "70")
        self.assertEqual([step["verdict"] for step in report["steps"]], ["passed", "passed", "skipped"])
        self.assertRegex(report["steps"][-1]["remark"], r"^\d\d s left of the 150 s it may need$")

    def pair_with(self, fault, verdict="FAILED"):
        """Returns the row and the remark of a pair in which that happens."""
        step = "pair: inception_v3 bf16 256"
        _, report = self.run_kit("--mode", "pytorch", "--step", f"^{step}$", faults={step: fault})
        self.assertEqual([one["verdict"] for one in report["steps"]], [verdict])
        return report["tables"]["Training beside PyTorch"][0], report["steps"][0]["remark"]

    def test_a_pair_compares_runs_with_and_without_timed_plans_and_the_same_memory(self):
        row, _ = self.pair_with("nothing", "passed")
        self.assertEqual((row["times PyTorch eager"], row["times PyTorch graph, timed plans"]), ("0.05", "0.05"))
        self.assertEqual(row["PyTorch graph, GB of the card"], 1.1)
        self.assertIn(row["Lockstep, GB of the card"], (1.1, None))  # None: nvidia-smi's stand-in was slower than Lockstep's

    def test_pytorch_that_dies_in_a_variant_leaves_those_before_it(self):
        row, remark = self.pair_with("half")
        self.assertEqual(row["times PyTorch eager"], "0.05")
        self.assertNotIn("times PyTorch graph", row)
        self.assertEqual(row["timed plans, ms"], "20.00")
        self.assertIn("SIGSEGV", remark)
        self.assertIn("PyTorch graph: no result", remark)

    def test_a_gpu_lab_that_dies_leaves_its_rows_and_sums(self):
        steps = {command: f"{command}: inception_v3 {precision} 256"
                 for command, precision in (("layers", "bf16"), ("engines", "bf16"), ("fusions", "fp16"))}
        pattern = "|".join(f"^{step}$" for step in steps.values())
        _, report = self.run_kit("--mode", "engines", "--step", pattern, faults=dict.fromkeys(steps.values(), "half"))
        self.assertEqual([step["verdict"] for step in report["steps"]], ["FAILED"] * 3)
        for command, step in zip(steps, report["steps"]):
            self.assertIn("SIGSEGV", step["remark"])
            table = (self.directory / f"out/{command}.tsv").read_text().splitlines()
            self.assertEqual(len(table), 2, table)
        self.assertEqual([row["convolutions"] for rows in report["tables"].values() for row in rows], ["1, and 109 not timed", 1])

    def test_the_device_is_kept_as_cudnn_describes_it(self):
        step = "the device as cuDNN sees it"
        for fault, expected in (("none", {"deviceVer": 900}), ("raw", "no {JSON\0")):
            _, report = self.run_kit("--step", f"^{step}$", faults={step: fault})
            self.assertEqual(report["steps"][0]["verdict"], "passed")
            self.assertEqual(json.loads((self.directory / "out/device.json").read_text())["cudnn_device"], expected)

    def test_gpu_lab_gets_less_than_the_limit_of_its_step(self):
        for limit, seconds in ((90, "75"), (20, "10")):
            self.run_kit("--mode", "engines", "--step", "^engines: resnet", "--limit", f"engines={limit}")
            self.assertRegex((self.directory / "out/log.txt").read_text(), f"gpu_lab engines resnet50 bf16 256 --seconds {seconds}\n")

    def test_a_second_run_of_lockstep_that_fails_leaves_the_comparison_with_the_first(self):
        row, remark = self.pair_with("again")
        self.assertEqual((row["times PyTorch eager"], row["times PyTorch graph"]), ("0.05", "0.05"))
        self.assertIn("the second run of Lockstep: trainer ended by SIGSEGV", remark)

    def test_a_pair_whose_step_was_not_captured_says_so_and_fails(self):
        row, remark = self.pair_with("uncaptured")
        self.assertEqual(row["times PyTorch eager"], "0.05")
        self.assertIn("the step was not captured: a stand-in", remark)
        self.assertIn("the step was not captured: a stand-in", row["remark"])

    def test_a_result_that_says_nothing_of_the_device_does_not_pass(self):
        steps = {"kill and resume": "resumed at step", "checkpoints between CPU and GPU": "resumed at step",
                 "memcheck of our kernels": "10 errors", "racecheck of our kernels": "10 hazards",
                 "ceilings": "PyTorch computed on the device cpu", "pair: resnet50 bf16 256": "PyTorch computed on the device cpu",
                 "engines: resnet50 bf16 256": "of 1 convolutions 0",
                 "fusions: inception_v3 fp16 256": "a fused convolution did not run"}
        pattern = "|".join(f"^{re.escape(step)}$" for step in steps)
        done, report = self.run_kit("--mode", "accept,engines,pytorch", "--step", pattern, faults=dict.fromkeys(steps, "wrong"))
        self.assertEqual({step["step"] for step in report["steps"]}, set(steps))
        for step in report["steps"]:
            self.assertEqual(step["verdict"], "FAILED", step)
            self.assertIn(steps[step["step"]], step["remark"])
        self.assertEqual(done.returncode, 1)

    def test_a_device_that_compute_sanitizer_does_not_support_is_no_failure(self):
        steps = ("memcheck of our kernels", "racecheck of our kernels")
        _, report = self.run_kit("--mode", "accept", "--step", "|".join(steps), faults=dict.fromkeys(steps, "unsupported"))
        self.assertEqual({step["verdict"] for step in report["steps"]}, {"skipped"})

    def test_memcheck_reports_no_calls_and_racecheck_runs_few_cases(self):
        self.run_kit("--mode", "accept", "--step", "of our kernels")
        log = (self.directory / "out/log.txt").read_text()
        self.assertRegex(log, r"compute-sanitizer --tool memcheck --report-api-errors no .* \[gpu\]\n")
        self.assertRegex(log, r"compute-sanitizer --tool racecheck .* an update on a GPU\*,.*\n")

    def test_programs_ask_the_python_of_the_kit_for_libraries_and_they_are_read_before(self):
        library = self.directory / "lib/libcudnn.so.9"
        library.parent.mkdir()
        library.write_bytes(bytes(20_000_000))
        seen = self.directory / "seen"
        (self.bundle / "run").write_text(f'#!/bin/sh\necho "$PYTHON" >>{seen}\nexport LD_LIBRARY_PATH={library.parent}\nexec "$@"\n')
        _, report = self.run_kit("--step", "probe")
        self.assertEqual(set(seen.read_text().splitlines()), {str(self.path / "python")})
        self.assertEqual(report["facts"]["cuDNN and cuBLAS read ahead"].split()[:2], ["1", "files,"])

    def test_the_machine_is_prepared(self):
        machine = self.module("machine")
        facts = {}
        library = self.directory / "libcublas.so.13"
        library.write_bytes(bytes(20_000_000))
        machine.read_ahead([str(self.directory), "", "/nowhere"], facts).join(DEADLINE)
        self.assertRegex(facts["cuDNN and cuBLAS read ahead"], r"^1 files, 0\.02 GB in ")
        for name in ("nvidia0", "nvidia1", "nvidiactl"):
            (self.directory / name).touch()
        held = machine.hold_cards(str(self.directory / "nvidia[0-9]*"))
        self.assertEqual([os.readlink(f"/proc/self/fd/{file}") for file in held],
                         [str(self.directory / name) for name in ("nvidia0", "nvidia1")])
        for file in held:
            os.close(file)

    def test_a_loopback_interface_that_is_down_is_brought_up(self):
        alone = ["unshare", "--map-root-user", "--net", sys.executable, "-c", "import machine; print(machine.loopback()); print(machine.loopback())"]
        try:
            done = subprocess.run(alone, cwd=KIT, capture_output=True, text=True, check=False, timeout=DEADLINE)
        except FileNotFoundError:
            self.skipTest("no unshare")
        if done.stderr.startswith("unshare:"):
            self.skipTest(done.stderr)
        self.assertEqual(done.stdout.splitlines(), ["was down, and the kit has brought it up", "up"], done.stderr)

    def test_a_failed_assertion_is_the_reason_not_one_that_passed(self):
        step = "golden values: cifar10_cnn"
        _, report = self.run_kit("--step", f"^{step}$", faults={step: "nan"})
        self.assertIn("CHECK( error < bound ) / with expansion: / nan < 0.001 / with message: / bf16 / 1 more", report["steps"][0]["remark"])

    def test_the_log_says_why_a_program_was_ended(self):
        self.run_kit("--step", "probe", "--limit", "probe=0.3", faults={"probe": "hang"})
        self.assertIn("[had not ended after 0 s]", (self.directory / "out/log.txt").read_text())

    def test_a_fake_device_is_named_by_each_mode_also_when_its_programs_fail(self):
        for mode, step in (("engines", "layers: resnet50 bf16 256"), ("pytorch", "not captured"),
                           ("accept", "twice the same run: the same bits")):
            _, report = self.run_kit("--mode", mode, "--step", f"^{step}$", faults={step: "crash"})
            self.assertEqual([step["verdict"] for step in report["steps"]], ["FAILED"])
            self.assertIn("A fake device", report["warning"], mode)
            _, report = self.kill_in(mode, step, signal.SIGTERM)
            self.assertIn("A fake device", report["warning"], mode)

    def test_the_commands_of_the_manual_select_steps_and_report_where_OUT_says(self):
        manual = (HERE.parents[1] / "docs/gpu.md").read_text()
        commands = re.findall(r"^    tar .* && (bundle/gpu_acceptance\.sh (?:.*\\\n)*.*)$", manual, re.MULTILINE)
        self.assertEqual(len(commands), 3, manual)
        start = self.bundle / "gpu_acceptance.sh"
        start.write_text(f'#!/bin/sh\nexec {sys.executable} {KIT} --bundle {self.bundle} "$@" --list\n')
        start.chmod(0o755)
        for call, command in enumerate(commands, 1):
            for out, expected in ((str(self.directory / "home"), "home"), ("", f"report/{call}")):
                listed = subprocess.run(command, shell=True, cwd=self.directory, env=dict(self.environment({}), OUT=out), check=True,
                                        timeout=DEADLINE, capture_output=True, text=True).stdout
                self.assertGreater(len(listed.splitlines()), 3, command)
                (self.directory / expected).rmdir()

    def test_a_directory_without_programs_is_no_success(self):
        self.bundle = self.directory / "elsewhere"
        done, report = self.run_kit("--mode", "smoke,accept")
        self.assertEqual(done.returncode, 1)
        self.assertEqual({step["verdict"] for step in report["steps"]}, {"skipped"})

    def test_a_killed_program_that_does_not_end_is_given_up(self):
        children = self.module("children")
        children.KILL_SECONDS = 0.1
        with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
            kill_session, children.kill_session = children.kill_session, lambda session: None
            try:
                self.assertIsNone(children.end_session(process))
            finally:
                kill_session(process.pid)


class Slow(KitTest):
    """Each step in each way."""

    def test_a_step_that_crashes_is_named_and_the_others_go_on(self):
        for mode in MODES:
            self.assert_faults_show(mode, "crash")

    def test_a_step_that_hangs_is_ended_at_its_limit_with_all_that_it_started(self):
        for mode in MODES:
            self.assert_faults_show(mode, "hang")

    def test_a_step_that_prints_nan_fails(self):
        for mode in MODES:
            self.assert_faults_show(mode, "nan")

    def test_a_kit_that_is_killed_leaves_the_step_that_ran(self):
        for mode in MODES:
            for step in self.steps_of(mode):
                with self.subTest(step=step):
                    code, report = self.kill_in(mode, step, signal.SIGKILL)
                    self.assertEqual(code, -signal.SIGKILL)
                    self.assertEqual((report["end"], report["steps"][0]["verdict"]), ("running", "running"))
                    for process in stand_ins_of(self.directory):
                        os.kill(int(process), signal.SIGKILL)  # what a hanging program started itself
                    for left in self.scratch.iterdir():
                        shutil.rmtree(left)

    def test_a_kit_that_is_asked_to_end_says_so_and_leaves_no_process(self):
        for mode in MODES:
            for step in self.steps_of(mode):
                with self.subTest(step=step):
                    code, report = self.kill_in(mode, step, signal.SIGTERM)
                    self.assertEqual(code, 3)
                    self.assertEqual((report["end"], report["steps"][0]["verdict"]), ("stopped by SIGTERM", "stopped"))
                    self.assertEqual(list(self.scratch.iterdir()), [])
                    self.assertEqual(stand_ins_of(self.directory), [])


if __name__ == "__main__":
    unittest.main()
