//! Carries one connection's bytes along one lane: reads and stamps them, holds them until they are due, writes them.

use std::io;
use std::time::Instant;

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, watch};

use super::conditions::{Conditions, Fault};
use super::lane::Lane;
use super::timer::PreciseTimer;

/// Bytes in flight without a rate, and beyond the bandwidth-delay product with one, before the reader waits.
const QUEUE_UNLIMITED_BYTES: usize = 64 * 1024 * 1024;
const QUEUE_BEYOND_BDP_BYTES: f64 = 4.0 * 1024.0 * 1024.0;
const CHUNK_BYTES: usize = 64 * 1024;

/// Something under way, and when it arrives; jitter never reorders, since each item also waits for the one before.
struct Item {
    due: Instant,
    payload: Payload,
}

enum Payload {
    Data(Vec<u8>),
    End,
    Reset,
}

/// One direction of one connection.
pub struct Flow<'a> {
    /// Read from here.
    pub from: &'a TcpStream,
    /// Write to here.
    pub to: &'a TcpStream,
    /// The wire in between.
    pub lane: &'a Lane,
    /// Before this nothing leaves the sender: it still waits for its connection.
    pub opens_at: Instant,
    /// Delay, jitter and rate, which may change under way.
    pub conditions: watch::Receiver<Conditions>,
    /// The fault that is on, which may change under way.
    pub fault: watch::Receiver<Fault>,
}

impl Flow<'_> {
    /// Carries bytes until the stream has ended and its end has arrived.
    ///
    /// # Errors
    /// The sender's reset, after the delay, or the receiver's at once; the caller resets the connection.
    pub async fn carry(&self) -> io::Result<()> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let room = Semaphore::new(queue_bytes(&self.conditions.borrow()));
        tokio::try_join!(self.send(sender, &room), self.arrive(receiver, &room))?;
        Ok(())
    }

    async fn send(&self, queue: mpsc::UnboundedSender<Item>, room: &Semaphore) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let payload = match read(self.from, &mut buffer).await {
                Ok(0) => Payload::End,
                Ok(length) => Payload::Data(buffer[..length].to_vec()),
                Err(_) => Payload::Reset,
            };
            let length = payload.len();
            let last = length == 0;
            let conditions = *self.conditions.borrow();
            let due = self.lane.arrival(length, Instant::now().max(self.opens_at), &conditions);
            take_room(room, length).await;
            let item = Item { due, payload };
            if queue.send(item).is_err() || last {
                return Ok(());
            }
        }
    }

    async fn arrive(&self, mut queue: mpsc::UnboundedReceiver<Item>, room: &Semaphore) -> io::Result<()> {
        let timer = PreciseTimer::new()?;
        let mut fault = self.fault.clone();
        while let Some(item) = queue.recv().await {
            timer.wait_until(item.due).await?;
            wait_while_stalled(&mut fault).await;
            match item.payload {
                Payload::Data(bytes) => {
                    write_all(self.to, &bytes).await?;
                    self.lane.deliver(bytes.len());
                    room.add_permits(bytes.len());
                }
                Payload::End => return Ok(rustix::net::shutdown(self.to, rustix::net::Shutdown::Write)?),
                Payload::Reset => return Err(io::ErrorKind::ConnectionReset.into()),
            }
        }
        Ok(())
    }
}

impl Payload {
    fn len(&self) -> usize {
        match self {
            Self::Data(bytes) => bytes.len(),
            Self::End | Self::Reset => 0,
        }
    }
}

/// Returns once the link is not stalled.
pub async fn wait_while_stalled(fault: &mut watch::Receiver<Fault>) {
    // An error means that the link is going away, and this task with it.
    let _ = fault.wait_for(|fault| *fault != Fault::Stall).await;
}

fn queue_bytes(conditions: &Conditions) -> usize {
    let Some(rate_bps) = conditions.rate_bps else {
        return QUEUE_UNLIMITED_BYTES;
    };
    let bdp_bytes = rate_bps / 8.0 * (conditions.delay + conditions.jitter).as_secs_f64();
    ((bdp_bytes + QUEUE_BEYOND_BDP_BYTES) as usize).min(QUEUE_UNLIMITED_BYTES)
}

async fn take_room(room: &Semaphore, bytes: usize) {
    // A chunk is far below 2^32 bytes, and the semaphore is never closed.
    if let Ok(permit) = room.acquire_many(bytes as u32).await {
        permit.forget();
    }
}

async fn read(from: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        from.readable().await?;
        match from.try_read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
}

async fn write_all(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
