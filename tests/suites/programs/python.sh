# Python's files, in the ways in which its own tests use them: raw, buffered and as text, by os and by mmap.
python3 - <<'PYTHON'
import io, mmap, os, random, select, shutil, tempfile, threading

def check(what, holds):
    print(what, "ok" if holds else "WRONG")

# io: raw, buffered, text; modes; seek, truncate and tell after each other.
with open("raw", "wb", buffering=0) as f:
    check("raw write", [f.write(b"x" * n) for n in (1, 70000, 5)] == [1, 70000, 5] and f.tell() == 70006)
    check("raw seek", f.seek(-6, 2) == 70000 and f.write(b"yyyyyy") == 6 and f.truncate(70003) == 70003 and f.tell() == 70006)
    f.write(b"z")
check("raw read", open("raw", "rb").read() == b"x" * 70000 + b"yyy\0\0\0z")
with open("buffered", "w+b") as f:
    for n in range(3000):
        f.write(b"%07d\n" % n)
    f.seek(80); f.write(b"OVERWRITTEN")
    f.seek(0)
    check("buffered", f.read(100)[80:91] == b"OVERWRITTEN" and f.seek(0, 2) == 24000)
    f.truncate(12345); f.seek(12340)
    check("truncated", len(f.read()) == 5 and f.read() == b"")
    f.seek(20000); f.write(b"!")
    f.flush()
    check("flushed", os.stat("buffered").st_size == 20001)
with open("text", "w", encoding="utf-16", newline="\r\n") as f:
    f.writelines(f"zeile {n} äöü\n" for n in range(2000))
with open("text", "r+", encoding="utf-16") as f:
    first = f.readline(); place = f.tell(); f.readline(); f.seek(place)
    check("text", first == "zeile 0 äöü\n" and f.readline().startswith("zeile 1"))
for n in range(50):
    with open("appended", "ab") as f:
        f.write(b"%d " % n)
with open("appended", "a+b") as f:
    f.seek(3); f.write(b"end"); f.seek(0)
    check("appended", f.read().endswith(b"48 49 end"))
with open("twice", "wb") as one, open("twice", "r+b") as two:
    one.write(b"1" * 9000); one.flush(); two.seek(4000); two.write(b"2" * 9000); two.flush()
    one.seek(0, 1); one.write(b"3" * 10); one.flush()
check("twice", open("twice", "rb").read() == b"1" * 4000 + b"2" * 5000 + b"3" * 10 + b"2" * 3990)
try:
    open("raw", "xb")
except FileExistsError:
    check("exclusive", True)

# os: vectors, duplicates, positions, allocation, copies, directories.
fd = os.open("os", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o640)
check("writev", os.writev(fd, [b"a" * 5000, b"", b"b" * 5000]) == 10000)
check("pwritev", os.pwritev(fd, [b"c" * 10, b"d" * 10], 4990) == 20)
twin = os.dup(fd)
os.lseek(twin, 100, 0); os.write(fd, b"shared position")
check("dup", os.lseek(twin, 0, 1) == 115)
buffers = [bytearray(5), bytearray(10)]
check("preadv", os.preadv(fd, buffers, 100) == 15 and bytes(buffers[0] + buffers[1]) == b"shared position")
os.posix_fallocate(fd, 9000, 5000)
check("fallocate", os.fstat(fd).st_size == 14000)
os.ftruncate(fd, 12000); os.fsync(fd); os.fdatasync(fd)
target = os.open("os copy", os.O_WRONLY | os.O_CREAT, 0o600)
done = 0
while (n := os.copy_file_range(fd, target, 100000, done, done)):
    done += n
sent = os.sendfile(os.open("os sent", os.O_WRONLY | os.O_CREAT, 0o600), fd, 0, 100000)
check("copies", done == sent == 12000 and open("os copy", "rb").read() == open("os sent", "rb").read() == open("os", "rb").read())
os.set_inheritable(fd, True)
child = os.posix_spawn("/bin/sh", ["sh", "-c", f"printf inherited >&{fd}"], os.environ)
os.waitpid(child, 0)
check("inherited", os.pread(fd, 9, 115) == b"inherited")
if os.fork() == 0:
    os.lseek(fd, 0, 0); os.write(fd, b"child"); os._exit(0)
