//! What bytes ride in between two sockets: a kernel pipe (spliced, never copied to user space) or, failing that, a buffer.
//!
//! A carrier is needed only while it holds bytes, so idle tunnels hold none: a pool lends them out and takes them back empty.

use std::io;
use std::os::fd::OwnedFd;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::net::TcpStream;

/// Asked of the kernel for each pipe, in bytes; it may grant less. Bounds one splice, so also a tunnel's turn.
const PIPE_BYTES: usize = 512 * 1024;
/// Size of the copy buffer, in bytes.
const BUFFER_BYTES: usize = 64 * 1024;
/// Empty carriers kept for the next tunnel; more than run at once are never needed, and each holds two files.
const POOL_MAX: usize = 32;
const NONBLOCKING: SpliceFlags = SpliceFlags::NONBLOCK.union(SpliceFlags::MOVE);

/// Holds bytes on their way from one socket to another.
#[derive(Debug)]
pub struct Carrier {
    load: Load,
    pending: usize,
}

#[derive(Debug)]
enum Load {
    Pipe { read: OwnedFd, write: OwnedFd },
    Buffer { bytes: Box<[u8]>, start: usize },
}

impl Carrier {
    /// A carrier that already holds `bytes`.
    pub fn holding(bytes: Vec<u8>) -> Self {
        Self {
            pending: bytes.len(),
            load: Load::Buffer {
                bytes: bytes.into_boxed_slice(),
                start: 0,
            },
        }
    }

    /// Bytes taken from one socket and not yet given to the other.
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Takes what `from` has, at most one load; 0 is the end of its stream. Call only when nothing is pending.
    ///
    /// Since the pipe is empty, `WouldBlock` means that the socket is, never that the pipe is full.
    fn fill(&mut self, from: &TcpStream) -> io::Result<usize> {
        debug_assert_eq!(self.pending, 0);
        let taken = match &mut self.load {
            Load::Pipe { write, .. } => rustix::io::retry_on_intr(|| splice(from, None, &*write, None, PIPE_BYTES, NONBLOCKING))?,
            Load::Buffer { bytes, start } => {
                *start = 0;
                rustix::io::retry_on_intr(|| rustix::io::read(from, &mut bytes[..]))?
            }
        };
        self.pending = taken;
        Ok(taken)
    }

    /// Gives `to` as much of what is pending as it takes. `WouldBlock` means that the socket is full.
    pub fn drain(&mut self, to: &TcpStream) -> io::Result<usize> {
        let given = match &mut self.load {
            Load::Pipe { read, .. } => rustix::io::retry_on_intr(|| splice(&*read, None, to, None, self.pending, NONBLOCKING))?,
            Load::Buffer { bytes, start } => {
                let given = send(to, &bytes[*start..*start + self.pending])?;
                *start += given;
                given
            }
        };
        self.pending -= given;
        Ok(given)
    }
}

fn send(to: &TcpStream, bytes: &[u8]) -> rustix::io::Result<usize> {
    rustix::io::retry_on_intr(|| rustix::net::send(to, bytes, rustix::net::SendFlags::NOSIGNAL))
}

/// Lends carriers to the tunnels.
#[derive(Debug)]
pub struct CarrierPool {
    idle: Mutex<Vec<Carrier>>,
    splicing: bool,
    fallbacks: Counter,
}

impl CarrierPool {
    /// Lends pipes. Counts into `fallbacks` each time a buffer has to stand in.
    pub fn splicing(fallbacks: Counter) -> Self {
        Self {
            idle: Mutex::default(),
            splicing: true,
            fallbacks,
        }
    }

    /// Lends buffers only: the plain copy loop, kept as the baseline of the benchmark.
    pub fn copying() -> Self {
        Self {
            idle: Mutex::default(),
            splicing: false,
            fallbacks: Counter::default(),
        }
    }

