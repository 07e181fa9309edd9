# Descriptors are real ones: shared by fork and dup, passed between processes, open after unlink, nameless at first.
python3 - <<'PYTHON'
import os, socket, array
fd = os.open("shared", os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, b"parent ")
if os.fork() == 0:
    os.write(fd, b"child ")
    os._exit(0)
os.wait()
os.write(os.dup(fd), b"dup")
print(os.pread(fd, 100, 0))
left, right = socket.socketpair()
socket.send_fds(left, [b"x"], [fd])
_, fds, _, _ = socket.recv_fds(right, 1, 1)
print(os.lseek(fds[0], 0, os.SEEK_CUR))
os.rename("shared", "renamed")
os.write(fd, b" renamed")
os.link("renamed", "second")
os.unlink("renamed")
print(open("second", "rb").read())
os.unlink("second")
os.write(fd, b" unlinked")
print(os.pread(fd, 100, 0), os.fstat(fd).st_nlink)
nameless = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o644)
os.write(nameless, b"named at last")
os.link(f"/proc/self/fd/{nameless}", "named", src_dir_fd=nameless, follow_symlinks=True)
print(open("named", "rb").read())
source, target = os.open("named", os.O_RDONLY), os.open("copied", os.O_WRONLY | os.O_CREAT, 0o644)
print(os.sendfile(target, source, 0, 5), os.copy_file_range(source, target, 8, 5, 5))
PYTHON
cat copied
