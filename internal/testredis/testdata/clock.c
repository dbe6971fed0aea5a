// A clock that runs at another rate than the machine's, and can be set, for one process: preloaded, it answers for the C library.
// The file that TESTREDIS_CLOCK names has three numbers, written by clock.go.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *c; // wall time in ns from which on it drifts, parts per million that it gains, what it was set forward by in ns
static int64_t mono;        // the monotonic time then

static int64_t machine(clockid_t id) {
  struct timespec t;
  syscall(SYS_clock_gettime, id, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("TESTREDIS_CLOCK");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  volatile int64_t *p = mmap(0, 3 * sizeof *p, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (p == MAP_FAILED) return;
  mono = machine(CLOCK_MONOTONIC) - (machine(CLOCK_REALTIME) - p[0]);
  c = p;
}

static int64_t now(clockid_t id) {
  int64_t ns = machine(id);
  if (!c) return ns;
  switch (id) {
  case CLOCK_REALTIME:
  case CLOCK_REALTIME_COARSE:
    return ns + (ns - c[0]) / 1000 * c[1] / 1000 + c[2];
  case CLOCK_MONOTONIC:
  case CLOCK_MONOTONIC_COARSE:
    return ns + (ns - mono) / 1000 * c[1] / 1000;
  }
  return ns;
}

int clock_gettime(clockid_t id, struct timespec *t) {
  int64_t ns = now(id);
  t->tv_sec = ns / 1000000000LL;
  t->tv_nsec = ns % 1000000000LL;
  return 0;
}

int gettimeofday(struct timeval *t, void *zone) {
  (void)zone;
  int64_t ns = now(CLOCK_REALTIME);
  t->tv_sec = ns / 1000000000LL;
  t->tv_usec = ns % 1000000000LL / 1000;
  return 0;
}

time_t time(time_t *t) {
  time_t s = now(CLOCK_REALTIME) / 1000000000LL;
  if (t) *t = s;
  return s;
}