os.wait(); os.write(twin, b"+parent")
check("forked", os.pread(fd, 12, 0) == b"child+parent")
r, w = os.pipe()
os.write(w, b"through a pipe"); os.splice(r, fd, 14, offset_dst=200)
check("splice", os.pread(fd, 14, 200) == b"through a pipe")
os.close(twin); os.close(fd)
os.replace("os copy", "os sent"); os.link("os", "os link"); os.truncate("os link", 50)
check("links", os.stat("os").st_nlink == 2 and open("os", "rb").read()[:12] == b"child+parent")
with tempfile.NamedTemporaryFile(dir=".") as f:
    f.write(b"t" * 100000); f.flush()
    check("temporary", os.stat(f.name).st_size == 100000)
shutil.copyfile("buffered", "copied")
check("copyfile", open("copied", "rb").read() == open("buffered", "rb").read())

# mmap: shared, private, read-only; flush, resize, find; beside write.
with open("mapped", "w+b") as f:
    f.write(b"\0" * 4096 + b"foo" + b"\0" * (2 * 4096 - 3)); f.flush()
    m = mmap.mmap(f.fileno(), 3 * 4096)
    check("find", m.find(b"foo") == 4096 and m[4096:4099] == b"foo")
    m[0] = 51; m[4096:4099] = b"bar"; m.flush()
    f.seek(0)
    check("stores", f.read(1) == b"3" and f.seek(4096) == 4096 and f.read(3) == b"bar")
    m.resize(5 * 4096)
    check("resize", len(m) == 5 * 4096 == os.stat("mapped").st_size)
    os.pwrite(f.fileno(), b"beside", 4 * 4096)
    check("beside", m[4 * 4096:4 * 4096 + 6] == b"beside")
    p = mmap.mmap(f.fileno(), 4096, access=mmap.ACCESS_COPY); p[1] = 99
    check("private", m[1] == 0)
    m.move(100, 4096, 3); m.close()
check("moved", open("mapped", "rb").read()[100:103] == b"bar")

# Threads that write their parts, and one that reads whole records all the while.
fd = os.open("threads", os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(fd, 200 * 5000)
torn = []
def write(n):
    for k in range(n, 200, 4):
        os.pwrite(fd, bytes([k + 1]) * 5000, k * 5000)
def read():
    for k in list(range(200)) * 2:
        got = os.pread(fd, 5000, k * 5000)
        if set(got) - {0, k + 1}:
            torn.append(k)
threads = [threading.Thread(target=write, args=(n,)) for n in range(4)] + [threading.Thread(target=read)]
[t.start() for t in threads]; [t.join() for t in threads]
check("threads", not torn and all(os.pread(fd, 5000, k * 5000) == bytes([k + 1]) * 5000 for k in range(200)))

# Anything, compared with memory.
rng, model = random.Random(5), io.BytesIO()
with open("random", "w+b") as f:
    for step in range(2000):
        op, n = rng.randrange(6), rng.randrange(9000)
        at = rng.randrange(100000)
        for file in (f, model):
            if op < 3:
                file.seek(at); file.write(bytes([step % 256]) * n)
            elif op == 3:
                file.seek(0, 2); file.write(b"e" * n)
            elif op == 4 and step % 7 == 0:
                file.seek(0); file.truncate(min(at, file.seek(0, 2)))
        if op == 5:
            f.seek(at); model.seek(at)
            assert f.read(n) == model.read(n), step
check("random", open("random", "rb").read() == model.getvalue())
PYTHON
# Some of Python's own tests, where they are installed. They say how long they took.
for name in test_fileio test_mmap test_file test_bufio; do
  if python3 -c "import test.$name" 2>/dev/null; then
    timeout 60 python3 -m unittest -q test.$name >told 2>&1 && echo "$name passed" || { echo "$name failed"; grep -e '^FAIL' -e '^ERROR' told; }
  else
    echo "not tested: Python's own $name is not installed"
  fi
done
rm -rf told @test* __pycache__
