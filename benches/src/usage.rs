//! What a process has used, and where it may run.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::unistd::Pid;

/// CPU time and page faults of this process so far.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Nanoseconds in user mode.
    pub user: i64,
    /// Nanoseconds in the kernel.
    pub sys: i64,
    /// Pages the kernel had to provide.
    pub faults: i64,
}

impl Usage {
    /// Of this process, now.
    pub fn now() -> Usage {
        let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
        let nanos = |time: TimeVal| time.tv_sec() * 1_000_000_000 + time.tv_usec() * 1_000;
        Usage {
            user: nanos(usage.user_time()),
            sys: nanos(usage.system_time()),
            faults: usage.minor_page_faults(),
        }
    }

    /// Since an earlier reading.
    pub fn since(self, before: Usage) -> Usage {
        Usage {
            user: self.user - before.user,
            sys: self.sys - before.sys,
            faults: self.faults - before.faults,
        }
    }
}

/// Keeps this thread, and those it starts, on one core.
pub fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

/// The most memory this process has held, in bytes.
pub fn high_water() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

/// CPU ticks (user and kernel) of another process.
pub fn ticks_of(pid: u32) -> i64 {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return 0 };
    // The name may hold anything but ends with the last parenthesis.
    let Some((_, rest)) = stat.rsplit_once(')') else { return 0 };
    let words: Vec<&str> = rest.split_whitespace().collect();
    words[11].parse::<i64>().unwrap() + words[12].parse::<i64>().unwrap()
}
