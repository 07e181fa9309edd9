# Processes of an MPI program write one file together, in records that do not fall on blocks, and a file each; then every
# one reads what another wrote.
command -v mpicc >/dev/null || { echo "there is no mpicc: scripts/bootstrap.sh installs it"; exit 1; }
export HYDRA_IFACE=lo
cat >job.c <<'C'
#include <mpi.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECORD = 47008, RECORDS = 40 };

static char record[RECORD], got[RECORD];

static void fill(int rank, int n) {
  for (int at = 0; at < RECORD; at++) record[at] = (char)(rank * 31 + n * 7 + at);
}

static void must(int holds, const char *what) {
  if (!holds) { fprintf(stderr, "%s\n", what); MPI_Abort(MPI_COMM_WORLD, 1); }
}

int main(int argc, char **argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  // One file by MPI-IO.
  MPI_File file;
  must(!MPI_File_open(MPI_COMM_WORLD, "together", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file), "open");
  for (int n = 0; n < RECORDS; n++) {
    fill(rank, n);
    must(!MPI_File_write_at(file, (MPI_Offset)(n * size + rank) * RECORD, record, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "write");
  }
  MPI_File_sync(file);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_sync(file);
  int other = (rank + 1) % size;
  for (int n = 0; n < RECORDS; n++) {
    fill(other, n);
    must(!MPI_File_read_at(file, (MPI_Offset)(n * size + other) * RECORD, got, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "read");
    must(!memcmp(got, record, RECORD), "what another process wrote");
  }
  MPI_File_close(&file);
  // One file by POSIX, each process with a descriptor of its own.
  int fd = open("posix", O_WRONLY | O_CREAT, 0644);
  for (int n = 0; n < RECORDS; n++) {
    fill(rank, n);
    must(pwrite(fd, record, RECORD, (off_t)(n * size + rank) * RECORD) == RECORD, "pwrite");
  }
  must(!close(fd), "close");
  // A file for each, truncated and written in a row; the neighbour reads it.
  char name[16];
  snprintf(name, sizeof name, "own.%d", rank);
  fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  for (int n = 0; n < RECORDS; n++) {
    fill(rank, n);
    must(write(fd, record, RECORD) == RECORD, "write");
  }
  must(!close(fd), "close");
  MPI_Barrier(MPI_COMM_WORLD);
  snprintf(name, sizeof name, "own.%d", other);
  fd = open(name, O_RDONLY);
  for (int n = 0; n < RECORDS; n++) {
    fill(other, n);
    must(read(fd, got, RECORD) == RECORD && !memcmp(got, record, RECORD), "what another process closed");
  }
  close(fd);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("%d processes\n", size);
  MPI_Finalize();
  return 0;
}
C
mpicc -O1 -o job job.c && mpiexec -n 4 ./job
cmp together posix && echo "the same"
rm job # its bytes tell where it was made
sha256sum together posix own.*
