//! What every public kind of member is made of, and the methods all of them have, once.
//!
//! A member is a [`Consumer`] whose assignment comes from a group. Until the first poll it is only described
//! (the builder calls come after `subscribe`); the first poll puts the membership in place and joins.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use kafka_meta::{Cluster, Error, ErrorKind, Result, TopicName};
use kafka_read::Records;
use tokio::time::Instant;

use super::cell::{Cell, Fallback, Listener, Polling, closed, done, prepare};
use super::core::Core;
use super::orders::Settings;
use super::protocol::{Protocol, Subscription};
use crate::assign::Assignor;
use crate::config::ConsumerConfig;
use crate::consumer::Consumer;
use crate::rebalance::RebalanceListener;
use crate::shared::Shared;

/// The longest a leave waits for the coordinator, once the listener has returned: commit and goodbye together.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// What a member subscribes to.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    Topics(BTreeSet<TopicName>),
    Pattern(String),
}

impl Wanted {
    pub fn topics(topics: impl IntoIterator<Item = impl Into<String>>) -> Result<Wanted> {
        let mut names = BTreeSet::new();
        for topic in topics {
            let topic = topic.into();
            check_topic(&topic)?;
            names.insert(TopicName::new(&topic));
        }
        if names.is_empty() {
            return Err(refuse("no topic is named"));
        }
        Ok(Wanted::Topics(names))
    }
}

fn check_topic(topic: &str) -> Result<()> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if topic.is_empty() || topic.len() > 249 || topic == "." || topic == ".." || !topic.chars().all(legal) {
        return Err(refuse("a topic name has 1 to 249 of the characters a-z A-Z 0-9 . _ -")
            .with_detail(format!("`{topic}` is no topic name")));
    }
    Ok(())
}

fn refuse(detail: &'static str) -> Error {
    Error::new(ErrorKind::InvalidRequest, "subscribe").with_detail(detail)
}

/// A protocol core for what a builder describes.
pub(crate) type MakeProtocol = fn(&Builder) -> Result<Box<dyn Protocol>>;

/// A member described and not yet joined, and then the member itself.
pub(crate) struct Builder {
    pub consumer: Consumer,
    pub group: String,
    pub wanted: Wanted,
    pub auto_commit: bool,
    pub instance_id: Option<String>,
    pub remote_assignor: Option<String>,
    pub assignors: Vec<Assignor>,
    pub listener: Listener,
    pub make: MakeProtocol,
    pub fallback: Option<MakeProtocol>,
    member_id: String,
    left: bool,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member")
            .field("group", &self.group)
            .field("member_id", &self.member_id)
            .field("assignment", &self.consumer.assignment())
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Checks what can be checked without asking anybody.
    pub fn new(
        cluster: Cluster,
        mut config: ConsumerConfig,
        group: String,
        wanted: Wanted,
        make: MakeProtocol,
    ) -> Result<Builder> {
        if group.trim().is_empty() {
            return Err(refuse("the group id is empty"));
        }
        if config.group_id.as_ref().is_some_and(|configured| *configured != group) {
            return Err(refuse("the configuration names another group_id"));
        }
        config.group_id = Some(group.clone());
        config.check()?;
        if config.rebalance_timeout_ms < 1 {
            return Err(refuse("the rebalance timeout must be at least 1 ms"));
        }
        Ok(Builder {
            auto_commit: config.auto_commit,
            consumer: Consumer::new(cluster, config),
            group,
            wanted,
            instance_id: None,
            remote_assignor: None,
            assignors: Assignor::DEFAULT.to_vec(),
            listener: Listener::default(),
            make,
            fallback: None,
            member_id: String::new(),
            left: false,
        })
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.consumer.shared
    }

    pub fn config(&self) -> &ConsumerConfig {
        &self.shared().config
    }

    pub fn set_listener(&mut self, listener: impl RebalanceListener + 'static) {
        self.listener = Arc::new(tokio::sync::Mutex::new(Some(Box::new(listener))));
    }

    /// A setting of the builder changed after the member was put in place.
    pub fn warn_if_joined(&self, what: &'static str) {
        if self.shared().member.get().is_some() {
            tracing::warn!(what, "set after the first poll: it takes effect at the next subscribe");
        }
    }

    fn subscription(&self) -> Subscription {
        match &self.wanted {
            Wanted::Topics(topics) => Subscription { topics: topics.clone(), pattern: None },
            Wanted::Pattern(pattern) => {
                Subscription { topics: BTreeSet::new(), pattern: Some(pattern.clone()) }
            }
        }
    }

    fn timeout(millis: i32) -> Duration {
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }

