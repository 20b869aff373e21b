"""Prepares the machine: a loopback interface, an open card, and CUDA's libraries in the page cache."""

import contextlib
import fcntl
import os
import pathlib
import socket
import struct
import threading
import time

SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914  # <linux/sockios.h>
IFF_UP = 1                                   # <net/if.h>
REQUEST = struct.Struct("16sH22x")           # struct ifreq with flags
CARDS = "/dev/nvidia[0-9]*"
LIBRARIES = ("libcudnn*.so*", "libcublas*.so*")
READ_AHEAD = "cuDNN and cuBLAS read ahead"


def loopback():
    """Brings the loopback interface up, without which mpirun does not start. Returns what it found."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            _, flags = REQUEST.unpack(fcntl.ioctl(any_socket, SIOCGIFFLAGS, REQUEST.pack(b"lo", 0)))
            if flags & IFF_UP:
                return "up"
            try:
                fcntl.ioctl(any_socket, SIOCSIFFLAGS, REQUEST.pack(b"lo", flags | IFF_UP))
            except OSError as error:
                return f"DOWN, so mpirun does not start; as root: ip link set lo up ({error.strerror})"
            return "was down, and the kit has brought it up"
    except OSError as error:
        return f"unknown: {error.strerror}"


def hold_cards(pattern=CARDS):
    """Opens the driver's files of all cards and leaves them open until the kit ends. A driver without persistence mode initializes a
    card that no program has open again for the next one, which takes seconds. Changes no setting."""
    held = []
    for path in sorted(pathlib.Path("/").glob(pattern.lstrip("/"))):
        with contextlib.suppress(OSError):
            held.append(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    return held


def read_ahead(directories, facts):
    """Starts a thread that reads cuDNN's and cuBLAS's libraries once. They have more than a gigabyte, and the programs that are the
    first to open them would wait for the disk. The thread records in `facts` how long it took."""
    files = sorted({file.resolve() for directory in directories if directory for pattern in LIBRARIES
                    for file in pathlib.Path(directory).glob(pattern)})
    facts[READ_AHEAD] = f"{len(files)} files, not finished" if files else "none found"

    def read():
        begin, total, buffer = time.monotonic(), 0, bytearray(16 << 20)
        for file in files:
            with contextlib.suppress(OSError), open(file, "rb", buffering=0) as stream:
                while count := stream.readinto(buffer):
                    total += count
        facts[READ_AHEAD] = f"{len(files)} files, {total / 1e9:.2f} GB in {time.monotonic() - begin:.1f} s"

    thread = threading.Thread(target=read, daemon=True)
    if files:
        thread.start()
    return thread
