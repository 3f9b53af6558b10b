//! The ShardFlow relay: `serve` joins named TCP streams by splicing in the kernel, `wanlink` is a link with delay and faults.
//!
//! Invariant: the relay parses one CONNECT head and nothing after it, and never looks up a name that a client gave.

pub mod admin;
pub mod carrier;
pub mod config;
pub mod connection;
pub mod http;
pub mod limits;
pub mod metrics;
pub mod probe;
pub mod refusal;
pub mod route;
pub mod serve;
pub mod shutdown;
pub mod socket;
pub mod tunnel;
pub mod wanlink;
