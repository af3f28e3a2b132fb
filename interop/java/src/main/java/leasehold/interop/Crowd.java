package leasehold.interop;

import java.util.Map;
import java.util.TreeMap;
import java.util.function.Supplier;
import org.redisson.api.RLock;

/** Threads that lock and unlock for a while, and what each of them had. */
final class Crowd {
    private Crowd() {}

    /** Answers {@code cycles TIMES:LONGEST … waits STEP:COUNT …} in microseconds, eight steps to an octave. */
    static String run(Supplier<RLock> locks, int threads, long millis, long pause) throws Exception {
        long start = System.nanoTime();
        long time = millis * 1_000_000;
        long[] times = new long[threads];
        long[] longest = new long[threads];
        Map<Integer, Long> waits = new TreeMap<>();
        Thread[] running = new Thread[threads];
        for (int at = 0; at < threads; at++) {
            int index = at;
            RLock lock = locks.get();
            running[at] = new Thread(() -> {
                while (System.nanoTime() - start < time) {
                    long asked = System.nanoTime();
                    lock.lock();
                    long micros = Math.max(1, (System.nanoTime() - asked) / 1000);
                    lock.unlock();
                    longest[index] = Math.max(longest[index], micros);
                    int step = (int) (Math.log(micros) / Math.log(2) * 8);
                    synchronized (waits) {
                        waits.merge(step, 1L, Long::sum);
                    }
                    if (System.nanoTime() - start < time) {
                        times[index]++;
                    }
                    rest(pause);
                }
            });
            running[at].start();
        }
        StringBuilder said = new StringBuilder("cycles");
        for (int at = 0; at < threads; at++) {
            running[at].join();
            said.append(' ').append(times[at]).append(':').append(longest[at]);
        }
        said.append(" waits");
        waits.forEach((step, count) -> said.append(' ').append(step).append(':').append(count));
        return said.toString();
    }

    private static void rest(long pause) {
        if (pause == 0) {
            return;
        }
        try {
            Thread.sleep(pause);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
