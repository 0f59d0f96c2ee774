//! Random faults on every kind of call: whatever goes wrong on the way, each result says what became of its item,
//! the cluster is as the results say, and every call ends in time.
//!
//! `ADMIN_SEED=n` repeats one schedule, `ADMIN_SCHEDULES=n` asks for more. The oracle is shown to fail: see the last
//! test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_admin::{Admin, AlterConfigOp, CommittedOffset, ConfigResource, ErrorKind, NewTopic, OffsetSpec};
use kafka_meta::wire::protocol::messages::{ApiKey, CreateTopicsResponse};
use support::start;
use testkit::embedded::{Embedded, TopicSpec};
use tokio::time::Instant;

const TIMEOUT: Duration = Duration::from_secs(20);

/// APIs with the codes that pass by themselves for each.
const FAULTS: &[(ApiKey, &[i16])] = &[
    (ApiKey::CreateTopics, &[41, 7, 89]),
    (ApiKey::DeleteTopics, &[41, 7]),
    (ApiKey::CreatePartitions, &[41]),
    (ApiKey::ListOffsets, &[6, 74, 75, 78]),
    (ApiKey::IncrementalAlterConfigs, &[41, 7]),
    (ApiKey::OffsetCommit, &[14, 15, 16]),
    (ApiKey::OffsetFetch, &[14, 16]),
    (ApiKey::DeleteGroups, &[14, 15, 16]),
    (ApiKey::DescribeGroups, &[14, 15, 16]),
    (ApiKey::FindCoordinator, &[15]),
    (ApiKey::ListGroups, &[14, 15]),
];

/// A handful of faults, all of which pass: none lasts for ever.
fn break_things(kafka: &Embedded, random: &mut fastrand::Rng) {
    kafka.clear_faults();
    for _ in 0..random.usize(0..4) {
        let (api, codes) = FAULTS[random.usize(..FAULTS.len())];
        let fault = kafka.fault(api).skip(random.u64(0..3)).times(random.u64(1..3));
        // A fault lasts without its handle.
        match random.usize(0..5) {
            0 => drop(fault.drop_connection_before()),
            1 => drop(fault.drop_connection_after()),
            2 => drop(fault.delay(Duration::from_millis(random.u64(1..2000)))),
            3 => drop(fault.delay_answer(Duration::from_millis(random.u64(1..2000)))),
            _ => drop(fault.error(codes[random.usize(..codes.len())])),
        }
    }
    match random.usize(0..6) {
        0 => kafka.move_coordinator("g", random.i32(1..4)),
        1 => kafka.set_coordinator_warming(&[16, 14]),
        2 => drop(kafka.move_leader("fixed", 0, random.i32(1..4))),
        3 => drop(kafka.drop_connections(random.i32(1..4))),
        _ => {}
    }
}

/// Whether an error may stand for a change that was made all the same.
fn is_unsure(error: &kafka_admin::Error) -> bool {
    let text = error.to_string();
    text.contains("earlier attempt") || text.contains("not known")
}

struct Life {
    kafka: Embedded,
    admin: Admin,
    /// Topics as the results so far say: how many partitions.
    topics: BTreeMap<String, i32>,
    /// The group's offsets likewise.
    offsets: BTreeMap<i32, i64>,
    seed: u64,
}

impl Life {
    async fn create(&mut self, random: &mut fastrand::Rng) {
        let names: Vec<String> = (0..random.usize(1..4)).map(|_| format!("t{}", random.u32(0..6))).collect();
        let new = names.iter().map(|name| NewTopic::new(name.as_str()).partitions(2));
        let results = self.admin.create_topics(new).await.unwrap();
        let mut seen = Vec::new();
        for (name, result) in results {
            let (known, again) = (self.topics.contains_key(&name), seen.contains(&name));
            match result {
                Ok(_) => {
                    assert!(!known && !again, "seed {}: {name} was there", self.seed);
                    self.topics.insert(name.clone(), 2);
                }
                Err(error) if again => assert_eq!(error.kind(), ErrorKind::InvalidRequest),
                Err(error) if known => {
                    assert!(error.to_string().contains("exists"), "seed {}: {error}", self.seed)
                }
                Err(error) => {
                    assert!(is_unsure(&error), "seed {}: {error}", self.seed);
                    self.topics.insert(name.clone(), 2);
                }
            }
            seen.push(name);
        }
    }

