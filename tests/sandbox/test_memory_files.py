"""Memory that is no heap is bounded, too: S11 of a security review."""

from daemon.sandbox.bounds import ProgramLimits
from tests.sandbox.conftest import Cell

_SMALL = ProgramLimits(memory=64 << 20)


async def test_a_program_cannot_put_more_than_its_memory_into_files_in_memory(cell: Cell) -> None:
    code = """
import os
def fill(folder):
    size = 0
    try:
        for number in range(32):
            with open(f"{folder}/{number}", "wb") as file:
                for _ in range(16):
                    size += file.write(bytes(1 << 20))
                    file.flush()
    except OSError:
        pass
    return size
print(sum(fill(folder) for folder in ("/tmp", "/dev/shm", "/dev", "/", "/run", "/var/tmp")))
"""
    result = await cell.python(code, limits=_SMALL)
    assert result.code == 0, result.output.text()
    assert int(result.output.text()) <= _SMALL.memory


async def test_a_program_gets_no_file_in_memory_without_a_folder(cell: Cell) -> None:
    code = """
import ctypes, errno, os
try:
    print(os.memfd_create("x"))
except OSError as error:
    print(errno.errorcode[error.errno])
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(447, 0), errno.errorcode[ctypes.get_errno()])  # memfd_secret
"""
    assert (await cell.python(code)).output.text() == "ENOSYS\n-1 ENOSYS\n"


async def test_a_program_may_use_temporary_files_in_bubblewrap(cell: Cell) -> None:
    code = "import tempfile; print(tempfile.TemporaryFile(dir='.').write(b'x'))"
    assert (await cell.python(code, writes=True)).output.text() == "1\n"
    result = await cell.sh("echo x > /dev/null && echo x > /tmp/a && cat /tmp/a")
    assert (result.output.text() == "x\n") == (cell.sandbox.level == "bubblewrap")
