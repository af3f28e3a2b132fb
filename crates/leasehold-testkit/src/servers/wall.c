/* Preloaded into a server. A file of three numbers says what its wall clock shows: ours plus the seconds of the first, or,
 * unless it is 0, the microseconds of the second, which every look moves on by those of the third. Other clocks are left
 * alone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t *wall;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("WALL_OFFSET");
    int file = path ? open(path, O_RDWR) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, 3 * sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) wall = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int result = (int)syscall(SYS_clock_gettime, clock, at);
    if (result != 0 || !wall || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
    int64_t still = __atomic_load_n(&wall[1], __ATOMIC_SEQ_CST);
    if (still == 0) {
        at->tv_sec += __atomic_load_n(&wall[0], __ATOMIC_SEQ_CST);
    } else {
        still = __atomic_fetch_add(&wall[1], wall[2], __ATOMIC_SEQ_CST);
        at->tv_sec = still / 1000000;
        at->tv_nsec = still % 1000000 * 1000;
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
