import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writers and a transformer that tell on stdout what the broker told them; the lines are those of tests/support/foreign_workload.py. */
public class UnderKills {
    static String bootstrap, name, incarnation, member = "";
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static int partitions;
    static Path directory;

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static boolean asked(String file) {
        return Files.exists(directory.resolve(file));
    }

    static String words(Throwable error) {
        return error.toString().replace('\n', ' ');
    }

    static KafkaProducer<String, String> producer(String transactionalId) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", StringSerializer.class);
        settings.put("value.serializer", StringSerializer.class);
        settings.put("linger.ms", 2);
        settings.put("compression.type", CODECS.get(new Random().nextInt(CODECS.size())));
        if (transactionalId == null) return new KafkaProducer<>(settings);
        settings.put("transactional.id", transactionalId);
        settings.put("transaction.timeout.ms", 60_000);
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        producer.initTransactions();
        return producer;
    }

    static void plain() throws Exception {
        try (KafkaProducer<String, String> producer = producer(null)) {
            for (int n = 0; !asked("writers.stop"); n++) {
                for (int p = 0; p < partitions; p++) {
                    String value = incarnation + "-" + p + "-" + n;
                    producer.send(new ProducerRecord<>(name + "-plain", p, null, value), (told, error) -> {
                        if (error == null) say("A " + told.partition() + " " + (told.hasOffset() ? told.offset() : -1) + " " + value);
                        else say("N " + value + " " + words(error));
                    });
                }
                // Now a trickle of small batches, now a burst that fills five requests in flight.
                if (n % 1200 < 200) Thread.sleep(3);
            }
        }
    }

    /** The documented answer to a timeout of commit and abort is to call again. */
    static void insist(Runnable ending) {
        for (int attempt = 0; ; attempt++) {
            try {
                ending.run();
                return;
            } catch (TimeoutException late) {
                if (attempt == 3) throw late;
            }
        }
    }

    static void transactions(int writer) throws Exception {
        String id = name + "-w" + writer;
        Random random = new Random(31 * incarnation.hashCode() + writer);
        KafkaProducer<String, String> producer = producer(id);
        for (int number = 0; !asked("writers.stop"); number++) {
            String label = id + "/" + incarnation + "." + number;
            int count = 1 + random.nextInt(5);
            KafkaProducer<String, String> current = producer;
            say("T " + label + " " + count);
            try {
                current.beginTransaction();
                for (int index = 0; index < count; index++)
                    current.send(new ProducerRecord<>(name + "-txn", (number + index) % partitions, null, label + "/" + index));
                if (random.nextInt(5) == 0) {
                    // An abort throws away what has not left yet.
                    if (random.nextBoolean()) current.flush();
                    insist(current::abortTransaction);
                    say("X " + label);
                } else {
                    say("K " + label);
                    insist(current::commitTransaction);
                    say("C " + label);
                }
            } catch (KafkaException error) {
                if (!fatal(error)) {
                    try {
                        insist(current::abortTransaction);
                        say("X " + label);
                        say("B writer " + words(error));
                        continue;
                    } catch (KafkaException second) {
                        error = second;
                    }
                }
                say("U " + label);
                say("R writer " + words(error));
                current.close(Duration.ZERO);
                producer = producer(id);
            }
        }
        producer.close();
    }

    static boolean fatal(KafkaException error) {
        return error instanceof ProducerFencedException || error instanceof OutOfOrderSequenceException
            || error instanceof AuthorizationException;
    }

    static void transform() {
        while (!asked("all.stop")) {
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("key.deserializer", StringDeserializer.class);
            settings.put("value.deserializer", StringDeserializer.class);
            settings.put("group.id", name + "-copy");
            settings.put("auto.offset.reset", "earliest");
            settings.put("enable.auto.commit", "false");
            settings.put("isolation.level", "read_committed");
            settings.put("session.timeout.ms", 6000);
            KafkaProducer<String, String> producer = producer(name + "-copy" + member);
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
                consumer.subscribe(List.of(name + "-plain"));
                while (!asked("all.stop")) copy(consumer, producer);
            } catch (KafkaException error) {
                say("R copy " + words(error));
            } finally {
                producer.close(Duration.ZERO);
            }
        }
    }

    static void copy(KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer) {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
        if (records.isEmpty()) return;
        try {
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                producer.send(new ProducerRecord<>(name + "-copy", record.partition(), null, record.value()));
                offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            insist(producer::commitTransaction);
        } catch (KafkaException error) {
            if (fatal(error)) throw error;
            insist(producer::abortTransaction);
            say("B copy " + words(error));
            consumer.committed(consumer.assignment()).forEach((partition, committed) ->
                consumer.seek(partition, committed == null ? 0 : committed.offset()));
        }
    }

    /** Reads what is committed while it is written: each record once, whatever happens to the broker meanwhile. */
    static void read() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        settings.put("group.id", name + "-reader");
        settings.put("auto.offset.reset", "none");
        settings.put("isolation.level", "read_committed");
        List<TopicPartition> all = IntStream.range(0, partitions).mapToObj(p -> new TopicPartition(name + "-txn", p)).toList();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(all);
            for (TopicPartition partition : all) consumer.seek(partition, 0);
            boolean complete = false;
            while (!complete) {
                boolean last = asked("all.stop");
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100)))
                    say("V " + record.partition() + " " + record.offset() + " " + record.value());
                complete = last && consumer.endOffsets(all).entrySet().stream()
                    .allMatch(end -> consumer.position(end.getKey()) >= end.getValue());
            }
        }
    }

    interface Job {
        void run() throws Exception;
    }

    static Thread start(String what, Job job) {
        Thread thread = new Thread(() -> {
            try {
                job.run();
            } catch (Throwable error) {
                say("F " + what + " " + words(error));
            }
        }, what);
        thread.start();
        return thread;
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        name = arguments[1];
        partitions = Integer.parseInt(arguments[2]);
        incarnation = arguments[3];
        directory = Path.of(arguments[4]);
        if (arguments.length > 5) {
            // One more member of the copying group, and nothing else.
            member = arguments[5];
            transform();
            say("E");
            return;
        }
        List<Thread> writers = List.of(
            start("plain", UnderKills::plain), start("w0", () -> transactions(0)), start("w1", () -> transactions(1)));
        Thread copier = start("copy", UnderKills::transform);
        Thread reader = start("reader", UnderKills::read);
        for (Thread thread : writers) thread.join();
        say("D");
        copier.join();
        reader.join();
        say("E");
    }
}
