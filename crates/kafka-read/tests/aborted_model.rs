//! The aborted filter against the log itself: random interleaved transactions, an answer that begins anywhere and
//! ends anywhere, the list a broker would send.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

use kafka_read::batch::{AbortedFilter, BatchHeader, Control, Verdict};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Transactional data of a producer.
    Data(i64),
    /// The end of a producer's transaction, if it has one: aborted or not.
    End(i64, bool),
    /// Data outside transactions: of a producer that also has some, or of one without an id.
    Plain(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0i64..4).prop_map(Step::Data),
        2 => (0i64..4, any::<bool>()).prop_map(|(producer, abort)| Step::End(producer, abort)),
        1 => (-1i64..4).prop_map(Step::Plain),
    ]
}

/// One batch of the log.
#[derive(Clone, Copy, Debug)]
struct Batch {
    header: BatchHeader,
    control: Option<Control>,
    /// Where its transaction began.
    began: Option<i64>,
    aborted: bool,
}

fn header(offset: i64, producer: i64, attributes: i16) -> BatchHeader {
    BatchHeader {
        base_offset: offset,
        size: 0,
        leader_epoch: None,
        magic: 2,
        crc: 0,
        attributes,
        last_offset_delta: 0,
        base_timestamp: 0,
        max_timestamp: 0,
        producer_id: producer,
        producer_epoch: 0,
        base_sequence: 0,
        record_count: 1,
    }
}

/// The log, and how much of it a committed reader may see: up to the first undecided transaction.
fn log(steps: &[Step]) -> (Vec<Batch>, usize) {
    let mut log: Vec<Batch> = Vec::new();
    for step in steps {
        let offset = i64::try_from(log.len()).unwrap();
        let open = |log: &[Batch], producer: i64| {
            let last =
                log.iter().rposition(|batch| batch.header.producer_id == producer && batch.control.is_some());
            log[last.map_or(0, |at| at + 1)..]
                .iter()
                .find(|batch| batch.header.producer_id == producer && batch.header.is_transactional())
                .map(|batch| batch.header.base_offset)
        };
        match *step {
            Step::Plain(producer) => {
                log.push(Batch {
                    header: header(offset, producer, 0),
                    control: None,
                    began: None,
                    aborted: false,
                });
            }
            Step::Data(producer) => {
                let began = open(&log, producer).unwrap_or(offset);
                let header = header(offset, producer, 0x10);
                log.push(Batch { header, control: None, began: Some(began), aborted: false });
            }
            Step::End(producer, abort) => {
                let Some(began) = open(&log, producer) else { continue };
                for batch in &mut log {
                    if batch.header.producer_id == producer && batch.began == Some(began) {
                        batch.aborted = abort;
                    }
                }
                let control = Some(if abort { Control::Abort } else { Control::Commit });
                let header = header(offset, producer, 0x30);
                log.push(Batch { header, control, began: Some(began), aborted: abort });
            }
        }
    }
    let undecided = log
        .iter()
        .filter(|batch| batch.header.is_transactional() && batch.control.is_none())
        .find(|batch| {
            !log.iter().any(|end| {
                end.control.is_some()
                    && end.header.producer_id == batch.header.producer_id
                    && end.began == batch.began
            })
        })
        .map(|batch| batch.header.base_offset);
    let stable = undecided.map_or(log.len(), |offset| usize::try_from(offset).unwrap());
    (log, stable)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_committed_reader_gets_exactly_the_committed_and_the_plain(
        steps in proptest::collection::vec(step(), 0..40),
        cut in (0usize..40, 0usize..40),
    ) {
        let (log, stable) = log(&steps);
        let from = cut.0.min(stable);
        let to = (from + cut.1).min(stable);
        // The broker lists what was aborted with its marker at or above the start, also what lies wholly above.
        let aborted: Vec<_> = log
            .iter()
            .filter(|batch| batch.control == Some(Control::Abort))
            .filter(|batch| batch.header.base_offset >= i64::try_from(from).unwrap())
            .map(|batch| (batch.header.producer_id, batch.began.unwrap()))
            .collect();
        let mut filter = AbortedFilter::new(aborted);
        for batch in &log[from..to] {
            let wanted = batch.control.is_none() && !batch.aborted;
            let verdict = filter.decide(&batch.header, || batch.control);
            prop_assert_eq!(verdict == Verdict::Deliver, wanted, "{:?} of {:?}", batch, log);
        }
    }
}
