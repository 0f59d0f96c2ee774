// Reads topics from their beginning to their end, as it is when the program starts, with Kafka's own consumer and prints each
// record. Arguments are key=value; those that begin with "consumer." go to the consumer's configuration.
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public final class JavaReader {
    public static void main(String[] arguments) {
        Map<String, Object> config = new HashMap<>();
        String topics = "";
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            String key = argument.substring(0, at);
            String value = argument.substring(at + 1);
            if (key.startsWith("consumer.")) config.put(key.substring(9), value); else if (key.equals("topics")) topics = value;
        }
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> assigned = new ArrayList<>();
            for (String topic : topics.split(",")) {
                for (PartitionInfo info : consumer.partitionsFor(topic)) {
                    assigned.add(new TopicPartition(topic, info.partition()));
                }
            }
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
            Map<TopicPartition, Long> ends = consumer.endOffsets(assigned);
            StringBuilder lines = new StringBuilder();
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(200))) {
                    if (r.offset() >= ends.get(new TopicPartition(r.topic(), r.partition()))) continue;
                    lines.append(Hex.record(r.topic(), r.partition(), r.offset(), r.timestamp(), r.timestampType().toString(),
                        r.key(), r.value(), r.headers(), r.leaderEpoch().orElse(null), true)).append('\n');
                }
                System.out.print(lines);
                lines.setLength(0);
            }
        }
        System.out.flush();
    }
}
