#include "probe.h"

// A descriptor travels through a socket; who gets it goes on at its offset.
static void give(int socket, int fd) {
  char room[CMSG_SPACE(sizeof fd)] = {0}, byte = 'x';
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(header), &fd, sizeof fd);
  // By either call, one after the other.
  static int given;
  struct mmsghdr many = {.msg_hdr = message};
  if ((given++ ? sendmmsg(socket, &many, 1, 0) : sendmsg(socket, &message, 0)) != 1) _exit(98);
}

static int take(int socket) {
  char room[CMSG_SPACE(sizeof(int))], byte;
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  int fd = -1;
  TELL(recvmsg(socket, &message, 0));
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
  return fd;
}

int main(void) {
  int ends[2];
  TELL(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
  pid_t pid = fork();
  if (pid == 0) {
    int fd = take(ends[1]);
    TELL(write(fd, "taken ", 6));
    TELL(lseek(fd, 0, SEEK_CUR));
    _exit(2);
  }
  int fd = scratch("file");
  TELL(write(fd, "given ", 6));
  give(ends[0], fd);
  tell_child(pid);
  TELL(write(fd, "back ", 5));
  give(ends[0], fd);
  int same = take(ends[1]);
  TELL(write(same, "same ", 5));
  TELL(write(fd, "end", 3));
  tell_file("file");
}
