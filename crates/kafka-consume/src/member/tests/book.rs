//! What an onlooker of a group writes down, and the rules it holds the group to.
//!
//! - No partition is claimed by two members that the coordinator both has in the group. (It keeps a classic static
//!   member that missed a rebalance, and assigns its partitions all the same: such a one is at an old generation.)
//! - A member is handed records only of partitions it claims: from the end of `on_assign` to the end of
//!   `on_revoke` or `on_lost`.
//! - What is committed lies never beyond the first record that nobody has processed, and never moves back. A
//!   record is processed when its caller polls again, or leaves.

use std::collections::{BTreeMap, BTreeSet};

use kafka_read::Records;
use testkit::embedded::Embedded;
use tokio::time::Instant;

use crate::ConsumerHandle;

pub(super) const GROUP: &str = "g";

pub(super) type Key = (String, i32);

#[derive(Default)]
struct Claim {
    id: String,
    handle: Option<ConsumerHandle>,
    partitions: BTreeSet<Key>,
    /// Handed out, not processed.
    open: Vec<(Key, i64)>,
}

#[derive(Default)]
struct Progress {
    /// Everything below is processed.
    prefix: i64,
    beyond: BTreeSet<i64>,
    committed: i64,
    handed: BTreeSet<i64>,
    repeats: u64,
}

pub(super) struct Book {
    started: Instant,
    claims: BTreeMap<usize, Claim>,
    progress: BTreeMap<Key, Progress>,
    pub trouble: Vec<String>,
    story: Vec<String>,
    /// A schedule that hangs never comes to tell its story.
    aloud: bool,
    pub assigned_calls: u64,
    pub lost_calls: u64,
    /// Members are classic and static.
    pub old_generations: bool,
}

impl Book {
    pub fn new() -> Book {
        Book {
            started: Instant::now(),
            claims: BTreeMap::new(),
            progress: BTreeMap::new(),
            trouble: Vec::new(),
            story: Vec::new(),
            aloud: std::env::var_os("GROUPS_ALOUD").is_some(),
            assigned_calls: 0,
            lost_calls: 0,
            old_generations: false,
        }
    }

    pub fn note(&mut self, text: impl AsRef<str>) {
        let line = format!("{:8.3} {}", self.started.elapsed().as_secs_f64(), text.as_ref());
        if self.aloud {
            eprintln!("{line}");
        }
        self.story.push(line);
    }

    fn blame(&mut self, text: String) {
        self.note(format!("TROUBLE {text}"));
        self.trouble.push(text);
    }

    pub fn story(&self) -> String {
        self.story.join("\n")
    }

    pub fn gain(
        &mut self,
        kafka: &Embedded,
        member: usize,
        handle: &ConsumerHandle,
        id: &str,
        gained: &[Key],
    ) {
        self.assigned_calls += 1;
        self.note(format!("{member} ({id}) is assigned {gained:?}"));
        let claim = self.claims.entry(member).or_default();
        (claim.id, claim.handle) = (id.to_owned(), Some(handle.clone()));
        let present: BTreeMap<String, i32> =
            kafka.group_members(GROUP).into_iter().map(|member| (member.id, member.epoch)).collect();
        let left_behind = |claim: &Claim| {
            let now = present.get(&claim.id);
            let known = claim.handle.as_ref().and_then(|handle| handle.group_metadata().ok());
            self.old_generations
                && known.is_none_or(|known| now.is_some_and(|now| known.generation_id < *now))
        };
        let live = |claim: &Claim| present.contains_key(&claim.id) && !left_behind(claim);
        let mut doubled = Vec::new();
        for key in gained {
            for (other, claim) in &self.claims {
                if *other != member
                    && claim.partitions.contains(key)
                    && live(claim)
                    && present.contains_key(id)
                {
                    doubled.push(format!("{member} and {other} both own {key:?}"));
                }
            }
        }
        for text in doubled {
            self.blame(text);
        }
        self.claims.entry(member).or_default().partitions.extend(gained.iter().cloned());
    }

    pub fn give_up(&mut self, member: usize, what: &str, gone: impl Iterator<Item = Key>) {
        let gone: Vec<Key> = gone.collect();
        self.lost_calls += u64::from(what == "lost");
        self.note(format!("{member} {what} {gone:?}"));
        let claim = self.claims.entry(member).or_default();
        for key in gone {
            claim.partitions.remove(&key);
        }
    }

    pub fn handed_out(&mut self, member: usize, records: &Records) {
        let mut foreign = BTreeSet::new();
        let claim = self.claims.entry(member).or_default();
        for record in records {
            let key = (record.topic.as_str().to_owned(), record.partition);
            let progress = self.progress.entry(key.clone()).or_default();
            progress.repeats += u64::from(!progress.handed.insert(record.offset));
            if !claim.partitions.contains(&key) {
                foreign.insert((key.clone(), record.offset));
            }
            claim.open.push((key, record.offset));
        }
        if !foreign.is_empty() {
            self.blame(format!("{member} was handed records of what it does not own: {foreign:?}"));
        }
    }

    /// The caller is done with what it was handed.
    pub fn processed(&mut self, member: usize) {
        let open = std::mem::take(&mut self.claims.entry(member).or_default().open);
        for (key, offset) in open {
            let progress = self.progress.entry(key).or_default();
            progress.beyond.insert(offset);
            while progress.beyond.remove(&progress.prefix) {
                progress.prefix += 1;
            }
            progress.beyond = progress.beyond.split_off(&progress.prefix);
        }
    }

    /// The member is gone without a word.
    pub fn vanished(&mut self, member: usize) {
        self.claims.remove(&member);
        self.note(format!("{member} is gone"));
    }

    pub fn check_commits(&mut self, kafka: &Embedded, all: &BTreeSet<Key>) {
        for key in all {
            let committed = kafka.committed(GROUP, &key.0, key.1).unwrap_or(0);
            let progress = self.progress.entry(key.clone()).or_default();
            let (prefix, before) = (progress.prefix, std::mem::replace(&mut progress.committed, committed));
            if committed == before {
                continue;
            }
            self.note(format!("{key:?} is committed at {committed}"));
            if committed > prefix {
                self.blame(format!("{key:?} is committed at {committed}, processed below {prefix}"));
            }
            if committed < before {
                self.blame(format!("{key:?}: the committed offset went from {before} back to {committed}"));
            }
        }
    }

    pub fn claimed(&self) -> BTreeSet<Key> {
        self.claims.values().flat_map(|claim| claim.partitions.iter().cloned()).collect()
    }

    pub fn claims_of(&self, member: usize) -> usize {
        self.claims.get(&member).map_or(0, |claim| claim.partitions.len())
    }

    /// How many records were handed out a second time.
    pub fn repeats(&self) -> u64 {
        self.progress.values().map(|progress| progress.repeats).sum()
    }

    pub fn prefix(&self, key: &Key) -> i64 {
        self.progress.get(key).map_or(0, |progress| progress.prefix)
    }
}
