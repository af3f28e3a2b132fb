package leasehold.interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson: {@code redisson URL WATCHDOG_MILLIS}. Names are keys. */
final class Redisson implements Main.Peer {
    private final RedissonClient client;
    private final Map<String, List<String>> permits = new HashMap<>();

    Redisson(String[] arguments) {
        Config config = new Config();
        config.setLockWatchdogTimeout(Long.parseLong(arguments[1]));
        config.useSingleServer().setAddress(arguments[0]).setConnectionMinimumIdleSize(2).setConnectionPoolSize(16);
        client = org.redisson.Redisson.create(config);
    }

    /** {@code lock NAME}, {@code try-fair NAME}, {@code release-permits NAME}: what to do, and with which object. */
    @Override
    public String obey(String[] words) throws Exception {
        String name = words[1];
        return switch (words[0]) {
            case "permits", "try-permits" -> permits(words[0].startsWith("try"), name, words);
            case "release-permits" -> releasePermits(name);
            case "semaphore", "try-semaphore" -> semaphore(words[0].startsWith("try"), name, words);
            case "release-semaphore" -> releaseSemaphore(name, number(words[2]));
            case "holds" -> "holds " + client.getLock(name).getHoldCount();
            case "token" -> "token " + client.getFencedLock(name).lockAndGetToken();
            case "lock-for" -> lockFor(name, number(words[2]));
            case "count" -> count(name, words[2], number(words[3]), number(words[4]));
            case "cycles" -> cycles(name, words);
            default -> lock(words[0], name);
        };
    }

    private String lock(String what, String name) {
        int dash = what.indexOf('-');
        String verb = dash < 0 ? "" : what.substring(0, dash);
        RLock lock = object(what.substring(dash + 1), name);
        switch (verb) {
            case "" -> lock.lock();
            case "try" -> {
                return lock.tryLock() ? "held" : "busy";
            }
            case "release" -> {
                lock.unlock();
                return "released";
            }
            default -> throw new IllegalArgumentException("unknown command " + what);
        }
        return "held";
    }

    private RLock object(String kind, String name) {
        return switch (kind) {
            case "lock" -> client.getLock(name);
            case "fair" -> client.getFairLock(name);
            case "fenced" -> client.getFencedLock(name);
            case "read" -> client.getReadWriteLock(name).readLock();
            case "write" -> client.getReadWriteLock(name).writeLock();
            default -> throw new IllegalArgumentException("unknown lock " + kind);
        };
    }

    private static int number(String word) {
        return Integer.parseInt(word);
    }

    private String lockFor(String name, int millis) {
        client.getLock(name).lock(millis, TimeUnit.MILLISECONDS);
        return "held";
    }

    private String permits(boolean tries, String name, String[] words) throws Exception {
        RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(name);
        int count = number(words[2]);
        semaphore.trySetPermits(number(words[3]));
        List<String> got = tries
                ? semaphore.tryAcquire(count, 0, 60_000, TimeUnit.MILLISECONDS)
                : semaphore.acquire(count, 60_000, TimeUnit.MILLISECONDS);
        permits.computeIfAbsent(name, key -> new ArrayList<>()).addAll(got);
        return got.isEmpty() ? "busy" : "held";
    }

    private String releasePermits(String name) {
        client.getPermitExpirableSemaphore(name).release(permits.remove(name));
        return "released";
    }

    private String semaphore(boolean tries, String name, String[] words) throws Exception {
        RSemaphore semaphore = client.getSemaphore(name);
        int count = number(words[2]);
        semaphore.trySetPermits(number(words[3]));
        if (tries) {
            return semaphore.tryAcquire(count) ? "held" : "busy";
        }
        semaphore.acquire(count);
        return "held";
    }

    private String releaseSemaphore(String name, int count) {
        client.getSemaphore(name).release(count);
        return "released";
    }

    /** Several threads at once: to Redisson each of them is an owner. */
    private String count(String name, String file, int rounds, int threads) throws Exception {
        List<String> failed = new ArrayList<>();
        List<Thread> running = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            Thread counting = new Thread(() -> {
                try {
                    Counter.count(counted(client.getLock(name)), file, rounds);
                } catch (Exception error) {
                    synchronized (failed) {
                        failed.add(error.toString());
                    }
                }
            });
            counting.start();
            running.add(counting);
        }
        for (Thread counting : running) {
            counting.join();
        }
        return failed.isEmpty() ? "counted" : "error " + failed;
    }

    /** {@code cycles NAME THREADS MILLIS PAUSE}: as many times as they can, each with an object of its own. */
    private String cycles(String name, String[] words) throws Exception {
        return Crowd.run(() -> client.getLock(name), number(words[2]), number(words[3]), number(words[4]));
    }

    private static Counter.Lock counted(RLock lock) {
        return new Counter.Lock() {
            @Override
            public void lock() {
                lock.lock();
            }

            @Override
            public void unlock() {
                lock.unlock();
            }
        };
    }

    @Override
    public void close() {
        client.shutdown();
    }
}
