package leasehold.interop;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/** A number in a file that only a lock protects. */
final class Counter {
    /** One way to lock. */
    interface Lock {
        void lock() throws Exception;

        void unlock() throws Exception;
    }

    private Counter() {}

    static String count(Lock lock, String file, int rounds) throws Exception {
        Path path = Path.of(file);
        Path next = Path.of(file + ".next");
        for (int round = 0; round < rounds; round++) {
            lock.lock();
            try {
                long number = Long.parseLong(Files.readString(path).trim());
                Files.writeString(next, Long.toString(number + 1));
                Files.move(next, path, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
            } finally {
                lock.unlock();
            }
        }
        return "counted";
    }

    /** How many times one thread after another locks and unlocks in this time, all threads together. */
    static String cycles(java.util.function.Supplier<Lock> locks, int threads, long millis) throws Exception {
        long end = System.nanoTime() + millis * 1_000_000;
        long[] counts = new long[threads];
        Thread[] running = new Thread[threads];
        for (int at = 0; at < threads; at++) {
            int index = at;
            Lock lock = locks.get();
            running[at] = new Thread(() -> {
                try {
                    while (System.nanoTime() < end) {
                        lock.lock();
                        lock.unlock();
                        counts[index]++;
                    }
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            });
            running[at].start();
        }
        long total = 0;
        for (int at = 0; at < threads; at++) {
            running[at].join();
            total += counts[at];
        }
        return "cycles " + total;
    }
}
