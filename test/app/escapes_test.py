"""What files hold cannot act on the terminal that the log is read on, nor imitate lines of the log."""

import os
import struct
import unicodedata

import h5py
import numpy

import kit

# Clears lines, moves the cursor, sets the title, turns text round (bidirectional), and starts a line of its own.
HOSTILE = "x\x1b[2K\x1b[1A\r\x1b]0;title\x07\u009b2J\u202egnp.\nFORGED: the checksum is right\n"
USER_BLOCK = 512


def crc64(data):
    """CRC-64/XZ."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0xC96C5795D7870F42 if byte & 1 else 0)
        table.append(byte)
    crc = 2**64 - 1
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ (2**64 - 1)


def seal(path, step):
    """Gives a changed checkpoint the header that belongs to it."""
    with open(path, "rb") as file:
        body = file.read()[USER_BLOCK:]
    text = f"lockstep-checkpoint\nversion 1\nstep {step}\nbytes {USER_BLOCK + len(body)}\ncrc64 {crc64(body):016x}\n"
    text += f"header {crc64(text.encode()):016x}\n"
    kit.write(path, text.encode().ljust(USER_BLOCK, b"\0") + body)


class Escapes(kit.TestCase):
    def assert_harmless(self, result, quoted="\\x1b[2K"):
        output = result.output.replace("---\n\0", "---\n")  # Open MPI 5 ends its note on MPI_Abort with a zero
        for character in output:
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

    def test_what_a_checkpoint_says_of_itself(self):
        config, path = self.small_checkpoint()
        with h5py.File(path, "r+") as file:
            file.attrs["model"] = numpy.bytes_(HOSTILE.encode())
            file.attrs["created"] = numpy.bytes_(HOSTILE.encode())
            file["training/" + HOSTILE.replace("/", "")] = numpy.array([1], numpy.int64)
            file["model/" + HOSTILE] = numpy.zeros(3, numpy.float32)
            if "classes" in file:
                del file["classes"]
            file["classes"] = numpy.array([HOSTILE.encode(), b"dog"])
        seal(path, 2)
        for arguments in (["inspect", path], ["inspect", "--verify", path], ["inspect", path, "--compare", path]):
            result = self.run_job(0, *arguments)
            self.assertEqual(result.code, kit.OK, str(result))
            self.assert_harmless(result)
        result = self.run_job(1, "--config", config, "--train.steps", "4")  # resumes
        self.assertEqual(result.code, kit.CONFIG, str(result))
        self.assert_harmless(result)

    def test_names_of_classes_and_pictures(self):
        for name in ("cat", HOSTILE.replace("/", "")):
            for i in range(3):
                kit.write(self.path("images", name, f"{i}{HOSTILE}.png"), kit.images(3)[i][0])
        kit.write(self.path("images", HOSTILE, "broken.png"), b"no picture")
        config = self.config({"data.format": "folder", "data.train": "images", "model.classes": 2, "train.steps": 3,
                              "train.batch_size": 4, "data.bad_records": "skip"})
        self.assert_harmless(self.train(1, config))
        self.assert_harmless(self.run_job(0, "inspect", self.path("run/latest")))
        result = self.train(1, config, {"data.bad_records": "fail", "checkpoint.directory": "other"}, code=kit.DATA)
        self.assert_harmless(result)

    def test_names_of_features(self):
        body = kit.sparse_example(1, [2], [1.0], keys=(HOSTILE, "\x1b[2K" + "y" * 5000, "values"))
        kit.write(self.path("train.tfrecord"), kit.frame([body] * 8))
        config = self.config({"data.format": "tfrecord"})
        result = self.train(1, config, code=kit.DATA)
        self.assert_harmless(result)
        self.assertLess(max(map(len, result.output.splitlines())), 2000)

    def test_tensors_of_another_program(self):
        header = ('{"x\\u001b[2K\\nFORGED: the checksum is right": {"dtype": "\\u001b[2K\\nFORGED", "shape": [1], '
                  '"data_offsets": [0, 4]}}').encode()
        kit.write(self.path("w.safetensors"), struct.pack("<Q", len(header)) + header + bytes(4))
        result = self.run_job(0, "import", self.path("w.safetensors"), "--to", self.path("w.h5"))
        self.assertNotEqual(result.code, kit.OK)
        self.assert_harmless(result)

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
