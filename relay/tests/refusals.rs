//! Who gets no tunnel, and what they are told.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::{Duration, Instant};

use common::{ANY_PORT, NAME, TestRelay, config, connect, connect_head, exchange, read_to_end, soon, start, status, tunnel};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

/// A relay whose only route leads to an upstream that fails the test if it is ever reached.
async fn guarded() -> TestRelay {
    let upstream = TcpListener::bind(ANY_PORT).await.unwrap();
    let relay = start(&config(&upstream.local_addr().unwrap().to_string())).await;
    tokio::spawn(async move {
        let (_stream, peer) = upstream.accept().await.unwrap();
        panic!("the upstream was reached from {peer}");
    });
    relay
}

async fn status_of(relay: &TestRelay, request: &[u8]) -> u16 {
    status(&exchange(relay.address, request).await)
}

#[tokio::test]
async fn only_names_in_the_table_are_served() {
    let relay = guarded().await;
    let upstream_port = 22;
    for (authority, expected) in [
        ("shard-2.region-b:443", 404),
        ("shard-1.region-b:444", 404),
        ("SHARD-1.region-b:443", 404),
        ("shard-1.region-b.:443", 404),
        ("localhost:443", 404),
        (&format!("localhost:{upstream_port}"), 404),
        ("127.0.0.1:443", 403),
        ("127.1:443", 403),
        ("2130706433:443", 403),
        ("0x7f000001:443", 403),
        ("169.254.169.254:80", 403),
        ("[::1]:443", 403),
        ("[::ffff:127.0.0.1]:443", 403),
        ("::1:443", 403),
        ("shard-1.region-b", 400),
        ("shard-1.region-b:", 400),
        ("user@shard-1.region-b:443", 400),
        ("http://shard-1.region-b:443", 400),
    ] {
        assert_eq!(status_of(&relay, &connect_head(authority)).await, expected, "{authority}");
    }
}

