//! A timer that is right to some tens of microseconds, where the runtime's own wheel turns once a millisecond.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime};
use tokio::io::unix::AsyncFd;

/// One kernel timer; waits for one instant at a time.
#[derive(Debug)]
pub struct PreciseTimer(AsyncFd<OwnedFd>);

impl PreciseTimer {
    /// Makes a timer; call inside a runtime.
    // `AsyncFd::new` is deprecated because a caller could close the file under it; an `OwnedFd` rules that out.
    #[allow(deprecated)]
    pub fn new() -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Self(AsyncFd::new(timer)?))
    }

    /// Returns once `due` has passed, at once if it already has.
    pub async fn wait_until(&self, due: Instant) -> io::Result<()> {
        let wait = due.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            return Ok(());
        }
        let once = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(wait),
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        self.expired().await
    }

    async fn expired(&self) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            let mut expirations = [0; 8];
            let read = ready.try_io(|timer| rustix::io::read(timer, &mut expirations).map_err(io::Error::from));
            match read {
                Ok(Err(error)) if Errno::from_io_error(&error) == Some(Errno::INTR) => {}
                Ok(result) => return result.map(|_| ()),
                // Readiness left over from an earlier wait; it is cleared now.
                Err(_) => {}
            }
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        // Waits are bounded by the largest delay and the largest queue, far below 2^63 s.
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
