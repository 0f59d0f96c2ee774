//! Length-prefixed frames with a cap, and nothing about what is inside.
//!
//! A reader is one of: waiting for the rest of the four length bytes, or for the rest of a body whose length
//! passed the cap. Progress lives in the reader, never in a future: a future of [`FrameReader::next`] may be
//! dropped at any point and the next one goes on where it stopped.
//!
//! The body's buffer is chosen once the length is known and never zeroed; the frame handed out is that buffer.
//! Buffers of large frames are used again once whoever had the frame has let all of it go: a fresh one costs a page
//! fault for every 4 KiB, which for fetch answers is up to a fifth of reading them. Few are kept, and every small
//! frame lets one go, so a connection whose answers have become small ends up with none.

use std::collections::VecDeque;
use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Reads frames off a stream.
#[derive(Debug)]
pub struct FrameReader {
    cap: usize,
    prefix: [u8; 4],
    prefix_len: usize,
    body: Option<(BytesMut, usize)>,
    /// Frames handed out whose buffers are worth waiting for, oldest first.
    lent: VecDeque<Bytes>,
}

/// Frames from this size on are read into buffers used before; smaller ones the allocator serves well by itself.
const LARGE: usize = 256 << 10;

/// No buffer above this is kept: a single huge batch must not stay in memory.
const HUGE: usize = 16 << 20;

/// Buffers kept: one being read into, one being checked, one being worked through by the caller.
const KEPT: usize = 3;

impl FrameReader {
    /// Frames longer than `cap` bytes (the four of the length not counted) are refused.
    pub fn new(cap: usize) -> Self {
        FrameReader { cap, prefix: [0; 4], prefix_len: 0, body: None, lent: VecDeque::new() }
    }

    /// Whether part of a frame has been read.
    pub fn is_mid_frame(&self) -> bool {
        self.prefix_len > 0 || self.body.is_some()
    }

    /// The next whole frame without its length; `None` when the stream ends between two frames. Dropping the
    /// future loses nothing.
    pub async fn next<R: AsyncRead + Unpin>(&mut self, stream: &mut R) -> io::Result<Option<Bytes>> {
        while self.body.is_none() {
            let rest = self.prefix.get_mut(self.prefix_len..).unwrap_or_default();
            if !rest.is_empty() {
                let read = stream.read(rest).await?;
                if read == 0 {
                    if self.prefix_len == 0 {
                        return Ok(None);
                    }
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.prefix_len += read;
                continue;
            }
            let length = u32::from_be_bytes(self.prefix);
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if length > self.cap {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    Oversize { length, cap: self.cap, prefix: self.prefix },
                ));
            }
            self.body = Some((self.buffer(length), length));
        }
        if let Some((body, length)) = &mut self.body {
            while body.len() < *length {
                let missing = *length - body.len();
                if stream.read_buf(&mut (&mut *body).limit(missing)).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        self.prefix_len = 0;
        Ok(self.body.take().map(|(body, _)| self.lend(body)))
    }

    /// An empty buffer with room for a body of `length` bytes.
    fn buffer(&mut self, length: usize) -> BytesMut {
        if length < LARGE {
            self.lent.pop_front();
            return BytesMut::with_capacity(length);
        }
        // Looked through from the oldest: it is the most likely to be free.
        for at in 0..self.lent.len() {
            if self.lent.get(at).is_some_and(Bytes::is_unique)
                && let Some(Ok(mut buffer)) = self.lent.remove(at).map(Bytes::try_into_mut)
            {
                buffer.clear();
                if buffer.capacity() >= length {
                    return buffer;
                }
                // Too small now: one that fits takes its place.
                break;
            }
        }
        // Rounded up, so that answers of about the same size share buffers.
        BytesMut::with_capacity(length.checked_next_multiple_of(LARGE).unwrap_or(length))
    }

    fn lend(&mut self, body: BytesMut) -> Bytes {
        let reusable = (LARGE..=HUGE).contains(&body.capacity());
        let frame = body.freeze();
        if reusable {
            if self.lent.len() >= KEPT {
                self.lent.pop_front();
            }
            self.lent.push_back(frame.clone());
        }
        frame
    }
}

/// A frame announces more bytes than are accepted.
#[derive(Debug)]
pub struct Oversize {
    /// The length announced.
    pub length: usize,
    /// The largest accepted.
    pub cap: usize,
    /// The four bytes read as a length.
    pub prefix: [u8; 4],
}

impl Oversize {
    /// What the peer speaks instead of Kafka, where its first bytes tell.
    pub fn looks_like(&self) -> Option<&'static str> {
        match &self.prefix {
            // Alert or handshake record, version 3.x.
            [0x15 | 0x16, 0x03, ..] => Some("TLS"),
            b"HTTP" => Some("HTTP"),
            b"SSH-" => Some("SSH"),
            _ => None,
        }
    }
}

impl std::fmt::Display for Oversize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.looks_like() {
            Some(protocol) => write!(f, "this port speaks {protocol}"),
            None => write!(f, "an answer of {} bytes is over the cap of {}", self.length, self.cap),
        }
    }
}

impl std::error::Error for Oversize {}

/// Starts a frame: four bytes the length will be written to by [`finish`].
pub fn start() -> BytesMut {
    let mut frame = BytesMut::with_capacity(256);
    frame.put_u32(0);
    frame
}

/// Writes the length in front of a frame begun with [`start`]. `None` when it does not fit Kafka's signed 32 bits.
pub fn finish(mut frame: BytesMut) -> Option<BytesMut> {
    let length = i32::try_from(frame.len().checked_sub(4)?).ok()?;
    frame.get_mut(..4)?.copy_from_slice(&length.to_be_bytes());
    Some(frame)
}

#[cfg(test)]
mod tests;
