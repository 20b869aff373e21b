"""What a person sees in a terminal: a bar instead of lines."""

import fcntl
import os
import pty
import struct
import termios

import kit


class Terminal(kit.TestCase):
    def seen(self, config, env=None):
        """What mpirun's own terminal of 140 columns shows of a run."""
        arguments = [kit.MPIRUN, "-np", "2", kit.TRAINER, "--config", config]
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execve(arguments[0], arguments, kit.environment(env))
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 140, 0, 0))
        output = b""
        while True:
            try:
                piece = os.read(terminal, 4096)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            output += piece
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), kit.OK, output)
        return output.decode(errors="replace")

    def test_a_terminal_shows_a_bar(self):
        self.records(24)
        config = self.config({"train.steps": 8, "train.batch_size": 6})
        output = self.seen(config)
        self.assertRegex(output, r"step 4/8 \[=+> +\] [\d.]+ examples/sec loss [\d.]+ ETA 0:00:00 \[data \d+ compute")
        self.assertNotIn(": step 4, loss", output)
        lines = self.seen(config, {"LOCKSTEP_LOG_PROGRESS": "lines", "LOCKSTEP_CHECKPOINT_DIRECTORY": "again"})
        self.assertIn(": step 4, loss", lines)
        self.assertNotIn("\x1b[", lines)


if __name__ == "__main__":
    kit.main()