    /// Puts the membership in place; nothing is sent yet.
    pub fn begin(&mut self) -> Result<()> {
        if self.shared().member.get().is_some() {
            return Ok(());
        }
        let protocol = (self.make)(self)?;
        let fallback = self.fallback.map(|make| make(self));
        let config = self.config();
        let settings = Settings {
            auto_commit: self.auto_commit,
            auto_commit_interval: Duration::from_millis(u64::from(config.auto_commit_interval_ms)),
            rebalance_timeout: Self::timeout(config.rebalance_timeout_ms),
            api_timeout: config.api_timeout(),
            may_switch: fallback.is_some(),
            matches_patterns: !self.speaks_848(),
        };
        let core = Core::new(settings, protocol);
        let interest = self.shared().cluster.interest();
        let mut cell = Cell::new(core, interest, self.group.clone(), self.instance_id.clone());
        let prepared = std::sync::Mutex::new(fallback);
        if self.fallback.is_some() {
            cell.fallback = Some(Box::new(move || {
                prepared.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
            }) as Fallback);
        }
        cell.fetch_as_member.store(self.speaks_848(), std::sync::atomic::Ordering::Release);
        let _ = self.shared().member.set(cell);
        self.tell_subscription();
        Ok(())
    }

    /// Whether it is KIP-848 that it speaks, or is about to.
    pub fn speaks_848(&self) -> bool {
        if let Some(cell) = self.shared().member.get() {
            return cell.fetch_as_member.load(std::sync::atomic::Ordering::Acquire);
        }
        std::ptr::fn_addr_eq(self.make, crate::group::make as MakeProtocol)
    }

    fn tell_subscription(&self) {
        let Some(cell) = self.shared().member.get() else { return };
        match &self.wanted {
            Wanted::Topics(topics) => cell.interest.set(topics.clone()),
            Wanted::Pattern(_) => cell.interest.set_all(),
        }
        let (subscription, now) = (self.subscription(), Instant::now().into_std());
        cell.with(self.shared(), |core| core.subscribe(now, subscription));
    }

    pub fn resubscribe(&mut self, wanted: Wanted) {
        self.wanted = wanted;
        self.tell_subscription();
    }

    pub async fn poll(&mut self) -> Result<Records> {
        if self.left {
            return Err(closed());
        }
        self.begin()?;
        let wait = Duration::from_millis(u64::from(self.config().max_wait_ms));
        let deadline = Instant::now() + wait;
        let shared = Arc::clone(self.shared());
        shared.start()?;
        tokio::task::coop::consume_budget().await;
        let _polling = Polling::begin(&shared);
        let result = self.poll_until(&shared, deadline).await;
        self.remember_id();
        result
    }

    async fn poll_until(&mut self, shared: &Arc<Shared>, deadline: Instant) -> Result<Records> {
        loop {
            let mut rung = pin!(shared.polls.notified());
            rung.as_mut().enable();
            if prepare(Arc::clone(shared), Arc::clone(&self.listener)).await? {
                return Ok(Records::default());
            }
            if shared.member.get().is_some_and(|cell| cell.look(Core::has_left)) {
                // A leave whose future was dropped has come to its end here.
                return Err(closed());
            }
            match shared.look(deadline) {
                crate::shared::Look::Done(result) => return result,
                crate::shared::Look::Wait(until) => {
                    tokio::select! {
                        () = rung => {}
                        () = tokio::time::sleep_until(until) => {}
                    }
                }
            }
        }
    }

    fn remember_id(&mut self) {
        if let Some(cell) = self.shared().member.get() {
            let id =
                cell.look(|core| (core.member_id() != self.member_id).then(|| core.member_id().to_owned()));
            if let Some(id) = id {
                self.member_id = id;
            }
        }
    }

    pub fn member_id(&self) -> &str {
        &self.member_id
    }

    /// Listener, commit, goodbye, and then the consumer is closed.
    pub async fn leave(&mut self, commit: bool) -> Result<()> {
        if self.left {
            return Ok(());
        }
        let shared = Arc::clone(self.shared());
        if let Some(cell) = shared.member.get()
            && shared.start().is_ok()
        {
            let handed_out = done(&shared);
            let now = Instant::now().into_std();
            let _polling = Polling::begin(&shared);
            cell.with(&shared, |core| core.leave(now, commit, handed_out));
            let within = LEAVE_WITHIN.min(self.config().api_timeout());
            let mut deadline = None;
            while !cell.look(Core::has_left) {
                let mut rung = pin!(shared.polls.notified());
                rung.as_mut().enable();
                // An error of the membership is no reason to stay.
                let _ = prepare(Arc::clone(&shared), Arc::clone(&self.listener)).await;
                if cell.look(Core::has_left) {
                    break;
                }
                // The listener may take its time; the network may not.
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + within);
                tokio::select! {
                    () = rung => {}
                    () = tokio::time::sleep_until(deadline) => {
                        cell.with(&shared, |core| core.give_up_leaving());
                    }
                }
            }
        }
        self.left = true;
        self.consumer.close().await
    }
}
