//! Brokers by hand: `testkit up [NODES] [VERSION]` runs a cluster until interrupted, `testkit prepare
//! [VERSION…]` makes later starts quick.

use std::process::ExitCode;

use testkit::{Failure, Kafka, kafka};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run(&words)),
        Err(error) => Err(Failure::because("start a runtime", error)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run(words: &[String]) -> testkit::Result<()> {
    match words {
        [verb, versions @ ..] if verb == "prepare" => {
            if versions.is_empty() {
                kafka::prepare(&[kafka::DEFAULT_VERSION.to_owned()]).await
            } else {
                kafka::prepare(versions).await
            }
        }
        [verb, rest @ ..] if verb == "up" => {
            let mut builder = Kafka::builder();
            if let Some(nodes) = rest.first() {
                let nodes = nodes.parse().map_err(|error| Failure::because("read NODES", error))?;
                builder = builder.nodes(nodes);
            }
            if let Some(version) = rest.get(1) {
                builder = builder.version(version);
            }
            let started = std::time::Instant::now();
            let kafka = builder.start().await?;
            println!("{} is ready after {:?}", kafka.bootstrap(), started.elapsed());
            let forever: std::future::Pending<()> = std::future::pending();
            forever.await;
            Ok(())
        }
        _ => Err(Failure::new("usage: testkit up [NODES] [VERSION] | testkit prepare [VERSION…]")),
    }
}
