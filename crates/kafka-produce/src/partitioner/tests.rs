use super::{Choice, Sticky, murmur2, of_key};

fn choices(queued: &[usize]) -> Vec<Choice> {
    queued.iter().map(|queued| Choice { has_leader: true, queued: *queued }).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn keys_go_where_java_puts_them() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/golden/partitioner.json");
    let golden: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let keys = golden["keys"].as_array().unwrap();
    assert!(keys.len() >= 200);
    for one in keys {
        let key = bytes(one["key_hex"].as_str().unwrap());
        let hash = u32::try_from(one["murmur2"].as_i64().unwrap() & 0xffff_ffff).unwrap();
        assert_eq!(murmur2(&key), hash, "{one}");
        for (partitions, partition) in one["partition"].as_object().unwrap() {
            let partitions = partitions.parse().unwrap();
            assert_eq!(
                of_key(&key, partitions),
                usize::try_from(partition.as_u64().unwrap()).unwrap(),
                "{one}"
            );
        }
    }
}

#[test]
fn a_record_without_a_key_sticks_until_a_batch_is_full() {
    let mut sticky = Sticky::default();
    let choices = choices(&[0; 8]);
    let first = sticky.partition(&choices, 3).unwrap();
    for _ in 0..9 {
        sticky.appended(100, 1_000, false);
        assert_eq!(sticky.partition(&choices, 5), Some(first));
    }
    // Enough bytes, but in the middle of a batch.
    sticky.appended(100, 1_000, false);
    assert_eq!(sticky.partition(&choices, 5), Some(first));
    sticky.appended(100, 1_000, true);
    assert_eq!(sticky.partition(&choices, 5), Some(5));
    // Twice the size ends it in any case.
    sticky.appended(2_000, 1_000, false);
    assert_eq!(sticky.partition(&choices, 6), Some(6));
}

#[test]
fn partitions_without_a_leader_are_passed_over_unless_none_has_one() {
    let mut choices = choices(&[0; 4]);
    choices[0].has_leader = false;
    choices[2].has_leader = false;
    for random in 0..100 {
        assert!(matches!(Sticky::default().partition(&choices, random), Some(1 | 3)));
    }
    let mut sticky = Sticky::default();
    assert_eq!(sticky.partition(&choices, 0), Some(1));
    choices[1].has_leader = false;
    assert_eq!(sticky.partition(&choices, 0), Some(3), "a leader that goes is left at once");
    choices[3].has_leader = false;
    assert!(Sticky::default().partition(&choices, 2).is_some());
    assert!(Sticky::default().partition(&[], 2).is_none());
    let turns: Vec<_> = {
        let mut sticky = Sticky::default();
        choices[1].has_leader = true;
        choices[3].has_leader = true;
        (0..4).map(|_| sticky.in_turn(&choices).unwrap()).collect()
    };
    assert_eq!(turns, [1, 3, 1, 3]);
}

#[test]
fn longer_queues_are_drawn_less_often() {
    let choices = choices(&[0, 3]);
    let mut count = [0; 2];
    for random in 0..1_000 {
        count[Sticky::default().partition(&choices, random).unwrap()] += 1;
    }
    assert_eq!(count, [800, 200]);
}
