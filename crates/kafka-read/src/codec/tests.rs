//! Every codec on its own: round trip, cap, cuts.

use super::{Failure, deflate, inflate};
use crate::batch::Codec;

fn codecs() -> Vec<Codec> {
    let all = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
    all.into_iter().filter(|codec| inflate(*codec, b"", 1, false) != Err(Failure::Missing)).collect()
}

/// Text with some noise, over several blocks of every codec.
fn sample(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    (0..length)
        .map(|i| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if i % 7 == 0 { state.to_le_bytes()[3] } else { b"record "[i % 7] }
        })
        .collect()
}

fn packed(codec: Codec, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    deflate(codec, data, None, &mut out).unwrap();
    out
}

#[test]
fn what_is_packed_is_unpacked() {
    for codec in codecs() {
        for length in [0, 1, 100, 65_536, 65_537, 400_000] {
            let data = sample(length);
            assert!(
                inflate(codec, &packed(codec, &data), length, false).unwrap() == data,
                "{codec:?} {length}"
            );
        }
    }
}

#[test]
fn one_byte_over_the_cap_is_too_large() {
    for codec in codecs() {
        for length in [1, 65_536, 300_000] {
            let stream = packed(codec, &sample(length));
            assert_eq!(
                inflate(codec, &stream, length - 1, false),
                Err(Failure::TooLarge),
                "{codec:?} {length}"
            );
        }
    }
}

#[test]
fn a_stream_of_zeros_does_not_get_past_the_cap() {
    for codec in codecs() {
        let stream = packed(codec, &vec![0; 20 << 20]);
        assert_eq!(inflate(codec, &stream, 1 << 20, false), Err(Failure::TooLarge), "{codec:?}");
    }
}

#[test]
fn a_cut_stream_never_passes_for_a_whole_one() {
    for codec in codecs() {
        let data = sample(3_000);
        let stream = packed(codec, &data);
        for end in 0..stream.len() {
            match inflate(codec, &stream[..end], 1 << 20, false) {
                // Cut between two blocks: neither an lz4 end mark nor a Xerial stream's length is insisted on, as
                // the frame walk sees what is missing.
                Ok(out) => assert!(
                    matches!(codec, Codec::Lz4 | Codec::Snappy) && (out == data || out.is_empty()),
                    "{codec:?} cut at {end}"
                ),
                Err(failure) => assert_eq!(failure, Failure::Broken, "{codec:?} cut at {end}"),
            }
        }
    }
}

#[test]
fn bytes_behind_the_stream_are_ignored() {
    for codec in codecs().into_iter().filter(|codec| *codec != Codec::Snappy) {
        let data = sample(3_000);
        let mut stream = packed(codec, &data);
        stream.extend_from_slice(b"noise after the stream");
        assert_eq!(inflate(codec, &stream, 1 << 20, false).unwrap(), data, "{codec:?}");
    }
}

#[test]
fn several_streams_are_one() {
    for codec in codecs() {
        let data = sample(3_000);
        let mut stream = packed(codec, &data[..1_000]);
        stream.extend_from_slice(&packed(codec, &data[1_000..]));
        assert_eq!(inflate(codec, &stream, 1 << 20, false).unwrap(), data, "{codec:?}");
    }
}

#[cfg(all(feature = "zstd", feature = "zstd-rust"))]
#[test]
fn the_rust_zstd_reads_what_the_c_code_writes_and_the_other_way() {
    let data = sample(400_000);
    assert!(super::ruzstd::inflate(&packed(Codec::Zstd, &data), 1 << 20).unwrap() == data);
    let mut stream = Vec::new();
    super::ruzstd::deflate(&data, &mut stream).unwrap();
    assert!(inflate(Codec::Zstd, &stream, 1 << 20, false).unwrap() == data);
    assert_eq!(super::ruzstd::inflate(&stream, 399_999), Err(Failure::TooLarge));
    let mut zeros = Vec::new();
    super::ruzstd::deflate(&vec![0; 20 << 20], &mut zeros).unwrap();
    assert_eq!(super::ruzstd::inflate(&zeros, 1 << 20), Err(Failure::TooLarge));
}

#[cfg(any(feature = "zstd", feature = "zstd-rust"))]
#[test]
fn a_zstd_window_beyond_the_cap_is_refused_before_it_is_made() {
    // Magic, no flags, a window of 2 GiB, one empty last block.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00];
    assert!(inflate(Codec::Zstd, &frame, 1 << 20, false).is_err());
    // 8 MiB, which every decoder has to take, whatever the cap.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x68, 0x01, 0x00, 0x00];
    assert_eq!(inflate(Codec::Zstd, &frame, 1 << 20, false), Ok(Vec::new()));
}

/// A frame of linked blocks with every checksum, as the reference tool writes it with `-BD -BX`.
#[cfg(feature = "lz4")]
fn linked_frame(data: &[u8], block: usize) -> Vec<u8> {
    use lz4_flex::block::compress_with_dict;
    use twox_hash::XxHash32;

    let descriptor = [0x40 | 0x10 | 0x04, 0x40];
    let mut frame = vec![0x04, 0x22, 0x4d, 0x18];
    frame.extend_from_slice(&descriptor);
    frame.push(XxHash32::oneshot(0, &descriptor).to_le_bytes()[1]);
    let mut at = 0;
    for chunk in data.chunks(block) {
        let history = &data[at.max(64 << 10) - (64 << 10)..at];
        let packed = compress_with_dict(chunk, history);
        frame.extend_from_slice(&u32::try_from(packed.len()).unwrap().to_le_bytes());
        frame.extend_from_slice(&packed);
        frame.extend_from_slice(&XxHash32::oneshot(0, &packed).to_le_bytes());
        at += chunk.len();
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(&XxHash32::oneshot(0, data).to_le_bytes());
    frame
}

#[cfg(feature = "lz4")]
#[test]
fn linked_lz4_blocks_see_what_came_before_them_in_their_frame_only() {
    let data = sample(300_000);
    for block in [1_000, 20_000, 65_536] {
        let frame = linked_frame(&data, block);
        assert!(inflate(Codec::Lz4, &frame, data.len(), false).unwrap() == data, "{block}");
        let twice = [frame.clone(), frame.clone()].concat();
        assert!(inflate(Codec::Lz4, &twice, 1 << 20, false).unwrap() == [&data[..], &data[..]].concat());
        assert_eq!(inflate(Codec::Lz4, &frame, data.len() - 1, false), Err(Failure::TooLarge));
    }
}

#[cfg(feature = "lz4")]
#[test]
fn every_lz4_checksum_that_is_there_is_checked() {
    let frame = linked_frame(&sample(3_000), 1_000);
    for at in 0..frame.len() {
        let mut bad = frame.clone();
        bad[at] ^= 0x10;
        // The size of a block may then reach beyond the end or name a checksum elsewhere; it is all broken.
        assert!(inflate(Codec::Lz4, &bad, 1 << 20, false).is_err(), "{at}");
    }
}
