//! Whether the machine was quiet. A busy neighbour changes not only wall time but CPU time (caches, memory), so
//! every figure is kept with what else ran while it was taken.

use std::thread;
use std::time::{Duration, Instant};

use crate::usage::pin;

/// Above this share lost by a spinning loop the machine counts as busy.
pub const QUIET: f64 = 0.08;

/// The share of a short spin that the worse of two cores lost to something else.
pub fn loss() -> f64 {
    let spins: Vec<_> = (0..2).map(|core| thread::spawn(move || spin(core))).collect();
    spins.into_iter().map(|spin| spin.join().unwrap()).fold(0.0, f64::max)
}

fn spin(core: usize) -> f64 {
    const SPAN: Duration = Duration::from_millis(250);
    pin(core);
    let begun = Instant::now();
    let mut last = begun;
    let mut lost = Duration::ZERO;
    while last - begun < SPAN {
        let now = Instant::now();
        if now - last > Duration::from_micros(500) {
            lost += now - last;
        }
        last = now;
    }
    lost.as_secs_f64() / (last - begun).as_secs_f64()
}

/// Ticks all processes together have run.
pub fn busy_ticks() -> i64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let words: Vec<i64> = stat
        .lines()
        .next()
        .unwrap()
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    // user, nice, system, irq, softirq
    words[0] + words[1] + words[2] + words[5] + words[6]
}

/// A tick, as `/proc` counts.
pub const TICK: Duration = Duration::from_millis(10);
