# Names come, go, move, are exchanged and linked, by system calls; what follows from each is told.
python3 - <<'PYTHON'
import errno, os, random

rng = random.Random(71)
names = [f"{letter}{number}" for letter in "abcd" for number in range(6)]

def path():
    return "/".join(rng.choice(names) for _ in range(rng.choice((1, 1, 2, 3))))

def write(at):
    with open(at, rng.choice(("w", "a", "x", "r+"))) as file:
        file.write(at * rng.randrange(300))

def look(at):
    found = os.lstat(at)
    size = 0 if os.path.isdir(at) and not os.path.islink(at) else found.st_size
    return f"{found.st_mode:o} {found.st_nlink} {found.st_uid} {size}"

steps = (
    (8, lambda: os.mkdir(path(), rng.choice((0o755, 0o700, 0o2775)))),
    (12, lambda: write(path())),
    (6, lambda: os.rename(path(), path())),
    (4, lambda: os.replace(path(), path())),
    (4, lambda: os.link(path(), path(), follow_symlinks=False)),
    (3, lambda: os.symlink(path(), path())),
    (3, lambda: os.unlink(path())),
    (2, lambda: os.rmdir(path())),
    (2, lambda: os.chmod(path(), rng.choice((0o600, 0o644, 0o755)))),
    (2, lambda: os.chown(path(), rng.choice((0, 1234)), -1, follow_symlinks=False)),
    (2, lambda: os.utime(path(), ns=(10**18, 10**18 + rng.randrange(10**9)), follow_symlinks=False)),
    (2, lambda: os.setxattr(path(), "user.number", str(rng.randrange(99)).encode(), follow_symlinks=False)),
    (2, lambda: os.truncate(path(), rng.randrange(5000))),
    (6, lambda: look(path())),
    (4, lambda: " ".join(sorted(os.listdir(path())))),
    (2, lambda: os.mknod(path(), 0o100640)),
)
weights = [weight for weight, _ in steps]
for number in range(4000):
    which = rng.choices(range(len(steps)), weights)[0]
    try:
        told = steps[which][1]()
    except OSError as error:
        told = errno.errorcode[error.errno]
    print(number, which, "" if told is None else told)
PYTHON
