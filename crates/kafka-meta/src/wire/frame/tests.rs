//! Frames arrive in any pieces, or not at all.

use std::io::ErrorKind;

use bytes::BufMut;
use proptest::prelude::*;
use tokio::io::AsyncWriteExt;

use super::{FrameReader, finish, start};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn a_stream_that_ends_between_frames_is_an_end_and_within_one_an_error() {
    block_on(async {
        for (bytes, whole) in [(&[][..], true), (&[0, 0][..], false), (&[0, 0, 0, 2, 9][..], false)] {
            let mut reader = FrameReader::new(100);
            match reader.next(&mut &bytes[..]).await {
                Ok(None) => assert!(whole),
                Err(error) => assert!(!whole && error.kind() == ErrorKind::UnexpectedEof),
                Ok(Some(frame)) => panic!("{frame:?}"),
            }
        }
    });
}

#[test]
fn a_length_over_the_cap_is_refused_and_named_for_what_it_is() {
    block_on(async {
        for (prefix, says) in [
            ([0x15, 3, 3, 0], "speaks TLS"),
            (*b"HTTP", "speaks HTTP"),
            ([0xff; 4], "over the cap of 100"),
            ([0, 0, 0, 101], "101 bytes"),
        ] {
            let error = FrameReader::new(100).next(&mut &prefix[..]).await.unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
        let exactly = [&[0, 0, 0, 100][..], &[5; 100]].concat();
        assert_eq!(FrameReader::new(100).next(&mut &exactly[..]).await.unwrap().unwrap().len(), 100);
    });
}

#[test]
fn a_frame_is_written_with_its_length() {
    let mut frame = start();
    frame.put_slice(b"abc");
    assert_eq!(&finish(frame).unwrap()[..], b"\0\0\0\x03abc");
}

fn large(fill: u8) -> Vec<u8> {
    let mut bytes = Vec::from(u32::try_from(super::LARGE).unwrap().to_be_bytes());
    bytes.resize(bytes.len() + super::LARGE, fill);
    bytes
}

/// Reads one frame and says where it lies.
fn read_one(reader: &mut FrameReader, bytes: &[u8]) -> bytes::Bytes {
    let frame = block_on(reader.next(&mut &bytes[..])).unwrap().unwrap();
    assert_eq!(frame[..], bytes[4..]);
    frame
}

#[test]
fn a_large_buffer_is_used_again_once_all_of_its_frame_is_gone() {
    let mut reader = FrameReader::new(1 << 20);
    let first = read_one(&mut reader, &large(1));
    let place = first.as_ptr();
    let part = first.slice(100..200);
    drop(first);
    let second = read_one(&mut reader, &large(2));
    assert_eq!(part[..], [1; 100], "a slice still holds the first frame");
    assert_ne!(second.as_ptr(), place);
    drop(part);
    assert_eq!(read_one(&mut reader, &large(3)).as_ptr(), place);
    assert_eq!(second[..], large(2)[4..]);
}

#[test]
fn small_frames_let_the_large_buffers_go() {
    let mut reader = FrameReader::new(1 << 20);
    let frames: Vec<_> = (0..9).map(|fill| read_one(&mut reader, &large(fill))).collect();
    assert_eq!(reader.lent.len(), super::KEPT);
    drop(frames);
    for _ in 0..super::KEPT {
        read_one(&mut reader, b"\0\0\0\x01x");
    }
    assert!(reader.lent.is_empty());
}

proptest! {
    /// However the bytes are cut, and however often a future is dropped while it waits, the frames come out.
    #[test]
    fn frames_survive_any_cut_and_any_dropped_future(
        frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..8),
        cuts in proptest::collection::vec(1usize..9, 1..40),
    ) {
        let mut bytes = Vec::new();
        for frame in &frames {
            bytes.put_u32(u32::try_from(frame.len()).unwrap());
            bytes.extend(frame);
        }
        let read = block_on(async {
            let (mut near, mut far) = tokio::io::duplex(1 << 16);
            let mut reader = FrameReader::new(100);
            let mut read = Vec::new();
            let mut rest = &bytes[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, more) = rest.split_at((*cut).min(rest.len()));
                rest = more;
                far.write_all(piece).await.unwrap();
                // Polled once and dropped, until it would wait; for data, not for tokio's budget.
                while let Some(frame) =
                    futures::FutureExt::now_or_never(tokio::task::unconstrained(reader.next(&mut near)))
                {
                    read.push(frame.unwrap().unwrap().to_vec());
                }
            }
            assert!(!reader.is_mid_frame());
            read
        });
        prop_assert_eq!(read, frames);
    }
}
