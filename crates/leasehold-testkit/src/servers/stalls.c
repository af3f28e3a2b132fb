/* Preloaded into a server: when it looks at the wall clock shortly before a millisecond ends, it stands still at times until
   the next has begun, as it does anywhere on a busy machine. The clock itself is left alone. */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { MILLISECOND = 1000000, SHORTLY = 500000, ONE_IN = 16 };

static uint64_t next(void) {
    static __thread uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int result = (int)syscall(SYS_clock_gettime, clock, at);
    if (clock != CLOCK_REALTIME || result != 0) return result;
    long left = MILLISECOND - at->tv_nsec % MILLISECOND;
    if (left < SHORTLY && next() % ONE_IN == 0) {
        struct timespec still = {0, left};
        nanosleep(&still, NULL);
    }
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return result;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
