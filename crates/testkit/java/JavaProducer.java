// Writes records with Kafka's own producer and prints each as it was written. Arguments are key=value; those that begin with
// "producer." go to the producer's configuration. See testkit::java::ProducePlan for their meaning.
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class JavaProducer {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        Map<String, Object> config = new HashMap<>();
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            String key = argument.substring(0, at);
            String value = argument.substring(at + 1);
            if (key.startsWith("producer.")) config.put(key.substring(9), value); else options.put(key, value);
        }
        String topic = options.get("topic");
        int partitions = Integer.parseInt(options.getOrDefault("partitions", "1"));
        long count = Long.parseLong(options.getOrDefault("count", "10"));
        int size = Integer.parseInt(options.getOrDefault("size", "0"));
        int headers = Integer.parseInt(options.getOrDefault("headers", "0"));
        long keys = Long.parseLong(options.getOrDefault("keys", "0"));
        long tombstones = Long.parseLong(options.getOrDefault("tombstones", "0"));
        long timestamp = Long.parseLong(options.getOrDefault("timestamp", "-1"));
        long transaction = Long.parseLong(options.getOrDefault("transaction", "0"));
        long aborts = Long.parseLong(options.getOrDefault("aborts", "0"));
        boolean print = !options.getOrDefault("print", "true").equals("false");
        boolean transactional = transaction > 0;

        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            if (transactional) producer.initTransactions();
            List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            long transactions = 0;
            for (long n = 0; n < count; n++) {
                if (transactional && n % transaction == 0) producer.beginTransaction();
                int partition = (int) (n % partitions);
                byte[] key = keys > 0 ? ("key-" + n % keys).getBytes(StandardCharsets.UTF_8) : null;
                byte[] value = tombstones > 0 && n % tombstones == 0 ? null : value(partition, n, size);
                ProducerRecord<byte[], byte[]> record =
                    new ProducerRecord<>(topic, partition, timestamp < 0 ? null : timestamp + n, key, value);
                for (int h = 0; h < headers; h++) {
                    // Duplicates and nulls on purpose.
                    record.headers().add("h" + h / 2, h % 3 == 2 ? null : ("v" + n + "-" + h).getBytes(StandardCharsets.UTF_8));
                }
                records.add(record);
                sent.add(producer.send(record));
                boolean last = n + 1 == count;
                if (transactional && ((n + 1) % transaction == 0 || last)) {
                    transactions++;
                    producer.flush();
                    boolean abort = aborts > 0 && transactions % aborts == 0;
                    if (abort) producer.abortTransaction(); else producer.commitTransaction();
                    if (print) tell(records, sent, !abort);
                    records.clear();
                    sent.clear();
                } else if (records.size() >= 10_000 || last) {
                    producer.flush();
                    if (print && !transactional) tell(records, sent, true);
                    if (!transactional) {
                        records.clear();
                        sent.clear();
                    }
                }
            }
        }
        System.out.flush();
    }

    private static byte[] value(int partition, long n, int size) {
        StringBuilder text = new StringBuilder(Math.max(size, 24));
        text.append(partition).append('-').append(n);
        while (text.length() < size) text.append((char) ('a' + text.length() * 7 % 26));
        return text.toString().getBytes(StandardCharsets.UTF_8);
    }

    private static void tell(List<ProducerRecord<byte[], byte[]>> records, List<Future<RecordMetadata>> sent,
                             boolean committed) throws Exception {
        StringBuilder lines = new StringBuilder();
        for (int i = 0; i < records.size(); i++) {
            RecordMetadata metadata = sent.get(i).get();
            ProducerRecord<byte[], byte[]> record = records.get(i);
            lines.append(Hex.record(metadata.topic(), metadata.partition(), metadata.offset(), metadata.timestamp(),
                "", record.key(), record.value(), record.headers(), null, committed)).append('\n');
        }
        System.out.print(lines);
    }
}
