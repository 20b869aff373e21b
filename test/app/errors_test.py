"""Wrong input ends the job with its documented exit code and one clear message, with one rank or several."""

import concurrent.futures
import os
import struct
import subprocess

import h5py
import numpy

import kit


class Errors(kit.TestCase):
    def refused(self, code, *rows, arguments=(), ranks=(0, 2)):
        """Each row is a configuration file (or "") and texts. Alone and under mpirun, that exit code is expected, and
        one error line with all the texts. The jobs run side by side: for the most part mpirun waits in its sleep."""

        def run(job):
            row, (config, *_), count = job
            options = ["--config", config, "--checkpoint.directory", f"run{row}.{count}"] if config else []
            return self.run_job(count, *arguments, *options, timeout=100)

        jobs = [(row, texts, count) for row, texts in enumerate(rows) for count in ranks]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for (row, (config, *texts), count), result in zip(jobs, pool.map(run, jobs)):
                with self.subTest(config=config, texts=texts, ranks=count):
                    self.assert_one_error(result, code, *texts)
                    self.assertEqual(kit.checkpoints(self.path(f"run{row}.{count}")), [])

    def test_configurations_that_make_no_sense(self):
        self.records(10)
        good = kit.toml(kit.SMALL)
        for name, line in (("unknown", "stepps = 20"), ("type", 'steps = "many"'), ("twice", "steps = 20\nsteps = 21")):
            kit.write(self.path(name + ".toml"), good.replace("steps = 20", line))
        self.refused(kit.CONFIG,
                     ("unknown.toml", "unknown.toml:", "stepps", "train.steps"),
                     ("type.toml", "type.toml:", "steps", "integer"),
                     ("twice.toml", "twice.toml:", "steps"),
                     ("nowhere.toml", "nowhere.toml"))

    def test_models_that_do_not_fit_their_settings(self):
        def config(key, value):
            return self.config({"train.steps": 1, key: value}, kit.LARGE, f"{key}.toml")

        self.refused(kit.CONFIG,
                     (config("model.image_size", 74), "model.image_size = 74", "75"),
                     (config("model.aux_weight", 0.4), "model.aux_weight", "299"),
                     (config("train.batch_size", 1), "one value", "train.batch_size"))

    def test_a_model_larger_than_the_memory_of_the_host(self):
        self.records(10)
        kit.write(self.path("large.toml"), kit.toml(kit.merged(kit.SMALL, {
            "train.batch_size": 1000000, "model.image_size": 299})))
        self.refused(kit.CONFIG, ("large.toml", "the model does not fit in memory: a rank needs", "and there are",
                                  "lower train.batch_size (1000000), model.image_size (299)"))

    def test_batches_that_do_not_fit_in_memory(self):
        self.records(10)
        config = self.config({"train.batch_size": 4096, "data.prefetch": 256})
        for ranks in (1, 2):
            result = self.run_job(ranks, "--config", config, wrapper=["sh", "-c", 'ulimit -v 2500000; exec "$@"', "sh"])
            self.assert_one_error(result, kit.CONFIG, "not enough memory for 257 batches of 4096 samples")

    def test_global_batches_that_do_not_divide(self):
        self.records(10)
        config = self.config({"train.batch_size": None, "train.global_batch": 25})
        self.refused(kit.CONFIG, (config, "train.global_batch = 25", "24 and 26"), ranks=(2,))

    def test_command_lines_that_are_not_understood(self):
        self.records(10)
        config = self.config()
        self.refused(kit.CONFIG, (config, "evalute", "evaluate"), arguments=["evalute"])
        self.refused(kit.CONFIG, (config, "--trian.steps", "--train.steps"), arguments=["--trian.steps", "3"])
        self.refused(kit.CONFIG, (config, "--train.steps", "twice"),
                     arguments=["--train.steps", "3", "--train.steps", "4"])
        self.refused(kit.CONFIG, ("", "no configuration"))

    def test_data_that_are_missing_empty_or_something_else(self):
        kit.write(self.path("empty.tfrecord"), b"")
        os.makedirs(self.path("directory/class"))
        with h5py.File(self.path("flat.h5"), "w") as file:
            file["images"] = numpy.zeros((4, 48), numpy.uint8)
            file["labels"] = numpy.zeros(4, numpy.int64)

        def config(name, data_format="tfrecord"):
            return self.config({"data.train": name, "data.format": data_format}, name=name + ".toml")

        self.refused(kit.DATA,
                     (config("missing.tfrecord"), "missing.tfrecord"),
                     (config("empty.tfrecord"), "empty.tfrecord"),
                     (config("folder", "folder"), "folder"),
                     (config("flat.h5", "hdf5"), "flat.h5", "[N,C,H,W]"))

    def test_a_pipe_is_refused_by_name_where_data_or_a_checkpoint_are_wanted(self):
        self.records(24)
        pipes = [kit.toml(kit.merged(kit.SMALL, {key: name})) for key, name in (
            ("checkpoint.init_from", "pipe.h5"), ("checkpoint.resume", "pipe.h5"), ("data.train", "pipe.tfrecord"))]
        for name in ("pipe.h5", "pipe.tfrecord"):
            os.mkfifo(self.path(name))
        for number, text in enumerate(pipes):
            kit.write(self.path(f"{number}.toml"), text)
        reason = "is a pipe, where a file is needed"
        self.refused(kit.CHECKPOINT, ("0.toml", "pipe.h5: " + reason), ("1.toml", "pipe.h5: " + reason))
        self.refused(kit.DATA, ("2.toml", "pipe.tfrecord: " + reason))
        self.refused(kit.CHECKPOINT, ("", "pipe.h5: " + reason), arguments=("evaluate", "--checkpoint", "pipe.h5"))

    def test_records_that_are_damaged_or_mislabelled(self):
        good = kit.images(20)
        begin = len(kit.tfrecord(good[:7]))  # of record 7
        records = kit.tfrecord(good)
        flipped = bytearray(records)
        flipped[begin + 40] ^= 1

        def with_record_7(encoded, label=7):
            return kit.tfrecord([*good[:7], (encoded, label), *good[8:]])

        cut = records[:begin] + struct.pack("<Q", 1 << 40) + records[begin + 8:]
        rows = []
        for name, data, *told in (
                ("truncated", records[:-5], "record 19"),
                ("checksum", bytes(flipped), "record 7", "checksum"),
                ("header", cut, "record 7"),
                ("label", with_record_7(good[7][0], 10), "record 7", "label 10", "0..9"),
                ("image", with_record_7(good[7][0][:60]), "record 7"),
                ("text", with_record_7(b"not an image"), "record 7"),
        ):
            kit.write(self.path(name + ".tfrecord"), data)
            config = self.config({"data.train": name + ".tfrecord"}, name=name + ".toml")
            rows.append((config, name + ".tfrecord", *told))
        self.refused(kit.DATA, *rows)

    # Only one of two ranks reads the bad record (there are as many records as samples in a step). The job must not
    # wait for the other.
    def test_a_data_error_on_one_rank_ends_all_of_them(self):
        good = kit.images(24)
        kit.write(self.path("train.tfrecord"), kit.tfrecord([*good[:20], (good[20][0][:60], 0), *good[21:]]))
        result = self.train(2, self.config({"data.shuffle": False, "watchdog.abort_seconds": 40}), code=kit.DATA)
        self.assert_one_error(result, kit.DATA, "rank 1@", "train.tfrecord record 20")
        self.assertLess(result.seconds, 20)

    def test_ranks_that_see_different_files(self):
        self.records(30)
        other = self.records(20, "other.tfrecord")
        mount = f'mount --bind "{other}" "{self.path("train.tfrecord")}"'
        if subprocess.run(["unshare", "-m", "sh", "-c", mount], check=False).returncode:
            self.skipTest("no private mounts here")
        script = kit.write(self.path("wrapper.sh"), f"""#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 1 ] || exec "$@"
exec unshare -m sh -c '{mount} && exec "$@"' sh "$@"
""")
        os.chmod(script, 0o755)
        result = self.run_job(3, "--config", self.config(), wrapper=[script])
        self.assert_one_error(result, kit.DATA, "data.train has 30 samples on rank 0@", "but 20 on rank 1@")

    def test_checkpoints_of_another_model(self):
        self.records(10)
        self.train(1, self.config({"train.steps": 1}))
        config = self.config({"model.classes": 12})
        for ranks in (0, 2):
            self.assert_one_error(self.run_job(ranks, "--config", config), kit.CONFIG, "fc5.weight", "[10,192]",
                                  "[12,192]")


class Numerics(kit.TestCase):
    def test_a_rate_that_is_far_too_high_stops_all_ranks_and_publishes_nothing_that_is_not_finite(self):
        self.records(30)
        config = self.config({"optimizer.lr": 1e20, "checkpoint.every_steps": 1, "checkpoint.keep": 100})
        for ranks in (1, 2, 3):
            directory = f"run{ranks}"
            result = self.train(ranks, config, {"checkpoint.directory": directory}, code=kit.NUMERICS)
            self.assertEqual(len(result.errors()), 1, str(result))
            self.assertRegex(result.errors()[0], r"step \d+")
            for name in kit.checkpoints(self.path(directory)):
                for key, values in kit.datasets(self.path(directory, name)).items():
                    self.assertTrue(numpy.isfinite(values).all(), f"{name}: {key}")


if __name__ == "__main__":
    kit.main()
