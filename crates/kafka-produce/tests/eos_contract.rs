//! The contract's sample of a transaction, as users were promised it: it compiles, with every kind of consumer.
#![allow(dead_code)]

use kafka_consume::{ClassicConsumer, Consumer, GroupConsumer, NegotiatedConsumer};

mod verbatim {
    use kafka_consume::GroupConsumer;
    async fn example(
        consumer: &mut GroupConsumer,
        producer: &kafka_produce::Producer,
    ) -> kafka_consume::Result<()> {
        producer.send_offsets_to_transaction(consumer.positions(), &consumer.group_metadata()?).await?;
        Ok(())
    }
}

macro_rules! with {
    ($name:ident, $kind:ty) => {
        async fn $name(
            consumer: &mut $kind,
            producer: &kafka_produce::Producer,
        ) -> kafka_consume::Result<()> {
            producer.begin_transaction().await?;
            producer.send_offsets_to_transaction(consumer.positions(), &consumer.group_metadata()?).await?;
            producer.commit_transaction().await?;
            producer.abort_transaction().await
        }
    };
}

with!(group, GroupConsumer);
with!(classic, ClassicConsumer);
with!(negotiated, NegotiatedConsumer);
with!(manual, Consumer);

fn is_send<T: Send>(_: T) {}

/// Each future may move to another thread.
fn futures_are_send(producer: &kafka_produce::Producer, group: &kafka_produce::GroupMetadata) {
    is_send(producer.begin_transaction());
    is_send(producer.send_offsets_to_transaction(kafka_produce::Positions::new(), group));
    is_send(producer.commit_transaction());
    is_send(producer.abort_transaction());
}

#[test]
fn an_error_allows_one_thing() {
    let error = kafka_produce::Error::new(kafka_produce::ErrorKind::Timeout, "commit transaction");
    assert!(error.is_retriable() && !error.needs_abort() && !error.is_fatal());
    let error = error.with_abort_needed();
    assert!(!error.is_retriable() && error.needs_abort() && !error.is_fatal());
    let error = error.with_fatal();
    assert!(!error.is_retriable() && !error.needs_abort() && error.is_fatal());
}
