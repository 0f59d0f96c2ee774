//! Changes of decoded messages behind one type, and the split of a frame into header and body.
//!
//! An edit gets a body and gives a changed body back, or `None` when there was nothing to change: then the
//! bytes pass as they came. A body that our codec cannot decode, or not encode again, passes as well.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, FetchRequest, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, Request};

use super::log::{Arrived, TopicRef};
use super::state::Topics;

/// What an edit may look at beside the body.
pub(super) struct Context<'a> {
    pub(super) request: &'a Arrived,
    pub(super) topics: &'a Topics,
    /// The partitions of the connection's fetch session.
    pub(super) session: &'a BTreeSet<(TopicRef, i32)>,
}

/// A change of a request's or an answer's body.
pub(super) type Edit = Arc<dyn Fn(&Context<'_>, i16, &Bytes) -> Option<Bytes> + Send + Sync>;

/// An edit of the answers to `R`; `change` says whether it changed something.
pub(super) fn of_answer<R: Request>(
    change: impl Fn(&Context<'_>, i16, &mut R::Response) -> bool + Send + Sync + 'static,
) -> Edit {
    Arc::new(move |context, version, body| {
        if context.request.api != R::KEY {
            return None;
        }
        let mut answer = R::Response::decode(&mut body.clone(), version).ok()?;
        if change(context, version, &mut answer) { encode(&answer, version) } else { None }
    })
}

/// An edit of `R` itself.
pub(super) fn of_request<R: Request>(change: impl Fn(i16, &mut R) -> bool + Send + Sync + 'static) -> Edit {
    Arc::new(move |context, version, body| {
        if context.request.api != R::KEY {
            return None;
        }
        let mut request = R::decode(&mut body.clone(), version).ok()?;
        if change(version, &mut request) { encode(&request, version) } else { None }
    })
}

pub(super) fn encode(message: &impl Encodable, version: i16) -> Option<Bytes> {
    let mut body = BytesMut::new();
    message.encode(&mut body, version).ok()?;
    Some(body.freeze())
}

/// The header and the body of an answer; the header alone is 4 or 5 bytes.
pub(super) fn split_answer(api: i16, version: i16, frame: &Bytes) -> Option<(Bytes, Bytes)> {
    let header_version = ApiKey::try_from(api).ok()?.response_header_version(version);
    let mut rest = frame.clone();
    ResponseHeader::decode(&mut rest, header_version).ok()?;
    let header = frame.slice(..frame.len() - rest.len());
    Some((header, rest))
}

/// The facts of a request's header, and its body.
pub(super) fn split_request(frame: &Bytes, connection: u64, node: i32) -> Option<(Bytes, Arrived)> {
    let number = |at: usize| Some(i16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
    let (api, version) = (number(0)?, number(2)?);
    let correlation = i32::from_be_bytes(frame.get(4..8)?.try_into().ok()?);
    let mut rest = frame.clone();
    let known = ApiKey::try_from(api).ok().and_then(|key| {
        let header = RequestHeader::decode(&mut rest, key.request_header_version(version)).ok()?;
        Some(header.client_id.map(|id| id.to_string()))
    });
    let client_id = known.unwrap_or_else(|| {
        // An API newer than our codec: its body cannot be read, but it passes.
        rest = frame.clone();
        None
    });
    let header = frame.slice(..frame.len() - rest.len());
    Some((header, Arrived { connection, node, api, version, correlation, client_id, body: rest }))
}

/// Follows a connection's fetch session.
pub(super) fn follow_session(session: &mut BTreeSet<(TopicRef, i32)>, request: &Arrived) {
    if request.api != ApiKey::Fetch as i16 {
        return;
    }
    let Ok(fetch) = FetchRequest::decode(&mut request.body.clone(), request.version) else { return };
    // Epochs 0 and −1 begin anew: what is named is all there is.
    if fetch.session_epoch <= 0 {
        session.clear();
    }
    for topic in &fetch.forgotten_topics_data {
        let name = TopicRef::new(&topic.topic, topic.topic_id);
        for &partition in &topic.partitions {
            session.remove(&(name.clone(), partition));
        }
    }
    for topic in &fetch.topics {
        let name = TopicRef::new(&topic.topic, topic.topic_id);
        for partition in &topic.partitions {
            session.insert((name.clone(), partition.partition));
        }
    }
}

/// Whether a request gets an answer: a produce that asks for no acknowledgement gets none.
pub(super) fn is_answered(request: &Arrived) -> bool {
    if request.api != ApiKey::Produce as i16 {
        return true;
    }
    // The acknowledgements follow the transactional id, which the batches behind it need not be decoded for.
    let body = &request.body;
    let after_id = if request.version >= 9 {
        let length = body.first().copied().map_or(0, usize::from);
        1 + length.saturating_sub(1)
    } else if request.version >= 3 {
        let length = body.get(..2).and_then(|two| two.try_into().ok()).map_or(-1, i16::from_be_bytes);
        2 + usize::try_from(length).unwrap_or(0)
    } else {
        0
    };
    body.get(after_id..after_id + 2) != Some(&[0, 0])
}