    /// Lends an empty carrier.
    pub fn take(&self) -> Carrier {
        if let Some(carrier) = self.idle.lock().pop() {
            return carrier;
        }
        if !self.splicing {
            return self.buffer();
        }
        new_pipe().unwrap_or_else(|_| self.fall_back())
    }

    /// Takes back a carrier that has nothing pending.
    pub fn give(&self, carrier: Carrier) {
        let stand_in = matches!(&carrier.load, Load::Buffer { .. }) && self.splicing;
        let mut idle = self.idle.lock();
        if idle.len() < POOL_MAX && !stand_in {
            idle.push(carrier);
        }
    }

    /// [`Carrier::fill`], trying again with a buffer if the kernel can not splice from this socket.
    pub fn fill(&self, carrier: &mut Carrier, from: &TcpStream) -> io::Result<usize> {
        match carrier.fill(from) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                *carrier = self.fall_back();
                carrier.fill(from)
            }
            result => result,
        }
    }

    fn fall_back(&self) -> Carrier {
        self.fallbacks.inc();
        self.buffer()
    }

    fn buffer(&self) -> Carrier {
        Carrier {
            load: Load::Buffer {
                bytes: vec![0; BUFFER_BYTES].into_boxed_slice(),
                start: 0,
            },
            pending: 0,
        }
    }
}

fn new_pipe() -> io::Result<Carrier> {
    let (read, write) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
    // Past the user's share of pipe memory the kernel says EPERM and the pipe stays smaller, which is slower but right.
    let _ = fcntl_setpipe_size(&write, PIPE_BYTES);
    Ok(Carrier {
        load: Load::Pipe { read, write },
        pending: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use tokio::io::AsyncReadExt;
    use tokio::io::Interest;
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    /// A carrier whose splice fails as it does on a socket that can not be spliced: with EINVAL.
    fn broken() -> Carrier {
        let file = || memfd_create("not a pipe", MemfdFlags::CLOEXEC).unwrap();
        Carrier {
            load: Load::Pipe {
                read: file(),
                write: file(),
            },
            pending: 0,
        }
    }

    #[tokio::test]
    async fn a_socket_that_can_not_be_spliced_is_copied_and_counted() {
        let ((near, from), (to, mut far)) = (pair().await, pair().await);
        let pool = CarrierPool::splicing(Counter::default());
        let mut carrier = broken();
        near.writable().await.unwrap();
        near.try_write(b"copied").unwrap();
        from.readable().await.unwrap();
        assert_eq!(pool.fill(&mut carrier, &from).unwrap(), 6);
        assert_eq!(carrier.drain(&to).unwrap(), 6);
        let mut received = [0; 6];
        far.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"copied");
        assert_eq!(pool.fallbacks.get(), 1);
    }

    #[tokio::test]
    async fn a_full_socket_takes_a_load_in_parts() {
        let (to, mut far) = pair().await;
        rustix::net::sockopt::set_socket_send_buffer_size(&to, 4096).unwrap();
        let reader = tokio::spawn(async move {
            let mut received = Vec::new();
            far.read_to_end(&mut received).await.unwrap();
            received
        });
        let sent: Vec<u8> = (0..4u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut carrier = Carrier::holding(sent.clone());
        let mut parts = 0;
        while carrier.pending() > 0 {
            to.writable().await.unwrap();
            if to.try_io(Interest::WRITABLE, || carrier.drain(&to)).is_ok() {
                parts += 1;
            }
        }
        drop(to);
        assert!(reader.await.unwrap() == sent);
        assert!(parts > 2);
    }

    #[test]
    fn a_pipe_given_back_is_lent_again_and_a_stand_in_is_not() {
        let pool = CarrierPool::splicing(Counter::default());
        pool.give(pool.take());
        assert_eq!(pool.idle.lock().len(), 1);
        drop(pool.take());
        pool.give(pool.fall_back());
        assert_eq!(pool.idle.lock().len(), 0);
    }
}
