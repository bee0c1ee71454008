"""Machines of a cluster as namespaces of this one: own network, host name, processes and /tmp.

Nothing of them outlives the process that made them: interfaces and mounts go with the last process
of a machine, and those are killed with its first, whatever becomes of the test.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from processes import family

PROGRAMS = ("ip", "mount", "nsenter", "setpriv", "ss", "unshare")

FIRST = """
set -e
hostname "$0"
ip link set lo up
mount --rbind /tmp /mnt
mount -t tmpfs -o mode=1777 tmpfs /tmp
for path; do
    case $path in
        /tmp/*) mkdir -p "$path" && mount --rbind "/mnt${path#/tmp}" "$path" ;;
    esac
done
umount --lazy /mnt
echo ready
while :; do sleep 1; done # and take in what loses its parent
"""


class Machine:
    """One machine; it sees the files of this one, but of /tmp the shared folders only.

    Raises
    ------
    OSError
        Where there are no such namespaces, with what the system said.
    """

    def __init__(self, name: str, shared: Sequence[Path]) -> None:
        own = ("--net", "--uts", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child")
        first = ("sh", "-c", FIRST, name, *map(str, shared))
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", *own, *first],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        if said != "ready\n":
            self.end()
            raise OSError(said.strip() or "unshare said nothing")
        self.pid = family(self.process.pid)[1]

    def inside(self, *words: object) -> list[str]:
        """The words of a command that runs there."""
        where = ["nsenter", f"--target={self.pid}", "--net", "--uts", "--mount", "--pid"]
        return [*where, *map(str, words)]

    def says(self, *words: object) -> str:
        done = subprocess.run(self.inside(*words), capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise OSError(done.stderr.strip())
        return done.stdout

    def end(self) -> None:
        """Kill it, and so all that runs in it."""
        self.process.kill()
        self.process.wait(10)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


@contextlib.contextmanager
def network(names: Sequence[str], shared: Sequence[Path]) -> Iterator[dict[str, Machine]]:
    """Machines on one bridge, which is in the first; no way leads out. Addresses: `address`."""
    with contextlib.ExitStack() as stack:
        found = {name: stack.enter_context(Machine(name, shared)) for name in names}
        first, *others = names
        hub = found[first]
        hub.says("ip", "link", "add", "hub", "type", "bridge")
        hub.says("ip", "address", "add", f"{address(0)}/24", "dev", "hub")
        hub.says("ip", "link", "set", "hub", "up")
        for number, name in enumerate(others, 1):
            cable = ["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0"]
            own = ["nsenter", f"--target={hub.pid}", "--net"]
            subprocess.run([*own, *cable, "netns", str(found[name].pid)], check=True)
            hub.says("ip", "link", "set", name, "master", "hub", "up")
            found[name].says("ip", "address", "add", f"{address(number)}/24", "dev", "eth0")
            found[name].says("ip", "link", "set", "eth0", "up")
        yield found


def address(number: int) -> str:
    """That of the machine with this number."""
    return f"10.99.0.{number + 1}"
