//! Programs started as processes of their own: the broker on core 0, what is measured on core 1. They end with
//! their handle.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::endless::Ports;
use crate::log::Shape;

/// A broker process.
#[derive(Debug)]
pub struct Broker {
    child: Child,
    /// Where it listens.
    pub ports: Ports,
}

impl Broker {
    /// Starts `program`, the `endless` binary.
    pub fn start(program: &Path, shape: &Shape) -> Broker {
        let mut child = Command::new(program)
            .args(shape.to_words())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ports: Vec<u16> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        Broker { child, ports: Ports { kafka: ports[0], raw: ports[1] } }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
