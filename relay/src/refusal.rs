//! Every reason for which a client gets no tunnel, and the one place that maps each to an HTTP status.

use std::io;

/// Why a CONNECT was not granted.
#[derive(Debug)]
pub enum Refusal {
    /// The head is not HTTP, or its target is not `name:port`.
    Malformed(&'static str),
    /// The target is an address; only names in the route table are served.
    AddressTarget,
    /// The name, with this port, is not in the route table.
    UnknownName,
    /// Any method but CONNECT.
    MethodNotAllowed,
    /// The head was not complete within the handshake deadline.
    HandshakeTimeout,
    /// The head is larger than [`crate::http::HEAD_BYTES_MAX`].
    HeadTooLarge,
    /// The upstream refused, reset, or could not be resolved.
    UpstreamFailed(io::Error),
    /// The relay is shutting down.
    Draining,
    /// A connection cap, or the process's file limit, is reached.
    AtCapacity,
    /// The upstream did not answer within the connect deadline.
    ConnectTimeout,
}

/// The statuses that [`Refusal::status`] can return, so that each has a metric from the start.
pub const STATUSES: [u16; 9] = [400, 403, 404, 405, 408, 431, 502, 503, 504];

impl Refusal {
    /// The HTTP status to answer with.
    pub fn status(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::AddressTarget => 403,
            Self::UnknownName => 404,
            Self::MethodNotAllowed => 405,
            Self::HandshakeTimeout => 408,
            Self::HeadTooLarge => 431,
            Self::UpstreamFailed(_) => 502,
            Self::Draining | Self::AtCapacity => 503,
            Self::ConnectTimeout => 504,
        }
    }

    /// One sentence for the client; says nothing about the upstream that the client did not know.
    pub fn explain(&self) -> &'static str {
        match self {
            Self::Malformed(what) => what,
            Self::AddressTarget => "addresses are not served, only names",
            Self::UnknownName => "no such name and port in the route table",
            Self::MethodNotAllowed => "only CONNECT is served here",
            Self::HandshakeTimeout => "the request head took too long",
            Self::HeadTooLarge => "the request head is too large",
            Self::UpstreamFailed(_) => "the upstream can not be reached",
            Self::Draining => "the relay is shutting down",
            Self::AtCapacity => "the relay is at capacity",
            Self::ConnectTimeout => "the upstream did not answer in time",
        }
    }

    /// Sorts a failed upstream connect: running out of files is the relay's own fault, not the upstream's.
    pub fn from_connect(error: io::Error) -> Self {
        let errno = rustix::io::Errno::from_io_error(&error);
        match errno {
            Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => Self::AtCapacity,
            Some(rustix::io::Errno::TIMEDOUT) => Self::ConnectTimeout,
            _ => Self::UpstreamFailed(error),
        }
    }
}
