import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Java client: admin, idempotent producer, a consume-transform-produce job with one abort, admin on transactions. */
public class ExactlyOnce {
    static final int RECORDS = 5_000;
    static final long DEADLINE_NS = System.nanoTime() + 90_000_000_000L;

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
        if (System.nanoTime() > DEADLINE_NS) throw new AssertionError("out of time: " + what);
    }

    public static void main(String[] arguments) throws Exception {
        String run = Long.toString(System.nanoTime());
        String source = "java-in-" + run, sink = "java-out-" + run, id = "java-" + run;
        Map<String, Object> common = Map.of("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(common)) {
            admin.createTopics(List.of(new NewTopic(source, 3, (short) 1), new NewTopic(sink, 1, (short) 1))).all().get();
            check(!admin.describeCluster().nodes().get().isEmpty(), "the cluster has a node");
            check(admin.describeTopics(List.of(source)).allTopicNames().get().get(source).partitions().size() == 3, "three partitions");
            ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, source);
            check(admin.describeConfigs(List.of(topic)).all().get().get(topic).get("retention.ms") != null, "topic configs");
            admin.describeFeatures().featureMetadata().get();
        }

        Map<String, Object> producing = new HashMap<>(common);
        producing.put("key.serializer", StringSerializer.class);
        producing.put("value.serializer", StringSerializer.class);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(producing)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < RECORDS; i++) sent.add(producer.send(new ProducerRecord<>(source, "k" + i % 100, "v" + i)));
            for (Future<RecordMetadata> future : sent) future.get();
        }

        Map<String, Object> consuming = new HashMap<>(common);
        consuming.put("key.deserializer", StringDeserializer.class);
        consuming.put("value.deserializer", StringDeserializer.class);
        consuming.put("group.id", id);
        consuming.put("auto.offset.reset", "earliest");
        consuming.put("enable.auto.commit", "false");
        consuming.put("isolation.level", "read_committed");
        producing.put("transactional.id", id);
        int transactions = 0;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(producing);
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consuming)) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            int done = 0;
            while (done < RECORDS) {
                check(true, "transform");
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
                if (records.isEmpty()) continue;
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(sink, record.key(), record.value()));
                    offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (transactions++ == 1) {
                    producer.abortTransaction();
                    consumer.committed(consumer.assignment()).forEach((partition, committed) ->
                        consumer.seek(partition, committed == null ? 0 : committed.offset()));
                    continue;
                }
                producer.commitTransaction();
                done += records.count();
            }
            check(transactions > 2, "one transaction was aborted, others committed");
            for (int i = 0; i < 100; i++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(sink, "x", "single" + i));
                producer.commitTransaction();
            }
        }

        consuming.put("group.id", id + "-reader");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(consuming)) {
            consumer.subscribe(List.of(sink));
            Set<String> distinct = new HashSet<>();
            int read = 0;
            while (read < RECORDS + 100) {
                check(true, "read, so far " + read);
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    read++;
                    distinct.add(record.value());
                }
            }
            check(read == RECORDS + 100 && distinct.size() == read, "exactly once: read " + read + ", distinct " + distinct.size());
            TopicPartition first = new TopicPartition(sink, 0);
            check(consumer.offsetsForTimes(Map.of(first, 0L)).get(first).offset() == 0, "offset of the earliest time");
            consumer.commitSync();
        }

        try (Admin admin = Admin.create(common)) {
            check(admin.listTransactions().all().get().stream().anyMatch(t -> t.transactionalId().equals(id)), "listTransactions");
            check(admin.describeTransactions(List.of(id)).all().get().get(id).topicPartitions().isEmpty(), "describeTransactions");
            check(!admin.describeProducers(List.of(new TopicPartition(sink, 0))).all().get().isEmpty(), "describeProducers");
            check(admin.listConsumerGroupOffsets(id).partitionsToOffsetAndMetadata().get().size() == 3, "group offsets");
            admin.describeConsumerGroups(List.of(id)).all().get();
            admin.fenceProducers(List.of(id)).all().get();
            admin.deleteConsumerGroups(List.of(id)).all().get();
            admin.deleteTopics(List.of(source, sink)).all().get();
        }
        System.out.println("OK");
    }
}
