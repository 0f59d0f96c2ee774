//! A member with its caller: polls, dawdles, drops its polls, leaves, as it is told.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use kafka_meta::{Cluster, Result};
use testkit::embedded::Embedded;

use super::book::{Book, GROUP, Key};
use crate::member::Builder;
use crate::{
    Assignor, ClassicConsumer, ConsumerConfig, ConsumerHandle, GroupConsumer, RebalanceListener,
    RevokedPartition,
};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Consumer,
    Eager,
    Cooperative,
}

impl Kind {
    pub async fn subscribe(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        topics: &[String],
        listener: impl FnOnce(ConsumerHandle) -> Notary,
    ) -> Result<Builder> {
        let topics = topics.to_vec();
        let mut member = match self {
            Kind::Consumer => GroupConsumer::subscribe(cluster, config, GROUP, topics).await?.member,
            Kind::Eager => {
                ClassicConsumer::subscribe(cluster, config, GROUP, topics)
                    .await?
                    .assignors([Assignor::Range])
                    .member
            }
            Kind::Cooperative => {
                ClassicConsumer::subscribe(cluster, config, GROUP, topics)
                    .await?
                    .assignors([Assignor::CooperativeSticky])
                    .member
            }
        };
        let handle = member.consumer.handle();
        member.set_listener(listener(handle));
        Ok(member)
    }
}

/// Writes down what its member is told, after a while.
pub(super) struct Notary {
    pub number: usize,
    pub handle: ConsumerHandle,
    pub kafka: Embedded,
    pub book: Arc<Mutex<Book>>,
    /// How long a callback takes, in ms.
    pub slow: Arc<AtomicU64>,
}

impl Notary {
    async fn dawdle(&self) {
        let millis = self.slow.load(Ordering::Relaxed);
        if millis > 0 {
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
    }

    fn give_up(&self, what: &str, gone: Vec<RevokedPartition>) {
        let gone = gone.into_iter().map(|one| (one.topic, one.partition));
        self.book.lock().unwrap().give_up(self.number, what, gone);
    }
}

impl RebalanceListener for Notary {
    fn on_revoke(&mut self, revoked: Vec<RevokedPartition>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.dawdle().await;
            self.give_up("revoked", revoked);
            Ok(())
        })
    }

    fn on_assign(&mut self, assigned: Vec<Key>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.dawdle().await;
            let id = self.handle.group_metadata().map_or_else(|_| String::new(), |who| who.member_id);
            self.book.lock().unwrap().gain(&self.kafka, self.number, &self.handle, &id, &assigned);
            Ok(())
        })
    }

    fn on_lost(&mut self, lost: Vec<RevokedPartition>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.dawdle().await;
            self.give_up("lost", lost);
            Ok(())
        })
    }
}

/// What a caller is told to do.
#[derive(Default)]
pub(super) struct Orders {
    pub leave: AtomicBool,
    /// Before its next poll it sleeps so long, once; ms.
    pub pause: AtomicU64,
    /// So many polls are dropped.
    pub drops: AtomicU64,
    pub patience: AtomicU64,
    /// So long a callback takes; ms.
    pub slow: Arc<AtomicU64>,
}

pub(super) struct Actor {
    pub number: usize,
    pub instance: Option<String>,
    pub orders: Arc<Orders>,
    pub task: tokio::task::JoinHandle<()>,
}

pub(super) fn start(
    number: usize,
    kind: Kind,
    kafka: &Embedded,
    cluster: Cluster,
    config: ConsumerConfig,
    topics: &[String],
    book: &Arc<Mutex<Book>>,
) -> Actor {
    start_as(number, None, kind, kafka, cluster, config, topics, book)
}

/// As [`start`]; with an instance id it is a static member.
#[allow(clippy::too_many_arguments)]
pub(super) fn start_as(
    number: usize,
    instance: Option<String>,
    kind: Kind,
    kafka: &Embedded,
    cluster: Cluster,
    config: ConsumerConfig,
    topics: &[String],
    book: &Arc<Mutex<Book>>,
) -> Actor {
    let orders = Arc::new(Orders::default());
    let play = Play {
        number,
        instance: instance.clone(),
        kind,
        kafka: kafka.clone(),
        book: Arc::clone(book),
        orders: Arc::clone(&orders),
        topics: topics.to_vec(),
    };
    let task = tokio::spawn(async move {
        // A fenced static member is restarted, as whatever runs it would.
        while !play.live(cluster.clone(), config.clone()).await {}
    });
    Actor { number, instance, orders, task }
}

struct Play {
    number: usize,
    instance: Option<String>,
    kind: Kind,
    kafka: Embedded,
    book: Arc<Mutex<Book>>,
    orders: Arc<Orders>,
    topics: Vec<String>,
}

impl Play {
    fn blame(&self, text: String) {
        self.book.lock().unwrap().trouble.push(text);
    }

    /// From subscribing to leaving; false when it was fenced.
    async fn live(&self, cluster: Cluster, config: ConsumerConfig) -> bool {
        let (number, mine, book) = (self.number, &self.orders, &self.book);
        let notary = |handle| Notary {
            number,
            handle,
            kafka: self.kafka.clone(),
            book: Arc::clone(book),
            slow: Arc::clone(&mine.slow),
        };
        let mut member = match self.kind.subscribe(cluster, config, &self.topics, notary).await {
            Ok(member) => member,
            Err(error) => {
                self.blame(format!("{number} subscribes: {error}"));
                return true;
            }
        };
        member.instance_id.clone_from(&self.instance);
        while !mine.leave.load(Ordering::Relaxed) {
            let pause = mine.pause.swap(0, Ordering::Relaxed);
            if pause > 0 {
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            book.lock().unwrap().processed(number);
            let records = if mine.drops.load(Ordering::Relaxed) > 0 {
                mine.drops.fetch_sub(1, Ordering::Relaxed);
                let patience = Duration::from_millis(mine.patience.load(Ordering::Relaxed));
                match tokio::time::timeout(patience, member.poll()).await {
                    Ok(records) => records,
                    Err(_) => continue,
                }
            } else {
                member.poll().await
            };
            match records {
                Ok(records) => book.lock().unwrap().handed_out(number, &records),
                Err(error) => {
                    book.lock().unwrap().note(format!("{number} is told: {error}"));
                    if error.is_fatal() {
                        if self.instance.is_some() && error.kind() == crate::ErrorKind::Fenced {
                            book.lock().unwrap().vanished(number);
                            return false;
                        }
                        self.blame(format!("{number} got a fatal error: {error}"));
                        return true;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        book.lock().unwrap().processed(number);
        while mine.drops.load(Ordering::Relaxed) > 0 {
            mine.drops.fetch_sub(1, Ordering::Relaxed);
            let patience = Duration::from_millis(mine.patience.load(Ordering::Relaxed));
            if tokio::time::timeout(patience, member.leave(true)).await.is_ok() {
                break;
            }
        }
        if let Err(error) = member.leave(true).await {
            self.blame(format!("{number} cannot leave: {error}"));
        }
        book.lock().unwrap().vanished(number);
        true
    }
}
