//! Who a producer is to the brokers: an id, and an epoch that fences whoever had the id before.
//!
//! What this is not: a decision. When an id is asked for is the sender's business, for a transactional id the
//! transaction's.

use std::time::Duration;

use kafka_meta::client::{To, Via};
use kafka_meta::{Cluster, Error, ErrorCode, Result};
use kafka_protocol::messages::{InitProducerIdRequest, ProducerId, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

/// The codec's table of this API is one version too long for its own requests; from 6 on two-phase commit.
const VERSIONS: std::ops::RangeInclusive<i16> = 0..=5;

/// A producer's id and epoch.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Identity {
    pub producer_id: i64,
    pub epoch: i16,
}

impl Identity {
    /// None yet; on the wire, none at all.
    pub const NONE: Identity = Identity { producer_id: -1, epoch: -1 };

    pub fn is_some(self) -> bool {
        self.producer_id >= 0
    }
}

/// Whose id is asked for, on behalf of a transactional id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transactional<'a> {
    pub id: &'a str,
    pub timeout: Duration,
    /// The identity to go on from (an epoch bump, KIP-360); [`Identity::NONE`] to begin anew and fence all others.
    pub current: Identity,
}

/// Asks `to` for an identity, once: any broker for a plain producer, the coordinator for a transactional id.
///
/// # Errors
///
/// The broker's code as an error, or why there is no answer. Dropping the future drops the answer with it; the
/// broker may have given the identity away.
pub(crate) async fn init(
    cluster: &Cluster,
    to: To,
    via: &Via,
    deadline: Instant,
    transactional: Option<Transactional<'_>>,
) -> Result<std::result::Result<Identity, ErrorCode>> {
    let mut request =
        InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(i32::MAX);
    let mut least = 0;
    if let Some(Transactional { id, timeout, current }) = transactional {
        request = request
            .with_transactional_id(Some(TransactionalId(StrBytes::from_string(id.to_owned()))))
            .with_transaction_timeout_ms(i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX));
        if current.is_some() {
            request =
                request.with_producer_id(ProducerId(current.producer_id)).with_producer_epoch(current.epoch);
            // Where an identity can be named.
            least = 3;
        }
    }
    let versions = least..=*VERSIONS.end();
    let (_, answer) = cluster.call_with(to, via, deadline, versions, |_| Ok(request)).await?;
    let code = ErrorCode::from(answer.error_code);
    if !code.is_none() {
        return Ok(Err(code));
    }
    let identity = Identity { producer_id: answer.producer_id.0, epoch: answer.producer_epoch };
    if !identity.is_some() || identity.epoch < 0 {
        return Err(Error::broker(ErrorCode::UNKNOWN_SERVER_ERROR, "InitProducerId"));
    }
    Ok(Ok(identity))
}
