"""What files hold cannot act on the terminal that the log is read on, nor imitate lines of the log."""

import os
import unicodedata

import kit

# Clears lines, moves the cursor, sets the title, turns text round (bidirectional), and starts a line of its own.
HOSTILE = "x\x1b[2K\x1b[1A\r\x1b]0;title\x07\u009b2J\u202egnp.\nFORGED: the checksum is right\n"


class Escapes(kit.TestCase):
    def assert_harmless(self, result, quoted="\\x1b[2K"):
        for character in result.output:
            harmless = character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Zl", "Zp")
            self.assertTrue(harmless, f"U+{ord(character):04X} in\n{result.output!r}")
        self.assertNotIn("\nFORGED", "\n" + result.output)
        self.assertIn(quoted, result.output, "what is hostile is not printed at all")

    def small_checkpoint(self):
        """A finished run of a small network and its checkpoint."""
        self.records(12)
        config = self.config({"model.name": "wide_mlp", "model.vocabulary": 8, "model.hidden": [4], "model.classes": 2,
                              "data.format": "synthetic", "data.train": None, "data.augment": None,
                              "model.image_size": None, "model.aux_weight": None, "model.dropout": None,
                              "train.steps": 2})
        self.train(1, config)
        return config, self.path("run/step-00000002.h5")

    def test_names_of_features(self):
        body = kit.sparse_example(1, [2], [1.0], keys=(HOSTILE, "\x1b[2K" + "y" * 5000, "values"))
        kit.write(self.path("train.tfrecord"), kit.frame([body] * 8))
        config = self.config({"data.format": "tfrecord"})
        result = self.train(1, config, code=kit.DATA)
        self.assert_harmless(result)
        self.assertLess(max(map(len, result.output.splitlines())), 2000)

    def test_the_owner_of_a_foreign_lock(self):
        config, _ = self.small_checkpoint()
        with open("/proc/self/stat", encoding="ascii") as stat:
            started = stat.read().rsplit(")", 1)[1].split()[19]
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            space = boot.read().strip() + "/" + os.readlink("/proc/self/ns/pid")
        host = HOSTILE.split("\n", maxsplit=1)[0] + "z" * 5000
        kit.write(self.path("run/run.lock"), f"host {host}\npid {os.getpid()}\nstarted {started}\nspace {space}\n"
                                             "heartbeat 000000000001\n")
        result = self.run_job(1, "--config", config, "--train.steps", "4")
        self.assert_one_error(result, kit.CONFIG, f"process {os.getpid()} on x\\x1b[2K")
        self.assert_harmless(result)
        self.assertLess(max(map(len, result.output.splitlines())), 2000)


if __name__ == "__main__":
    kit.main()
