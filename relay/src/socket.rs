//! What the relay sets on, and asks of, a TCP socket. Holds the crate's only unsafe block: the kernel's TCP_INFO.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::net::sockopt;

/// Dead peers are noticed by a probe after 30 s of silence, then every 10 s, three times.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
/// Sent data that stays unacknowledged this long ends the connection.
const USER_TIMEOUT_MS: u32 = 20_000;

/// Prepares one side of a tunnel for a long path: no Nagle delay, and a dead peer is noticed.
pub fn tune(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(socket, USER_TIMEOUT_MS)?;
    Ok(())
}

/// Makes the coming close a reset, so that the peer can not mistake a broken stream for its end.
pub fn reset_on_close(socket: impl AsFd) {
    // It only fails on a socket that is already dead, where there is nobody left to tell.
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

/// Takes [`reset_on_close`] back: what was sent is delivered, then the stream ends.
pub fn finish_on_close(socket: impl AsFd) {
    // As above: a dead socket has nothing to deliver.
    let _ = sockopt::set_socket_linger(socket, None);
}

/// The kernel's smoothed round trip to the peer; `None` before the first sample or on a dead socket.
pub fn round_trip(socket: impl AsFd) -> Option<Duration> {
    let rtt_us = tcp_info(socket.as_fd().as_raw_fd())?.tcpi_rtt;
    (rtt_us > 0).then(|| Duration::from_micros(u64::from(rtt_us)))
}

#[allow(unsafe_code)]
fn tcp_info(socket: libc::c_int) -> Option<libc::tcp_info> {
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: `info` has room for `length` bytes, and every bit pattern, all zeros included, is a valid `tcp_info`.
    unsafe {
        let status = libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &mut length);
        (status == 0).then(|| info.assume_init())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn both_sides_notice_a_dead_peer_and_send_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        tune(&socket).unwrap();
        assert!(sockopt::tcp_nodelay(&socket).unwrap());
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), Duration::from_secs(30));
        assert_eq!(sockopt::tcp_keepintvl(&socket).unwrap(), Duration::from_secs(10));
        assert_eq!(sockopt::tcp_keepcnt(&socket).unwrap(), 3);
        assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), 20_000);
    }

    #[test]
    fn only_a_connected_tcp_socket_has_a_round_trip() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(round_trip(&socket).is_some_and(|rtt| rtt < Duration::from_secs(1)));
        assert_eq!(round_trip(std::io::stdin()), None);
    }
}
