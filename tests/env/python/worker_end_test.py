"""How the process that forks workers ends when the evaluator closes its side, without torch: worker_end_test.py SOURCE_TREE"""

import os
import signal
import socket
import subprocess
import sys
import unittest

SERVER = """
import os, signal, sys, time, types
sys.path.insert(0, sys.argv[1])
sys.modules["caller"] = types.ModuleType("caller")  # imports torch
import worker
worker.SOCKET = int(sys.argv[2])


class Slow(worker.Server):
    def fork(self, worker_socket):
        os.read(0, 1)
        return super().fork(worker_socket)


class Library:
    def KevinUnshare(self):
        if "dies early" in sys.argv:
            parent = os.getppid()
            os.kill(parent, signal.SIGKILL)
            while os.getppid() == parent:
                time.sleep(0.001)
        return True

    def KevinMapTwoUsers(self, middle):
        if "dies late" in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
        return True


server = Slow if "slow" in sys.argv else worker.Server
server(Library(), 1, "namespaces" in sys.argv, []).serve()
"""
FOLDER = os.path.join(sys.argv.pop(1), "env/python")


class WorkerEnd(unittest.TestCase):
    def start(self, *arguments):
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.server = subprocess.Popen([sys.executable, "-c", SERVER, FOLDER, str(theirs.fileno()), *arguments],
                                       stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       pass_fds=[theirs.fileno()], start_new_session=True)
        theirs.close()

    def ask(self):
        """A worker's socket; its other end is the worker's."""
        own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        socket.send_fds(self.ours, [b"j"], [theirs.fileno()])
        theirs.close()
        return own

    def end(self, text=""):
        """Status and text of the process, and the text of its workers, which have its standard error."""
        try:
            _, said = self.server.communicate(text, timeout=100)
        except subprocess.TimeoutExpired:
            os.killpg(self.server.pid, signal.SIGKILL)
            raise
        return self.server.returncode, said

    def test_closed_while_nothing_was_asked(self):
        self.start()
        self.ours.close()
        self.assertEqual(self.end(), (0, ""))

    def test_closed_before_the_answer_was_read(self):
        self.start()
        own = self.ask()
        self.assertIn(b"pid", self.ours.recv(256, socket.MSG_PEEK))
        self.ours.close()
        own.close()
        self.assertEqual(self.end(), (0, ""))

    def test_closed_before_the_answer_was_sent(self):
        self.start("slow")
        own = self.ask()
        self.ours.close()
        own.close()
        self.assertEqual(self.end("go"), (0, ""))

    def test_spares_that_are_not_needed_end(self):
        self.start()
        for own in [self.ask(), self.ask()]:
            self.assertIn(b"pid", self.ours.recv(256))
            own.close()
        self.ours.close()
        self.assertEqual(self.end(), (0, ""))

    def test_nothing_stays_of_a_fork_whose_server_was_killed(self):
        for when in ("dies early", "dies late"):
            self.start("namespaces", when)
            own = self.ask()
            self.assertEqual(self.end(), (-signal.SIGKILL, ""), when)
            self.ours.close()
            own.close()

    def test_a_failure_is_told(self):
        self.start()
        self.ours.send(b"j")  # without a socket
        status, said = self.end()
        self.ours.close()
        self.assertEqual(status, 1)
        self.assertIn("IndexError", said)

    def test_a_worker_that_fails_says_why(self):
        self.start()
        own, job = self.ask(), os.memfd_create("job")
        self.assertIn(b"pid", self.ours.recv(256))
        socket.send_fds(own, [b"j"], [job] * 6)
        self.ours.close()
        status, said = self.end()
        own.close()
        os.close(job)
        self.assertEqual(status, 0)
        self.assertIn("worker: AttributeError", said)  # the stand-in reads no job


if __name__ == "__main__":
    unittest.main()
