//! Pure core: the text form of records that the kit's Java programs print.

use serde_json::Value;

use crate::failure::{Doing, Failure, Result};

/// A record as Kafka's own clients wrote or read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JavaRecord {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
    /// Milliseconds since the epoch.
    pub timestamp: i64,
    /// `CreateTime`, `LogAppendTime`, `NoTimestampType`; empty for what a producer wrote.
    pub timestamp_type: String,
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The value.
    pub value: Option<Vec<u8>>,
    /// The headers, in order.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// The leader epoch, as a consumer sees it.
    pub leader_epoch: Option<i32>,
    /// False for what a producer wrote in a transaction that it aborted.
    pub committed: bool,
}

impl JavaRecord {
    pub(super) fn parse(line: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(line).doing(|| format!("read {line:?}"))?;
        Self::read(&value).ok_or_else(|| Failure::new(format!("not a record: {line:?}")))
    }

    fn read(value: &Value) -> Option<Self> {
        let headers = value.get("headers")?.as_array()?.iter();
        let headers = headers.map(|header| Some((bytes(header.get(0)?)??, bytes(header.get(1)?)?)));
        Some(Self {
            topic: value.get("topic")?.as_str()?.to_owned(),
            partition: i32::try_from(value.get("partition")?.as_i64()?).ok()?,
            offset: value.get("offset")?.as_i64()?,
            timestamp: value.get("timestamp")?.as_i64()?,
            timestamp_type: value.get("type")?.as_str()?.to_owned(),
            key: bytes(value.get("key")?)?,
            value: bytes(value.get("value")?)?,
            headers: headers.collect::<Option<_>>()?,
            leader_epoch: value.get("epoch")?.as_i64().and_then(|epoch| i32::try_from(epoch).ok()),
            committed: value.get("committed")?.as_bool()?,
        })
    }
}

/// Null, or hexadecimal digits.
fn bytes(value: &Value) -> Option<Option<Vec<u8>>> {
    if value.is_null() {
        return Some(None);
    }
    let digits = value.as_str()?.as_bytes();
    let pairs = digits.chunks(2).map(|pair| {
        let text = std::str::from_utf8(pair).ok().filter(|text| text.len() == 2)?;
        u8::from_str_radix(text, 16).ok()
    });
    pairs.collect::<Option<Vec<u8>>>().map(Some)
}

#[cfg(test)]
mod tests {
    use super::JavaRecord;

    #[test]
    fn nulls_bytes_and_double_headers_are_read() {
        let line = r#"{"topic":"t","partition":1,"offset":7,"timestamp":5,"type":"CreateTime","key":null,"value":"",
            "headers":[["68","ff00"],["68",null]],"epoch":null,"committed":true}"#;
        let record = JavaRecord::parse(line).unwrap();
        assert_eq!(
            (record.partition, record.offset, record.key, record.value),
            (1, 7, None, Some(Vec::new()))
        );
        assert_eq!(record.headers, [(b"h".to_vec(), Some(vec![0xff, 0])), (b"h".to_vec(), None)]);
    }

    #[test]
    fn half_a_byte_is_refused() {
        assert!(JavaRecord::parse(r#"{"topic":"t","partition":1,"offset":7,"timestamp":5,"type":"","key":"0","value":null,"headers":[],"epoch":1,"committed":true}"#).is_err());
    }
}
