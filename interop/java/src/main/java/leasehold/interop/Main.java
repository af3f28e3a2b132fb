package leasehold.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;

/**
 * The real Java libraries, told what to do line by line. The first argument says which of them: one class each. One
 * command per line on stdin, one answer per line on stdout; a wait blocks, and its answer comes when it is over.
 */
public final class Main {
    /** One library. */
    interface Peer extends AutoCloseable {
        String obey(String[] words) throws Exception;
    }

    private Main() {}

    public static void main(String[] arguments) throws Exception {
        String[] rest = Arrays.copyOfRange(arguments, 1, arguments.length);
        Peer peer = switch (arguments[0]) {
            case "curator" -> new Curator(rest);
            case "redisson" -> new Redisson(rest);
            default -> throw new IllegalArgumentException("no such library: " + arguments[0]);
        };
        try (peer) {
            say("ready");
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                say(answer(peer, line.split(" ")));
            }
        }
        System.exit(0);
    }

    private static String answer(Peer peer, String[] words) {
        try {
            return peer.obey(words);
        } catch (Exception error) {
            return "error " + error;
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
