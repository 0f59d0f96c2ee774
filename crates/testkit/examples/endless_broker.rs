//! An endless log in a process of its own, for throughput benches.
//!
//! `endless_broker [--port N] [--topic NAME] [--partitions N] [--value-bytes N] [--batch-bytes N]
//! [--working-set-mib N] [--codec none|gzip|snappy|lz4|zstd]`; it prints its address on one line and runs until
//! it is killed.

use std::io;

use kafka_read::batch::Codec;
use testkit::endless::{Shape, serve};

fn usage(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what.to_owned())
}

fn number<N: std::str::FromStr>(name: &str, value: &str) -> io::Result<N> {
    value.parse().map_err(|_| usage(&format!("{name} takes a number, not {value:?}")))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let mut shape = Shape::default();
    let mut port = 0;
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| usage(&format!("{name} takes a value")))?;
        match name.as_str() {
            "--port" => port = number(&name, &value)?,
            "--topic" => shape.topic = value,
            "--partitions" => shape.partitions = number(&name, &value)?,
            "--value-bytes" => shape.value_bytes = number(&name, &value)?,
            "--batch-bytes" => shape.batch_bytes = number(&name, &value)?,
            "--working-set-mib" => {
                shape.working_set = number::<usize>(&name, &value)?.saturating_mul(1 << 20)
            }
            "--codec" => {
                let known = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
                let found = known.into_iter().find(|codec| codec.name() == value);
                shape.codec = found.ok_or_else(|| usage(&format!("unknown codec {value:?}")))?;
            }
            _ => return Err(usage(&format!("unknown argument {name:?}"))),
        }
    }
    let (port, serving) = serve(shape, port).await?;
    println!("127.0.0.1:{port}");
    serving.await;
    Ok(())
}
