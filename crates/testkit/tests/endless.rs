//! The endless log: any offset is answered with whole, good batches that begin where it says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::sync::Arc;

use kafka_meta::transport::{Connector, Tcp};
use kafka_read::batch::{Codec, Limits, scan};
use testkit::endless::{Shape, serve};
use uuid::Uuid;

mod behaviours;
use behaviours::raw::{Ask, Raw, list, parts, size};

#[tokio::test]
async fn every_offset_of_an_endless_log_gives_good_batches() {
    let mut shape = Shape::default();
    shape.batch_bytes = 10_000;
    shape.working_set = 100_000;
    for codec in [Codec::None, Codec::Lz4] {
        shape.codec = codec;
        let (port, serving) = serve(shape.clone(), 0).await.unwrap();
        let serving = tokio::spawn(serving);
        let connector: Arc<dyn Connector> = Arc::new(Tcp);
        let mut node = Raw::connect(&connector, "127.0.0.1", port).await.unwrap();
        for version in [4, 7, 11, 12] {
            let mut offset = 0;
            for _ in 0..5 {
                let ask = Ask::new(version).add("endless", Uuid::nil(), 0, offset).add(
                    "endless",
                    Uuid::nil(),
                    3,
                    7,
                );
                let answer = ask.of(&mut node).await;
                assert_eq!(answer.session_id, 0);
                let parts = parts(&answer);
                assert!(size(parts[0]) > 0 && size(parts[1]) > 0);
                let batches: Vec<_> = scan(parts[0].records.clone().unwrap()).map(Result::unwrap).collect();
                assert!(batches[0].header.base_offset <= offset);
                for batch in &batches {
                    batch.verify(true).unwrap();
                    let set = batch.open(&Limits::default(), offset).unwrap();
                    assert_eq!(set.first_offset(), Some(offset));
                    offset = batch.header.next_offset();
                }
            }
        }
        assert!(list(&mut node, 7, "endless", 0, -1, false).await.offset > 1 << 40);
        serving.abort();
    }
}
