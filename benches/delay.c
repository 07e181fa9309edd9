/* A network between two machines: delay LISTEN-ADDRESS PORT TO-PORT MICROSECONDS MBYTES-A-SECOND
 *
 * Passes every connection on to 127.0.0.1:TO-PORT. The first bytes after an answer, a request's, wait so long; all bytes of all connections
 * together pass no faster than that. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measure.h"

static double delay_us, us_per_byte, free_at;
static int to_port;
static pthread_mutex_t wire = PTHREAD_MUTEX_INITIALIZER;

static void wait_until(double time) {
	double left;
	while ((left = time - now()) > 0) {
		struct timespec nap = {(time_t)(left / 1e6), (long)(left * 1e3) % 1000000000};
		nanosleep(&nap, NULL);
	}
}

static void occupy(ssize_t bytes) {
	pthread_mutex_lock(&wire);
	double begin = now() > free_at ? now() : free_at;
	free_at = begin + (double)bytes * us_per_byte;
	double end = free_at;
	pthread_mutex_unlock(&wire);
	wait_until(end);
}

static int pass(int from, int to, char *buffer, size_t size) {
	ssize_t got = recv(from, buffer, size, 0);
	if (got <= 0)
		return 0;
	occupy(got);
	for (ssize_t sent = 0; sent < got;) {
		ssize_t some = send(to, buffer + sent, (size_t)(got - sent), MSG_NOSIGNAL);
		if (some <= 0)
			return 0;
		sent += some;
	}
	return 1;
}

static void *serve(void *argument) {
	int client = (int)(long)argument, one = 1, server = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)to_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	size_t size = 256 << 10;
	char *buffer = malloc(size);
	int asked = 0, goes_on = connect(server, (struct sockaddr *)&to, sizeof to) == 0;
	setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	struct pollfd both[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
	while (goes_on && poll(both, 2, -1) > 0) {
		if (both[1].revents) {
			asked = 0;
			goes_on = pass(server, client, buffer, size);
		}
		if (goes_on && both[0].revents) {
			if (!asked)
				wait_until(now() + delay_us);
			asked = 1;
			goes_on = pass(client, server, buffer, size);
		}
	}
	close(client);
	close(server);
	free(buffer);
	return NULL;
}

int main(int count, char **words) {
	if (count != 6)
		return 64;
	to_port = atoi(words[3]);
	delay_us = atof(words[4]);
	us_per_byte = 1 / atof(words[5]);
	signal(SIGPIPE, SIG_IGN);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(words[2]))};
	must(inet_pton(AF_INET, words[1], &at.sin_addr) == 1, words[1]);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	must(bind(listener, (struct sockaddr *)&at, sizeof at) == 0, "bind");
	must(listen(listener, 256) == 0, "listen");
	for (;;) {
		int client = accept(listener, NULL, NULL);
		pthread_t thread;
		must(client >= 0, "accept");
		must(pthread_create(&thread, NULL, serve, (void *)(long)client) == 0, "a thread");
		pthread_detach(thread);
	}
}
