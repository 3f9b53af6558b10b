//! One tunnel: both directions carried by one task until both have ended, half-closing as the ends do.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::carrier::{Carrier, CarrierPool};
use crate::route::Ends;
use crate::socket;

/// Bytes one direction may carry before other tunnels get their turn.
const TURN_BYTES: u64 = 1024 * 1024;

/// How a tunnel ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both ends finished their streams and got each other's last byte.
    Finished,
    /// One end finished its stream, then the other was silent for the whole linger time.
    Lingered,
}

/// Two connected sockets and what is on its way between them. Dropped before its end it resets both.
#[derive(Debug)]
pub struct Tunnel {
    ends: Ends,
    up: Direction,
    down: Direction,
    pool: Arc<CarrierPool>,
}

impl Tunnel {
    /// Joins `ends`; `glued` goes to the upstream before anything else. The counters count delivered bytes.
    pub fn new(ends: Ends, glued: Vec<u8>, pool: Arc<CarrierPool>, bytes_up: Counter, bytes_down: Counter) -> Self {
        let mut up = Direction::new(Arc::clone(&ends.client), Arc::clone(&ends.upstream), bytes_up);
        if !glued.is_empty() {
            up.carrier = Some(Carrier::holding(glued));
        }
        let down = Direction::new(Arc::clone(&ends.upstream), Arc::clone(&ends.client), bytes_down);
        Self { ends, up, down, pool }
    }

    /// Carries bytes until both directions end, one fails, or one is silent for `linger` after the other ended.
    ///
    /// # Errors
    /// The first socket error of either side; both sides are then reset.
    pub async fn run(&mut self, linger: Duration) -> io::Result<Ending> {
        let ended = |tunnel: &Self| tunnel.up.ended as u8 + tunnel.down.ended as u8;
        self.until(|tunnel| ended(tunnel) > 0).await?;
        loop {
            let before = self.carried();
            match timeout(linger, self.until(|tunnel| ended(tunnel) == 2)).await {
                Ok(result) => return result.map(|()| Ending::Finished),
                Err(_) if self.carried() == before => return Ok(Ending::Lingered),
                Err(_) => {}
            }
        }
    }

    /// Bytes delivered so far: up, down.
    pub fn carried(&self) -> (u64, u64) {
        (self.up.carried, self.down.carried)
    }

    async fn until(&mut self, done: impl Fn(&Self) -> bool) -> io::Result<()> {
        while !done(self) {
            poll_fn(|context| self.poll_turn(context)).await?;
            // Lets the other tunnels run, and the runtime look for what has become ready, before the next turn.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Ready when the turn of a direction is over.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let up = self.up.poll(context, &self.pool)?;
        let down = self.down.poll(context, &self.pool)?;
        if up.is_ready() || down.is_ready() {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        if !(self.up.ended && self.down.ended) {
            socket::reset_on_close(&self.ends.client);
            socket::reset_on_close(&self.ends.upstream);
        }
    }
}

/// One direction of a tunnel.
#[derive(Debug)]
struct Direction {
    from: Arc<TcpStream>,
    to: Arc<TcpStream>,
    /// Borrowed from the pool while bytes are under way.
    carrier: Option<Carrier>,
    /// `from` has ended its stream.
    drained: bool,
    /// `to` has been told so, behind the last byte.
    ended: bool,
    carried: u64,
    bytes: Counter,
}

impl Direction {
    fn new(from: Arc<TcpStream>, to: Arc<TcpStream>, bytes: Counter) -> Self {
        Self {
            from,
            to,
            carrier: None,
            drained: false,
            ended: false,
            carried: 0,
            bytes,
        }
    }

    /// Moves bytes until a socket makes it wait (`Pending`, with its waker set) or its turn is over (`Ready`): by its
    /// share of bytes or by its end. A direction that has ended has no more turns.
    fn poll(&mut self, context: &mut Context<'_>, pool: &CarrierPool) -> Poll<io::Result<()>> {
        let result = self.poll_carry(context, pool);
        if self.carrier.as_ref().is_some_and(|carrier| carrier.pending() == 0)
            && let Some(empty) = self.carrier.take()
        {
            pool.give(empty);
        }
        result
    }

    fn poll_carry(&mut self, context: &mut Context<'_>, pool: &CarrierPool) -> Poll<io::Result<()>> {
        if self.ended {
            return Poll::Pending;
        }
        let turn_end = self.carried + TURN_BYTES;
        while self.carried < turn_end {
            ready!(self.poll_drain(context))?;
            if self.drained {
                rustix::net::shutdown(&*self.to, rustix::net::Shutdown::Write)?;
                self.ended = true;
                break;
            }
            ready!(self.poll_fill(context, pool))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when nothing is pending.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(carrier) = &mut self.carrier else {
            return Poll::Ready(Ok(()));
        };
        while carrier.pending() > 0 {
            ready!(self.to.poll_write_ready(context))?;
            match self.to.try_io(Interest::WRITABLE, || carrier.drain(&self.to)) {
                Ok(given) => {
                    self.carried += given as u64;
                    self.bytes.inc_by(given as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when something is pending or `from` has ended. A carrier is borrowed only once there is something to read.
    fn poll_fill(&mut self, context: &mut Context<'_>, pool: &CarrierPool) -> Poll<io::Result<()>> {
        loop {
            ready!(self.from.poll_read_ready(context))?;
            let carrier = self.carrier.get_or_insert_with(|| pool.take());
            match self.from.try_io(Interest::READABLE, || pool.fill(carrier, &self.from)) {
                Ok(0) => self.drained = true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Poll::Ready(Err(error)),
            }
            return Poll::Ready(Ok(()));
        }
    }
}
