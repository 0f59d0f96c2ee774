//! The engine, driven by hand: a rig of modelled brokers, scripted cases, and a simulation against an oracle.

mod accumulate;
mod answers;
mod orders;
mod rig;
mod simulation;
mod time;
