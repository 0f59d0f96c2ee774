//! The endless broker as a program: `endless VALUE HEADERS CODEC BATCH PARTITIONS TOTAL`. Prints its two ports and serves
//! on core 0 until its standard input ends.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use benches::log::Shape;
use benches::{endless, usage};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let shape = Shape::from_words(&words).expect("usage: endless VALUE HEADERS CODEC BATCH PARTITIONS TOTAL");
    usage::pin(0);
    let ports = endless::serve(&shape);
    println!("{} {}", ports.kafka, ports.raw);
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
}
