//! Any bytes as the records of a partition: scan, verify, open, iterate, resync.
//!
//! The first byte says whether CRCs are made good first, without which nothing behind them would be reached.
#![no_main]

use bytes::Bytes;
use kafka_read::batch::write::seal;
use kafka_read::batch::{Limits, resync, scan};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((mode, data)) = data.split_first() else { return };
    let mut data = data.to_vec();
    if mode % 2 == 1 {
        seal(&mut data);
    }
    let data = Bytes::from(data);
    let limits = Limits { max_batch_bytes: 4 << 20 };
    for batch in scan(data.clone()).flatten() {
        let _ = batch.control();
        if batch.verify(true).is_err() {
            let _ = resync(&data, 0);
        }
        let Ok(mut set) = batch.open(&limits, 0) else { continue };
        assert_eq!(set.iter().count(), set.len());
        let mut last = -1;
        for record in set.iter() {
            assert!(record.offset > last);
            last = record.offset;
            let _ = record.headers.iter().count();
        }
        assert!(set.is_empty() || last < batch.header.next_offset());
        let half = set.len() / 2;
        assert_eq!(set.split_to(half).iter().count(), half);
    }
});
