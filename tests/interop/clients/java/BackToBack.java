import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions of one record, one behind the other without a pause: bootstrap, topic, transactional id, how many. */
public class BackToBack {
    public static void main(String[] arguments) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0],
            "transactional.id", arguments[2],
            "key.serializer", StringSerializer.class,
            "value.serializer", StringSerializer.class);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            for (int i = 0; i < Integer.parseInt(arguments[3]); i++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(arguments[1], 0, null, Integer.toString(i)));
                producer.commitTransaction();
            }
        }
        System.out.println("OK");
    }
}
