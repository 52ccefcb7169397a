import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The Java client over TLS: an idempotent producer, transactions, and a group of one. The arguments are a file with the
 * client's properties, and the name of topic, group and transactional id.
 */
public class Logins {
    static String topic;

    static void send(KafkaProducer<String, String> producer, String kind) throws Exception {
        for (int i = 0; i < 5; i++) producer.send(new ProducerRecord<>(topic, kind + "-" + i)).get();
    }

    public static void main(String[] arguments) throws Exception {
        topic = arguments[1];
        Properties settings = new Properties();
        try (var file = Files.newBufferedReader(Path.of(arguments[0]))) {
            settings.load(file);
        }
        settings.put("key.serializer", StringSerializer.class);
        settings.put("value.serializer", StringSerializer.class);
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            send(producer, "plain");
        }
        settings.put("transactional.id", topic);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, "committed");
            producer.commitTransaction();
            producer.beginTransaction();
            send(producer, "aborted");
            producer.abortTransaction();
        }
        settings.put("group.id", topic);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            long deadline = System.nanoTime() + 60_000_000_000L;
            for (int read = 0; read < 10; read += consumer.poll(Duration.ofMillis(500)).count()) {
                if (System.nanoTime() > deadline) throw new AssertionError("out of time: read " + read);
            }
            consumer.commitSync();
        }
        System.out.println("OK");
    }
}
