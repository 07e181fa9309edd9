# Locks exclude: processes count under flock(1), and under fcntl's byte-range locks.
echo 0 >counter
for writer in 1 2 3 4; do
  (for n in $(seq 25); do flock counter.lock sh -c 'read -r n <counter; echo $((n + 1)) >counter'; done) &
done
wait
cat counter
python3 - <<'PYTHON'
import fcntl, os, struct
with open("record", "wb") as file:
    file.write(struct.pack("<Q", 0))
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        fd = os.open("record", os.O_RDWR)
        for _ in range(50):
            fcntl.lockf(fd, fcntl.LOCK_EX, 8, 0)
            value = struct.unpack("<Q", os.pread(fd, 8, 0))[0]
            os.pwrite(fd, struct.pack("<Q", value + 1), 0)
            fcntl.lockf(fd, fcntl.LOCK_UN, 8, 0)
        os._exit(0)
    children.append(child)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
print(struct.unpack("<Q", open("record", "rb").read())[0])
a, b = os.open("record", os.O_RDWR), os.open("record", os.O_RDWR)
fcntl.flock(a, fcntl.LOCK_EX)
try:
    fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("two hold the lock")
except BlockingIOError:
    print("one holds the lock")
PYTHON