#[tokio::test]
async fn the_host_header_does_not_decide() {
    let relay = guarded().await;
    let request = format!("CONNECT shard-9:1 HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
    assert_eq!(status_of(&relay, request.as_bytes()).await, 404);
}

#[tokio::test]
async fn every_method_but_connect_is_not_allowed() {
    let relay = guarded().await;
    for request in [
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        format!("GET http://{NAME}/ HTTP/1.1\r\nHost: {NAME}\r\n\r\n"),
        format!("POST {NAME} HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"),
        format!("connect {NAME} HTTP/1.1\r\n\r\n"),
    ] {
        let answer = exchange(relay.address, request.as_bytes()).await;
        assert_eq!(status(&answer), 405, "{request}");
        assert!(answer.contains("\r\nAllow: CONNECT\r\n"));
    }
}

#[tokio::test]
async fn what_is_not_http_1_is_malformed() {
    let relay = guarded().await;
    for request in [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        b"\x16\x03\x01\x00\x05hello\r\n\r\n",
        b"CONNECT\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nno colon\r\n\r\n",
        b"\r\n\r\n\0\r\n\r\n",
    ] {
        assert_eq!(status_of(&relay, request).await, 400, "{request:?}");
    }
}

#[tokio::test]
async fn a_head_cut_short_is_malformed() {
    let relay = guarded().await;
    let mut client = TcpStream::connect(relay.address).await.unwrap();
    client.write_all(b"CONNECT shard").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(status(&read_to_end(&mut client).await), 400);
}

#[tokio::test]
async fn a_head_over_8_kib_is_too_large_and_the_client_gets_to_read_so() {
    let relay = guarded().await;
    let mut request = format!("CONNECT {NAME} HTTP/1.1\r\nX: ").into_bytes();
    request.resize(64 * 1024, b'x');
    request.extend_from_slice(b"\r\n\r\n");
    assert_eq!(status_of(&relay, &request).await, 431);
}

#[tokio::test]
async fn a_client_that_is_still_sending_is_not_reset_over_its_answer() {
    let relay = guarded().await;
    let mut client = TcpStream::connect(relay.address).await.unwrap();
    client.write_all(&[b'x'; 9 * 1024]).await.unwrap();
    assert_eq!(status(&read_to_end(&mut client).await), 431);
    // The first write would call forth the reset, the second meet it.
    client.write_all(b"more").await.unwrap();
    client.write_all(b"more").await.unwrap();
}

#[tokio::test]
async fn a_head_of_exactly_8_kib_is_served() {
    let upstream = TcpListener::bind(ANY_PORT).await.unwrap();
    let relay = start(&config(&upstream.local_addr().unwrap().to_string())).await;
    let mut request = format!("CONNECT {NAME} HTTP/1.1\r\nX: ").into_bytes();
    request.resize(8 * 1024 - 4, b'x');
    request.extend_from_slice(b"\r\n\r\n");
    let mut client = TcpStream::connect(relay.address).await.unwrap();
    client.write_all(&request).await.unwrap();
    common::read_granted(&mut client).await;
}

#[tokio::test]
async fn too_many_headers_are_too_large() {
    let relay = guarded().await;
    let request = format!("CONNECT {NAME} HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(100));
    assert_eq!(status_of(&relay, request.as_bytes()).await, 431);
}

#[tokio::test]
async fn a_head_that_trickles_is_timed_out_while_others_are_served() {
    let upstream = TcpListener::bind(ANY_PORT).await.unwrap();
    let mut config = config(&upstream.local_addr().unwrap().to_string());
    config.deadlines.handshake = Duration::from_millis(400);
    let relay = start(&config).await;
    let start = Instant::now();
    let mut slow = TcpStream::connect(relay.address).await.unwrap();
    slow.write_all(b"CONNECT ").await.unwrap();
    connect(relay.address).await;
    let (mut slow_read, mut slow_write) = slow.split();
    let trickle = async {
        while slow_write.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let mut answer = String::new();
    let read = tokio::io::AsyncReadExt::read_to_string(&mut slow_read, &mut answer);
    tokio::select! {
        result = soon(read) => { result.unwrap(); }
        () = trickle => panic!("closed without an answer"),
    }
    assert_eq!(status(&answer), 408);
    assert!(start.elapsed() >= Duration::from_millis(400));
}

#[tokio::test]
async fn an_upstream_that_refuses_or_has_no_address_is_a_bad_gateway() {
    let closed = {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        listener.local_addr().unwrap().to_string()
    };
    for upstream in [closed.as_str(), "no-such-host.invalid:1"] {
        let relay = start(&config(upstream)).await;
        assert_eq!(status_of(&relay, &connect_head(NAME)).await, 502, "{upstream}");
    }
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_is_a_gateway_timeout() {
    // A listener that never accepts, with its queue of one filled, leaves the next connect without an answer.
    let full = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&full, &ANY_PORT).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let address = std::net::TcpListener::from(full);
    let upstream = address.local_addr().unwrap();
    let mut fillers = Vec::new();
    for _ in 0..4 {
        let filler = tokio::time::timeout(Duration::from_millis(100), TcpStream::connect(upstream)).await;
        fillers.push(filler);
    }
    let mut config = config(&upstream.to_string());
    config.deadlines.connect = Duration::from_millis(200);
    let relay = start(&config).await;
    assert_eq!(status_of(&relay, &connect_head(NAME)).await, 504);
}

#[tokio::test]
async fn over_the_cap_of_one_address_a_client_is_told_and_later_served() {
    let (relay, client, server) = tunnel(|config| config.max_per_ip = 1).await;
    assert_eq!(status_of(&relay, &connect_head(NAME)).await, 503);
    drop((client, server));
    soon(async { while status_of(&relay, &connect_head("unknown:1")).await != 404 {} }).await;
}

#[tokio::test]
async fn over_the_cap_of_all_addresses_a_client_is_told() {
    let (relay, _client, _server) = tunnel(|config| config.max_connections = 1).await;
    assert_eq!(status_of(&relay, &connect_head(NAME)).await, 503);
}

#[tokio::test]
async fn a_handshake_under_way_when_draining_starts_is_told_so() {
    let relay = guarded().await;
    let mut client = TcpStream::connect(relay.address).await.unwrap();
    client.write_all(b"CONNECT ").await.unwrap();
    // An answer to a later connection shows that the earlier one has been accepted.
    assert_eq!(status_of(&relay, &connect_head("unknown:1")).await, 404);
    relay.trigger.raise();
    assert_eq!(status(&read_to_end(&mut client).await), 503);
    soon(relay.task).await.unwrap();
}
