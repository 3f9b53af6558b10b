//! Being told to stop: a flag that many tasks can wait for, and the signals that raise it.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Raises the flag of every [`Shutdown`] made from it.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

/// A flag that is raised once and stays raised.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// A flag and its trigger. Dropping the trigger raises the flag too.
pub fn channel() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(sender), Shutdown(receiver))
}

impl Trigger {
    /// Raises the flag.
    pub fn raise(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Whether the flag is raised.
    pub fn is_raised(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Waits for the flag; returns at once if it is raised already.
    pub async fn raised(&mut self) {
        // An error means that the trigger is gone, which counts as raised.
        let _ = self.0.wait_for(|raised| *raised).await;
    }
}

/// SIGTERM and SIGINT, caught from the moment this is made.
#[derive(Debug)]
pub struct StopSignals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl StopSignals {
    /// Starts catching both signals.
    pub fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next of them.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