    async fn delete(&mut self, random: &mut fastrand::Rng) {
        let name = format!("t{}", random.u32(0..6));
        let known = self.topics.remove(&name).is_some();
        for (_, result) in self.admin.delete_topics([name.as_str()]).await.unwrap() {
            match result {
                Ok(()) => assert!(known, "seed {}: {name} was not there", self.seed),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::UnknownTopic, "seed {}: {error}", self.seed);
                    assert!(!known || is_unsure(&error), "seed {}: {error}", self.seed);
                }
            }
        }
    }

    async fn grow(&mut self, random: &mut fastrand::Rng) {
        let name = format!("t{}", random.u32(0..6));
        let Some(count) = self.topics.get_mut(&name) else { return };
        *count += 1;
        let (count, seed) = (*count, self.seed);
        for (_, result) in self.admin.create_partitions([(name.as_str(), count)]).await.unwrap() {
            if let Err(error) = result {
                assert!(is_unsure(&error), "seed {seed}: {error}");
            }
        }
    }

    async fn set_offsets(&mut self, random: &mut fastrand::Rng) {
        let wanted: BTreeMap<i32, i64> = (0..3).map(|index| (index, random.i64(0..100))).collect();
        let offsets = wanted.iter().map(|(index, at)| (("fixed", *index), CommittedOffset::new(*at)));
        for ((_, index), result) in self.admin.alter_group_offsets("g", offsets).await.unwrap() {
            result.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
            self.offsets.insert(index, wanted[&index]);
        }
        let stored = self.admin.list_group_offsets("g").await.unwrap();
        let stored: BTreeMap<i32, i64> =
            stored.into_iter().map(|((_, index), offset)| (index, offset.unwrap().offset)).collect();
        assert_eq!(stored, self.offsets, "seed {}", self.seed);
    }

    async fn look(&mut self) {
        let ends = (0..3).map(|index| (("fixed", index), OffsetSpec::Latest));
        for (_, found) in self.admin.list_offsets(ends).await.unwrap() {
            assert_eq!(found.unwrap().unwrap().offset, 4, "seed {}", self.seed);
        }
        for (_, group) in self.admin.describe_groups(["g"]).await.unwrap() {
            assert_eq!(group.is_ok(), !self.offsets.is_empty(), "seed {}", self.seed);
        }
        let groups = self.admin.list_groups().await.unwrap().all().unwrap();
        assert_eq!(groups.len(), usize::from(!self.offsets.is_empty()), "seed {}", self.seed);
    }

    async fn drop_group(&mut self) {
        let known = !self.offsets.is_empty();
        self.offsets.clear();
        for (_, result) in self.admin.delete_groups(["g"]).await.unwrap() {
            match result {
                Ok(()) => assert!(known, "seed {}", self.seed),
                Err(error) => assert!(!known || is_unsure(&error), "seed {}: {error}", self.seed),
            }
        }
    }

    async fn configure(&mut self, random: &mut fastrand::Rng) {
        let value = random.u32(1..1000).to_string();
        let ops = [AlterConfigOp::set("retention.ms", value.as_str())];
        let resource = ConfigResource::topic("fixed");
        let changed = self.admin.incremental_alter_configs([(resource.clone(), ops)]).await.unwrap();
        changed.into_iter().try_for_each(|(_, result)| result).unwrap();
        let (_, told) = self.admin.describe_configs([resource]).await.unwrap().remove(0);
        assert_eq!(told.unwrap().value("retention.ms"), Some(&*value), "seed {}", self.seed);
    }

    /// The cluster is as the results said.
    async fn check(&self) {
        self.kafka.clear_faults();
        let listed = self.admin.list_topics().await.unwrap();
        let listed: BTreeMap<String, i32> = listed
            .into_iter()
            .filter(|topic| topic.name != "fixed")
            .map(|topic| (topic.name, i32::try_from(topic.partitions).unwrap()))
            .collect();
        assert_eq!(listed, self.topics, "seed {}", self.seed);
    }
}

async fn live(seed: u64, sabotage: bool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (kafka, admin) = start(3).await;
    kafka.create_topic_with("fixed", TopicSpec::new(3).with_replicas(3));
    for partition in 0..3 {
        kafka.append_records("fixed", partition, [("k", "v"); 4]);
    }
    let admin = admin.with_timeout(TIMEOUT);
    let mut life = Life { kafka, admin, topics: BTreeMap::new(), offsets: BTreeMap::new(), seed };
    for _ in 0..12 {
        break_things(&life.kafka, &mut random);
        if sabotage {
            let lie = |answer: &mut CreateTopicsResponse| {
                for topic in &mut answer.topics {
                    topic.error_code = 0;
                }
            };
            drop(life.kafka.fault(ApiKey::CreateTopics).map(lie));
        }
        let started = Instant::now();
        match random.usize(0..8) {
            0 | 1 => life.create(&mut random).await,
            2 => life.delete(&mut random).await,
            3 => life.grow(&mut random).await,
            4 => life.set_offsets(&mut random).await,
            5 => life.drop_group().await,
            6 => life.configure(&mut random).await,
            _ => life.look().await,
        }
        assert!(started.elapsed() <= 3 * TIMEOUT, "seed {seed}: {:?}", started.elapsed());
        life.check().await;
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[tokio::test(start_paused = true)]
async fn results_are_true_under_random_faults() {
    if let Some(seed) = number("ADMIN_SEED") {
        return live(seed, false).await;
    }
    for seed in 0..number("ADMIN_SCHEDULES").unwrap_or(100) {
        live(seed, false).await;
    }
}

/// A broker that calls everything a success is found out.
#[tokio::test(start_paused = true)]
async fn the_oracle_notices_a_lie() {
    let lives = (0..20).map(|seed| tokio::spawn(live(seed, true)));
    let mut noticed = 0;
    for life in lives {
        noticed += usize::from(life.await.is_err());
    }
    assert!(noticed > 0);
}
