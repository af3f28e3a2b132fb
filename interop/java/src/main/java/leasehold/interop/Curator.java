package leasehold.interop;

import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.RetryOneTime;

/** Apache Curator: {@code curator HOSTS SESSION_MILLIS}. Names are paths. */
final class Curator implements Main.Peer {
    /** How long a try waits: Curator's own "now" is not an answer for semaphores. */
    private static final long TRY_MILLIS = 300;

    private final CuratorFramework client;
    private final Map<String, InterProcessMutex> mutexes = new HashMap<>();
    private final Map<String, InterProcessReadWriteLock> locks = new HashMap<>();
    private final Map<String, Collection<Lease>> leases = new HashMap<>();

    Curator(String[] arguments) throws Exception {
        int session = Integer.parseInt(arguments[1]);
        client = CuratorFrameworkFactory.newClient(arguments[0], session, 10_000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
    }

    @Override
    public String obey(String[] words) throws Exception {
        String name = words[1];
        return switch (words[0]) {
            case "lock" -> held(take(mutex(name), -1));
            case "try" -> held(take(mutex(name), TRY_MILLIS));
            case "release" -> release(mutex(name));
            case "read" -> held(take(lock(name).readLock(), -1));
            case "try-read" -> held(take(lock(name).readLock(), TRY_MILLIS));
            case "release-read" -> release(lock(name).readLock());
            case "write" -> held(take(lock(name).writeLock(), -1));
            case "try-write" -> held(take(lock(name).writeLock(), TRY_MILLIS));
            case "release-write" -> release(lock(name).writeLock());
            case "permits" -> permits(name, number(words[2]), number(words[3]), -1);
            case "try-permits" -> permits(name, number(words[2]), number(words[3]), TRY_MILLIS);
            case "release-permits" -> releasePermits(name);
            case "revocable" -> revocable(name);
            case "revoke" -> revoke(name);
            case "participants" -> "participants " + mutex(name).getParticipantNodes().size();
            case "count" -> Counter.count(counted(mutex(name)), words[2], number(words[3]));
            case "cycles" -> Counter.cycles(
                    () -> counted(new InterProcessMutex(client, name)), number(words[2]), number(words[3]));
            default -> throw new IllegalArgumentException("unknown command " + words[0]);
        };
    }

    private static int number(String word) {
        return Integer.parseInt(word);
    }

    private InterProcessMutex mutex(String name) {
        return mutexes.computeIfAbsent(name, path -> new InterProcessMutex(client, path));
    }

    private InterProcessReadWriteLock lock(String name) {
        return locks.computeIfAbsent(name, path -> new InterProcessReadWriteLock(client, path));
    }

    private static boolean take(InterProcessMutex mutex, long millis) throws Exception {
        return mutex.acquire(millis, millis < 0 ? null : TimeUnit.MILLISECONDS);
    }

    private static String held(boolean held) {
        return held ? "held" : "busy";
    }

    private static String release(InterProcessMutex mutex) throws Exception {
        mutex.release();
        return "released";
    }

    private String permits(String name, int count, int of, long millis) throws Exception {
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, name, of);
        Collection<Lease> got =
                millis < 0 ? semaphore.acquire(count) : semaphore.acquire(count, millis, TimeUnit.MILLISECONDS);
        if (got == null) {
            return "busy";
        }
        leases.put(name, got);
        return "held";
    }

    private String releasePermits(String name) {
        leases.remove(name).forEach(lease -> {
            try {
                lease.close();
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        });
        return "released";
    }

    /** Holds a mutex and gives it up when asked to; the answer comes when it was. */
    private String revocable(String name) throws Exception {
        InterProcessMutex mutex = mutex(name);
        Thread holder = Thread.currentThread();
        java.util.concurrent.CountDownLatch asked = new java.util.concurrent.CountDownLatch(1);
        mutex.makeRevocable(lock -> asked.countDown());
        mutex.acquire();
        System.out.println("held");
        System.out.flush();
        asked.await();
        mutex.release();
        return holder.isInterrupted() ? "interrupted" : "revoked";
    }

    /** Asks every participant of a mutex to give up. */
    private String revoke(String name) throws Exception {
        for (String node : mutex(name).getParticipantNodes()) {
            Revoker.attemptRevoke(client, node);
        }
        return "asked";
    }

    private static Counter.Lock counted(InterProcessMutex mutex) {
        return new Counter.Lock() {
            @Override
            public void lock() throws Exception {
                mutex.acquire();
            }

            @Override
            public void unlock() throws Exception {
                mutex.release();
            }
        };
    }

    @Override
    public void close() {
        client.close();
    }
}
