import java.io.File;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/** Sets the next sequence below nodes in the data of a server that does not run: {@code DIRECTORY (NODE NEXT)...}. */
public final class Sequence {
    public static void main(String[] arguments) throws Exception {
        File directory = new File(arguments[0]);
        FileTxnSnapLog data = new FileTxnSnapLog(directory, directory);
        DataTree tree = new DataTree();
        ConcurrentHashMap<Long, Integer> sessions = new ConcurrentHashMap<>();
        data.restore(tree, sessions, (header, change, digest) -> {});
        for (int at = 1; at < arguments.length; at += 2) {
            tree.getNode(arguments[at]).stat.setCversion(Integer.parseInt(arguments[at + 1]));
        }
        data.save(tree, sessions, true);
        System.exit(0);
    }
}
