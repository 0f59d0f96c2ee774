//! A log of distinct batches, larger than any cache, that can be read as if it had no end.
//!
//! Every batch holds equally many records, so an offset's batch is a division away; only base offsets are
//! patched, which the CRC does not cover.

use kafka_read::batch::Codec;
use kafka_read::batch::write::{BatchOptions, BatchWriter, assign};

/// What the log holds.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Bytes of a value; keys have 8.
    pub value: usize,
    /// Headers of a record.
    pub headers: usize,
    /// How batches are packed. Values of packed batches are text, of plain ones random bytes.
    pub codec: Codec,
    /// Bytes of a batch before packing, at most.
    pub batch: usize,
    /// Partitions of the one topic; all have the same log, at different places.
    pub partitions: i32,
    /// Bytes of distinct batches before packing.
    pub total: usize,
}

impl Shape {
    /// Plain 1 MiB batches over six partitions.
    pub fn plain(value: usize) -> Shape {
        Shape { value, headers: 0, codec: Codec::None, batch: 1 << 20, partitions: 6, total: TOTAL }
    }

    /// As words for a command line.
    pub fn to_words(&self) -> Vec<String> {
        [self.value, self.headers, usize::from(self.codec.id().unsigned_abs()), self.batch]
            .map(|word| word.to_string())
            .into_iter()
            .chain([self.partitions.to_string(), self.total.to_string()])
            .collect()
    }

    /// From the words of a command line.
    pub fn from_words(words: &[String]) -> Option<Shape> {
        let [value, headers, codec, batch, partitions, total] = words else { return None };
        Some(Shape {
            value: value.parse().ok()?,
            headers: headers.parse().ok()?,
            codec: codec_of(codec.parse().ok()?)?,
            batch: batch.parse().ok()?,
            partitions: partitions.parse().ok()?,
            total: total.parse().ok()?,
        })
    }
}

fn codec_of(id: i8) -> Option<Codec> {
    [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd]
        .into_iter()
        .find(|codec| codec.id() == id)
}

/// Bytes of batches before packing: four times this machine's largest cache.
const TOTAL: usize = 128 << 20;

/// See the module.
#[derive(Debug)]
pub struct Log {
    data: Vec<u8>,
    /// Where each batch starts, and the end.
    starts: Vec<usize>,
    /// Records of a batch.
    pub per_batch: i64,
}

impl Log {
    /// Builds the log.
    pub fn build(shape: &Shape) -> Log {
        let mut random = fastrand::Rng::with_seed(7);
        let mut per_batch = usize::MAX;
        let mut log = Log { data: Vec::new(), starts: vec![0], per_batch: 0 };
        for _ in 0..shape.total / shape.batch {
            let batch = batch(shape, &mut random, &mut per_batch);
            log.data.extend_from_slice(&batch);
            log.starts.push(log.data.len());
        }
        log.per_batch = i64::try_from(per_batch).unwrap();
        log
    }

    fn batches(&self) -> usize {
        self.starts.len() - 1
    }

    /// Whole batches from the one that holds `offset` on, at most `most` bytes but at least one batch when
    /// `first`; their base offsets are those `partition` has them at.
    pub fn read(&mut self, partition: i32, offset: i64, most: usize, first: bool) -> &[u8] {
        let ordinal = offset / self.per_batch;
        let from = (usize::try_from(ordinal).unwrap() + partition as usize * 37) % self.batches();
        let mut to = from;
        while to < self.batches()
            && (self.starts[to + 1] - self.starts[from] <= most || (first && to == from))
        {
            let base = (ordinal + i64::try_from(to - from).unwrap()) * self.per_batch;
            let (start, end) = (self.starts[to], self.starts[to + 1]);
            assign(&mut self.data[start..end], base, 0);
            to += 1;
        }
        &self.data[self.starts[from]..self.starts[to]]
    }

    /// Batch number `ordinal` of partition 0.
    pub fn batch(&mut self, ordinal: i64) -> &[u8] {
        self.read(0, ordinal * self.per_batch, 0, true)
    }

    /// How many batches are distinct.
    pub fn distinct(&self) -> i64 {
        self.batches() as i64
    }
}

fn batch(shape: &Shape, random: &mut fastrand::Rng, per_batch: &mut usize) -> Vec<u8> {
    let options = BatchOptions { codec: shape.codec, leader_epoch: 0, ..BatchOptions::default() };
    let mut writer = BatchWriter::with_capacity(options, shape.batch);
    let mut value = Vec::new();
    let headers: Vec<(Vec<u8>, Vec<u8>)> =
        (0..shape.headers).map(|at| (format!("header-{at}").into_bytes(), vec![b'v'; 12])).collect();
    let headers: Vec<(&[u8], Option<&[u8]>)> =
        headers.iter().map(|(key, value)| (key.as_slice(), Some(value.as_slice()))).collect();
    let room = shape.value + shape.headers * 24 + 40;
    while writer.record_count() < *per_batch && writer.len() + room <= shape.batch {
        let key = random.u64(..).to_be_bytes();
        fill(&mut value, shape, random);
        let timestamp = 1_700_000_000_000 + writer.record_count() as i64 / 8;
        writer.push(timestamp, Some(&key), Some(&value), &headers).unwrap();
    }
    *per_batch = writer.record_count();
    writer.finish().unwrap().to_vec()
}

fn fill(value: &mut Vec<u8>, shape: &Shape, random: &mut fastrand::Rng) {
    value.clear();
    if shape.codec == Codec::None {
        value.resize(shape.value, 0);
        random.fill(value);
        return;
    }
    while value.len() < shape.value {
        let event = format!(
            "{{\"id\":\"{:016x}\",\"ts\":\"2024-05-{:02}T{:02}:{:02}:{:02}Z\",\"path\":\"/api/v1/items/{}\",\
             \"status\":{},\"agent\":\"Mozilla/5.0 (X11; Linux x86_64)\"}}",
            random.u64(..),
            random.u8(1..28),
            random.u8(0..24),
            random.u8(0..60),
            random.u8(0..60),
            random.u32(0..100_000),
            [200, 200, 200, 204, 404, 500][random.usize(0..6)],
        );
        value.extend_from_slice(event.as_bytes());
    }
    value.truncate(shape.value);
}
