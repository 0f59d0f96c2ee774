// The text form of records that the kit's Java programs print and its Rust side reads: one JSON object a line, bytes as
// hexadecimal digits, null as null.
import java.util.HexFormat;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;

final class Hex {
    private static final HexFormat FORMAT = HexFormat.of();

    static String of(byte[] bytes) {
        return bytes == null ? "null" : '"' + FORMAT.formatHex(bytes) + '"';
    }

    static String record(String topic, int partition, long offset, long timestamp, String type, byte[] key,
                         byte[] value, Headers headers, Integer leaderEpoch, boolean committed) {
        StringBuilder line = new StringBuilder(160);
        line.append("{\"topic\":\"").append(topic).append("\",\"partition\":").append(partition);
        line.append(",\"offset\":").append(offset).append(",\"timestamp\":").append(timestamp);
        line.append(",\"type\":\"").append(type).append("\",\"key\":").append(of(key));
        line.append(",\"value\":").append(of(value)).append(",\"headers\":[");
        String comma = "";
        for (Header header : headers) {
            line.append(comma).append('[').append(of(header.key().getBytes(java.nio.charset.StandardCharsets.UTF_8)));
            line.append(',').append(of(header.value())).append(']');
            comma = ",";
        }
        line.append("],\"epoch\":").append(leaderEpoch).append(",\"committed\":").append(committed).append('}');
        return line.toString();
    }

    private Hex() { }
}
