// A group member reads a topic, commits and leaves; another one continues, seeks back and forth, and is assigned anew.
// Arguments: address, topic, the number of its records, and an empty topic. Every wait ends after 30 s with an error.
// Prints "ok" at the end.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public final class Seeks {
    private static final Duration WAIT = Duration.ofSeconds(30);

    private static KafkaConsumer<String, String> consumer(String address) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("group.id", "seeks");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "none");
        settings.put("isolation.level", "read_committed");
        settings.put("default.api.timeout.ms", String.valueOf(WAIT.toMillis()));
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static void read(KafkaConsumer<String, String> consumer, int count) {
        long end = System.nanoTime() + WAIT.toNanos();
        int found = 0;
        while (found < count) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("found " + found + " of " + count + " records");
            }
            found += consumer.poll(Duration.ofMillis(100)).count();
        }
    }

    private static void require(long actual, long expected) {
        if (actual != expected) {
            throw new IllegalStateException("is " + actual + " and not " + expected);
        }
    }

    public static void main(String[] arguments) {
        String address = arguments[0];
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        int count = Integer.parseInt(arguments[2]);
        TopicPartition empty = new TopicPartition(arguments[3], 0);
        long end;
        try (KafkaConsumer<String, String> first = consumer(address)) {
            first.assign(List.of(partition));
            first.seekToBeginning(List.of(partition));
            read(first, count);
            end = first.position(partition);
            first.commitSync();
        }
        try (KafkaConsumer<String, String> second = consumer(address)) {
            second.subscribe(List.of(partition.topic()));
            while (second.assignment().isEmpty()) {
                second.poll(Duration.ofMillis(100));
            }
            require(second.position(partition), end);
            OffsetAndMetadata committed = second.committed(Set.of(partition)).get(partition);
            second.seek(partition, new OffsetAndMetadata(0, committed.leaderEpoch(), ""));
            read(second, count);
            second.commitSync(Map.of(partition, new OffsetAndMetadata(end, committed.leaderEpoch(), "")));
            second.unsubscribe();
            second.assign(List.of(partition));
            require(second.position(partition), end);
            second.seekToBeginning(List.of(partition));
            read(second, count);
            second.assign(List.of(partition, empty));
            second.seek(empty, new OffsetAndMetadata(0, Optional.of(0), ""));
            require(second.position(empty), 0);
            second.seekToBeginning(List.of(partition));
            read(second, count);
            require(second.position(empty), 0);
        }
        System.out.println("ok");
    }
}
