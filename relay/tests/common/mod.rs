//! Shared by the integration tests: a relay in this process on free ports, and plain TCP helpers.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use shardflow_relay::config::ServeConfig;
use shardflow_relay::connection::Deadlines;
use shardflow_relay::serve::Relay;
use shardflow_relay::shutdown::{self, Trigger};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The name that every test's route has.
pub const NAME: &str = "shard-1.region-b:443";
pub const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
const PATIENCE: Duration = Duration::from_secs(30);

/// Fails the test instead of hanging it.
pub async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("the test hangs")
}

pub fn config(upstream: &str) -> ServeConfig {
    ServeConfig {
        listen: ANY_PORT,
        admin: ANY_PORT,
        routes: vec![format!("{NAME}={upstream}").parse().unwrap()],
        max_connections: 100,
        max_per_ip: 100,
        deadlines: Deadlines {
            handshake: Duration::from_secs(5),
            connect: Duration::from_secs(5),
            linger: Duration::from_secs(60),
        },
        drain: Duration::from_secs(10),
        copy: false,
    }
}

/// A running relay.
pub struct TestRelay {
    pub address: SocketAddr,
    pub admin: SocketAddr,
    pub trigger: Trigger,
    pub task: JoinHandle<()>,
}

pub async fn start(config: &ServeConfig) -> TestRelay {
    let (trigger, shutdown) = shutdown::channel();
    let relay = Relay::bind(config, shutdown).await.unwrap();
    TestRelay {
        address: relay.address().unwrap(),
        admin: relay.admin_address().unwrap(),
        trigger,
        task: tokio::spawn(relay.run()),
    }
}

/// A relay, a client that is through it, and the upstream's end of that tunnel.
pub async fn tunnel(adjust: impl FnOnce(&mut ServeConfig)) -> (TestRelay, TcpStream, TcpStream) {
    let upstream = TcpListener::bind(ANY_PORT).await.unwrap();
    let mut config = config(&upstream.local_addr().unwrap().to_string());
    adjust(&mut config);
    let relay = start(&config).await;
    let client = connect(relay.address).await;
    let (server, _) = soon(upstream.accept()).await.unwrap();
    (relay, client, server)
}

/// Connects through the relay to [`NAME`].
pub async fn connect(relay: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(relay).await.unwrap();
    client.write_all(&connect_head(NAME)).await.unwrap();
    read_granted(&mut client).await;
    client
}

pub fn connect_head(authority: &str) -> Vec<u8> {
    format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: test\r\n\r\n").into_bytes()
}

/// Reads the relay's 200 and not one byte more.
pub async fn read_granted(client: &mut TcpStream) {
    const GRANTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
    let mut head = vec![0; GRANTED.len()];
    soon(client.read_exact(&mut head)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&head), String::from_utf8_lossy(GRANTED));
}

/// Sends `request` and returns everything that comes back until the peer closes.
pub async fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    read_to_end(&mut stream).await
}

pub async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    soon(stream.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// The status line's code.
pub fn status(answer: &str) -> u16 {
    let code = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    code.unwrap_or_else(|| panic!("no status in {answer:?}")).parse().unwrap()
}

pub async fn get(admin: SocketAddr, path: &str) -> String {
    exchange(admin, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await
}

/// A stream whose every position can be told from its neighbours: a block of odd length, over and over.
pub struct Pattern(Vec<u8>);

impl Pattern {
    pub fn new() -> Self {
        const BLOCK_BYTES: u32 = 1_048_573;
        Self((0..BLOCK_BYTES).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect())
    }

    /// The stream from `position`, up to the end of a block.
    pub fn block_at(&self, position: usize) -> &[u8] {
        &self.0[position % self.0.len()..]
    }

    pub async fn send(&self, to: &mut (impl AsyncWriteExt + Unpin), total: usize) {
        self.send_from(to, 0, total).await;
    }

    /// Sends what lies between two positions of the stream.
    pub async fn send_from(&self, to: &mut (impl AsyncWriteExt + Unpin), start: usize, total: usize) {
        let mut sent = start;
        while sent < total {
            let block = self.block_at(sent);
            let length = block.len().min(total - sent);
            soon(to.write_all(&block[..length])).await.unwrap();
            sent += length;
        }
    }

    /// Reads to the end and returns how much there was; every byte must be the pattern's.
    pub async fn check_to_end(&self, from: &mut (impl AsyncReadExt + Unpin)) -> usize {
        let mut buffer = vec![0; 65_536];
        let mut position = 0;
        loop {
            let length = soon(from.read(&mut buffer)).await.unwrap();
            if length == 0 {
                return position;
            }
            let mut checked = 0;
            while checked < length {
                let block = self.block_at(position + checked);
                let part = block.len().min(length - checked);
                assert!(
                    buffer[checked..checked + part] == block[..part],
                    "wrong bytes near {}",
                    position + checked
                );
                checked += part;
            }
            position += length;
        }
    }
}
