// The lock of Apache Curator, driven as contender/outside.rs says.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

public class CuratorLock {
    public static void main(String[] arguments) throws Exception {
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(arguments[0], 30000, 15000, new ExponentialBackoffRetry(100, 3));
        client.start();
        client.blockUntilConnected();
        System.out.println("ready");
        Map<String, InterProcessMutex> known = new HashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.trim().split(" ");
            int count = Integer.parseInt(words[0]);
            boolean shared = words[1].equals("1");
            long used = cpu();
            long end = System.nanoTime() + Long.parseLong(words[2]) * 1_000_000;
            List<List<Double>> times = new ArrayList<>();
            List<Thread> threads = new ArrayList<>();
            for (int at = 0; at < count; at++) {
                List<Double> own = new ArrayList<>();
                times.add(own);
                String name = "/curator/" + (shared ? "bench" : "bench-" + at);
                // A lock object a thread: it is re-entrant by thread, and a name has one queue.
                InterProcessMutex lock =
                    known.computeIfAbsent(name + " " + at, key -> new InterProcessMutex(client, name));
                threads.add(new Thread(() -> work(lock, end, own)));
            }
            for (Thread thread : threads) thread.start();
            for (Thread thread : threads) thread.join();
            StringBuilder text = new StringBuilder().append((cpu() - used) / 1000).append(';');
            for (List<Double> own : times) text.append(own.size()).append(' ');
            text.append(';');
            for (List<Double> own : times)
                for (double us : own) text.append(String.format(Locale.ROOT, "%.1f ", us));
            System.out.println(text);
        }
        System.exit(0);
    }

    private static void work(InterProcessMutex lock, long end, List<Double> own) {
        try {
            long before = System.nanoTime();
            while (before < end) {
                lock.acquire();
                lock.release();
                long after = System.nanoTime();
                own.add((after - before) / 1e3);
                before = after;
            }
        } catch (Exception failure) {
            throw new RuntimeException(failure);
        }
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }
}
