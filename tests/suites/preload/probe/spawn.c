#include "probe.h"
#include <spawn.h>

extern char **environ;

int main(void) {
  int fd = scratch("file");
  char *words[] = {"sh", "-c", "echo spawned; echo twice", NULL};
  pid_t pid;
  posix_spawn_file_actions_t actions;
  TELL(write(fd, "before ", 7));
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fd, 1);
  TELL(posix_spawn(&pid, "/bin/sh", &actions, NULL, words, environ));
  tell_child(pid);
  TELL(write(fd, "between ", 8));
  TELL(posix_spawnp(&pid, "sh", &actions, NULL, words, environ));
  tell_child(pid);
  TELL(write(fd, "after ", 6));
  char command[64];
  snprintf(command, sizeof command, "echo system >&%d", fd);
  TELL(system(command));
  snprintf(command, sizeof command, "cat >&%d", fd);
  FILE *stream = popen(command, "w");
  fputs("popen ", stream);
  TELL(pclose(stream));
  TELL(write(fd, "end", 3));
  TELL(posix_spawn(&pid, "/none", NULL, NULL, words, environ));
  TELL(write(fd, "!", 1));
  tell_file("file");
}
