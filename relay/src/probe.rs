//! `probe`: asks an admin port whether its process is ready, for health checks where there is no other HTTP client.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(2);
const READY: &[u8; 12] = b"HTTP/1.1 200";

/// Asks `GET /ready` of `admin`.
///
/// # Errors
/// Why the process there is not ready: the connection failed, or the answer was not 200.
pub fn ready(admin: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&admin, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET /ready HTTP/1.1\r\nHost: {admin}\r\n\r\n")?;
    let mut status = [0; READY.len()];
    stream.read_exact(&mut status)?;
    if &status == READY {
        return Ok(());
    }
    let status = String::from_utf8_lossy(&status);
    Err(io::Error::other(format!("{admin} answered {status}")))
}
