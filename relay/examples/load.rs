//! Load for `benchmarks/bench_relay.py`: an echo and a sink to relay to, pings to time, and a stream to push through.
//!
//! It is built to cost as little as it can, so that the relay is what is measured: the stream is sent from page cache
//! with `sendfile`, and the sink discards in the kernel.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::mem::size_of;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::net::{RecvFlags, recv};
use serde_json::json;

const PING_BYTES: usize = 64;
/// The page-cache file that the stream repeats; small enough to stay in the processor's cache.
const STREAM_FILE_BYTES: usize = 1024 * 1024;
const DISCARD_BYTES: usize = 1024 * 1024;
/// The sink sleeps until this much has arrived.
const WAKE_BYTES: libc::c_int = 256 * 1024;
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Parser)]
enum Command {
    /// Serve an echo and a sink on free ports; prints them as JSON.
    Serve,
    /// Ping every target in turn, `rounds` times; prints the median of each in microseconds.
    Ping { rounds: usize, targets: Vec<Target> },
    /// Push `mib` MiB to the target's sink; prints the seconds until the last byte was acknowledged.
    Stream { mib: usize, target: Target },
}

/// `LABEL=HOST:PORT`, or `LABEL=HOST:PORT,NAME:PORT` to ask the relay there for a name.
#[derive(Clone)]
struct Target {
    label: String,
    address: String,
    authority: Option<String>,
}

impl std::str::FromStr for Target {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (label, place) = text.split_once('=').ok_or("a target is LABEL=HOST:PORT[,NAME:PORT]")?;
        let (address, authority) = match place.split_once(',') {
            Some((address, authority)) => (address, Some(authority.to_owned())),
            None => (place, None),
        };
        Ok(Self {
            label: label.to_owned(),
            address: address.to_owned(),
            authority,
        })
    }
}

impl Target {
    fn connect(&self) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        if let Some(authority) = &self.authority {
            write!(stream, "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")?;
            read_granted(&mut stream)?;
        }
        Ok(stream)
    }
}

fn read_granted(stream: &mut TcpStream) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    if head.starts_with(b"HTTP/1.1 200 ") {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&head).into_owned()))
}

fn main() -> io::Result<()> {
    match Command::parse() {
        Command::Serve => serve(),
        Command::Ping { rounds, targets } => ping(rounds, &targets),
        Command::Stream { mib, target } => stream(mib, &target),
    }
}

fn serve() -> io::Result<()> {
    let echo = TcpListener::bind("127.0.0.1:0")?;
    let sink = TcpListener::bind("127.0.0.1:0")?;
    println!(
        "{}",
        json!({"echo": echo.local_addr()?.to_string(), "sink": sink.local_addr()?.to_string()})
    );
    thread::spawn(move || accept_all(&echo, serve_echo));
    accept_all(&sink, serve_sink)
}

fn accept_all(listener: &TcpListener, serve: fn(TcpStream) -> io::Result<()>) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        thread::spawn(move || serve(stream));
    }
}

fn serve_echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut ping = [0; PING_BYTES];
    loop {
        stream.read_exact(&mut ping)?;
        stream.write_all(&ping)?;
    }
}

/// Counts what arrives without looking at it, then answers with the count.
fn serve_sink(mut stream: TcpStream) -> io::Result<()> {
    // Woken for every packet, the sink would cost more than the relay.
    set_receive_low_water(&stream, WAKE_BYTES)?;
    let mut nowhere = vec![0; DISCARD_BYTES];
    let mut received: u64 = 0;
    loop {
        // With MSG_TRUNC a TCP socket drops the bytes instead of copying them out.
        let (_, length) = recv(&stream, &mut nowhere[..], RecvFlags::TRUNC)?;
        if length == 0 {
            return stream.write_all(&received.to_le_bytes());
        }
        received += length as u64;
    }
}

#[allow(unsafe_code)]
fn set_receive_low_water(stream: &TcpStream, bytes: libc::c_int) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option takes an int, which `bytes` is and stays for the call.
    let status = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            length,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn ping(rounds: usize, targets: &[Target]) -> io::Result<()> {
    let mut streams = targets.iter().map(Target::connect).collect::<io::Result<Vec<_>>>()?;
    let mut times = vec![Vec::with_capacity(rounds); targets.len()];
    for _ in 0..rounds {
        for (stream, times) in streams.iter_mut().zip(&mut times) {
            let mut answer = [0; PING_BYTES];
            let start = Instant::now();
            stream.write_all(&[7; PING_BYTES])?;
            stream.read_exact(&mut answer)?;
            times.push(start.elapsed());
        }
    }
    let medians: BTreeMap<_, _> = targets
        .iter()
        .zip(times)
        .map(|(target, times)| (&target.label, median_us(times)))
        .collect();
    println!("{}", json!(medians));
    Ok(())
}

fn median_us(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn stream(mib: usize, target: &Target) -> io::Result<()> {
    let total = mib * 1024 * 1024;
    let file = memfd_create("load", MemfdFlags::CLOEXEC)?;
    rustix::io::write(&file, &vec![7; STREAM_FILE_BYTES])?;
    let mut stream = target.connect()?;
    let start = Instant::now();
    let mut sent = 0;
    while sent < total {
        let mut offset = (sent % STREAM_FILE_BYTES) as u64;
        let left = (STREAM_FILE_BYTES - offset as usize).min(total - sent);
        sent += sendfile(&stream, &file, Some(&mut offset), left)?;
    }
    stream.shutdown(Shutdown::Write)?;
    let mut received = [0; 8];
    stream.read_exact(&mut received)?;
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(u64::from_le_bytes(received), total as u64, "bytes were lost");
    println!("{}", json!({"seconds": seconds, "bytes": total}));
    Ok(())
}
