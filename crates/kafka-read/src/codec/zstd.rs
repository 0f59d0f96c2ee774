//! Zstandard by the reference C code: several frames, skippable frames, no declared size needed. Frame checksums
//! are checked when present.
//!
//! One decompressor per thread: making one costs more than a small batch. It is replaced when a frame with a large
//! window has made it grow.

use std::cell::RefCell;

use zstd::zstd_safe::{self, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use super::{Failure, first_buffer, is_skippable};

/// Java's default level.
const LEVEL: i32 = 3;
/// A decompressor above this is not kept. One for an 8 MiB window, level 19, is about that large.
const KEEP: usize = 9 << 20;

thread_local! {
    static CONTEXT: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

pub(super) fn inflate(packed: &[u8], cap: usize) -> Result<Vec<u8>, Failure> {
    CONTEXT.with_borrow_mut(|kept| {
        let mut context = kept.take().map_or_else(|| DCtx::try_create().ok_or(Failure::Broken), Ok)?;
        let result = run(&mut context, packed, cap);
        if context.sizeof() <= KEEP {
            *kept = Some(context);
        }
        result
    })
}

fn run(context: &mut DCtx<'static>, packed: &[u8], cap: usize) -> Result<Vec<u8>, Failure> {
    // A frame's window is memory taken on its word alone: no more than the output may have, 8 MiB at least, which
    // every decoder has to support.
    let window = cap.max(8 << 20).checked_next_power_of_two().map_or(31, usize::trailing_zeros).min(30);
    context.reset(ResetDirective::SessionOnly).map_err(|_| Failure::Broken)?;
    context.set_parameter(DParameter::WindowLogMax(window)).map_err(|_| Failure::Broken)?;
    let mut out = first_buffer(packed, cap);
    let mut input = InBuffer::around(packed);
    loop {
        if out.len() == out.capacity() {
            out.reserve(out.len().max(4 << 10));
        }
        let before = (input.pos(), out.len());
        let filled = out.len();
        let mut output = OutBuffer::around_pos(&mut out, filled);
        let hint = context.decompress_stream(&mut output, &mut input).map_err(failure)?;
        if out.len() > cap {
            return Err(Failure::TooLarge);
        }
        if hint == 0 {
            let rest = packed.get(input.pos()..).unwrap_or_default();
            if !is_skippable(rest) && !rest.starts_with(&zstd_safe::MAGICNUMBER.to_le_bytes()) {
                return Ok(out);
            }
        } else if before == (input.pos(), out.len())
            || (input.pos() == packed.len() && out.len() < out.capacity())
        {
            // The frame wants more than there is.
            return Err(Failure::Broken);
        }
    }
}

fn failure(code: usize) -> Failure {
    if zstd_safe::get_error_name(code).contains("too much memory") {
        Failure::TooLarge
    } else {
        Failure::Broken
    }
}

pub(super) fn deflate(data: &[u8], level: Option<i32>, out: &mut Vec<u8>) -> Result<(), Failure> {
    zstd::stream::copy_encode(data, out, level.unwrap_or(LEVEL)).map_err(|_| Failure::Broken)
}
