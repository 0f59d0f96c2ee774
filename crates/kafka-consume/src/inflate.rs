//! Inflates packed batches ahead of the polls: one task per consumer that takes the core's next job.
//!
//! Small ones are inflated on the spot. Large ones go to the runtime's blocking threads, at most one fewer
//! than there are cores, so that a codec never holds up a connection. On a current-thread runtime, or with one
//! core, everything is inflated here, with a yield after each batch: another thread would gain nothing, and a
//! paused clock needs to see the work.

use std::pin::pin;
use std::sync::Arc;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio::task::yield_now;

use crate::engine::InflateJob;
use crate::shared::Shared;

/// Packed size up to which a batch is inflated on the spot: at a usual ratio of four about 64 KiB of output,
/// 30 µs of work, less than a hop to another thread and back costs under load.
const INLINE: usize = 16 << 10;

/// See the module. Ends when the consumer is closed.
pub(crate) async fn run(shared: Arc<Shared>) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let inline_only =
        cores == 1 || matches!(Handle::current().runtime_flavor(), RuntimeFlavor::CurrentThread);
    let permits = Arc::new(Semaphore::new(cores.saturating_sub(1).max(1)));
    loop {
        let mut rung = pin!(shared.inflater.notified());
        rung.as_mut().enable();
        let (closed, job) = shared.with(|core| (core.is_closed(), core.poll_inflate()));
        if closed {
            return;
        }
        let Some(job) = job else {
            rung.await;
            continue;
        };
        if inline_only || job.batch.bytes.len() <= INLINE {
            inflate(&shared, &job);
            yield_now().await;
            continue;
        }
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let shared = Arc::clone(&shared);
        tokio::task::spawn_blocking(move || {
            inflate(&shared, &job);
            drop(permit);
        });
    }
}

fn inflate(shared: &Shared, job: &InflateJob) {
    let limits = shared.with(|core| core.settings.limits);
    let result = job.batch.open(&limits, job.from);
    shared.with(|core| core.handle_inflated(job, result));
}
