//! What a tunnel does to the bytes and the ends of two streams.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::io::ErrorKind;
use std::time::Duration;

use common::{ANY_PORT, NAME, Pattern, config, connect, connect_head, read_granted, read_to_end, soon, start, tunnel};
use shardflow_relay::socket::reset_on_close;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn the_upstream_can_answer_after_the_client_has_ended_its_stream() {
    let (_relay, mut client, mut server) = tunnel(|_| {}).await;
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut server).await, "question");
    server.write_all(b"answer").await.unwrap();
    drop(server);
    assert_eq!(read_to_end(&mut client).await, "answer");
}

#[tokio::test]
async fn the_client_can_go_on_after_the_upstream_has_ended_its_stream() {
    let (_relay, mut client, mut server) = tunnel(|_| {}).await;
    server.write_all(b"greeting").await.unwrap();
    server.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut client).await, "greeting");
    client.write_all(b"upload").await.unwrap();
    drop(client);
    assert_eq!(read_to_end(&mut server).await, "upload");
}

#[tokio::test]
async fn a_tunnel_is_over_at_once_when_both_ends_close_together() {
    let (relay, client, server) = tunnel(|_| {}).await;
    drop((client, server));
    relay.trigger.raise();
    let start = std::time::Instant::now();
    soon(relay.task).await.unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "it was held until the end of the drain time"
    );
}

#[tokio::test]
async fn bytes_glued_to_the_connect_head_come_first() {
    let upstream = TcpListener::bind(ANY_PORT).await.unwrap();
    let relay = start(&config(&upstream.local_addr().unwrap().to_string())).await;
    let mut client = TcpStream::connect(relay.address).await.unwrap();
    let mut glued = connect_head(NAME);
    glued.extend_from_slice(b"first,");
    client.write_all(&glued).await.unwrap();
    let (mut server, _) = soon(upstream.accept()).await.unwrap();
    read_granted(&mut client).await;
    client.write_all(b"second").await.unwrap();
    drop(client);
    assert_eq!(read_to_end(&mut server).await, "first,second");
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_is_understood() {
    let upstream = TcpListener::bind(ANY_PORT).await.unwrap();
    let relay = start(&config(&upstream.local_addr().unwrap().to_string())).await;
    let mut client = TcpStream::connect(relay.address).await.unwrap();
    client.set_nodelay(true).unwrap();
    for byte in connect_head(NAME) {
        client.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    read_granted(&mut client).await;
}

async fn both_ways(client: TcpStream, server: TcpStream, total: usize) {
    let pattern = Pattern::new();
    let (mut client_read, mut client_write) = client.into_split();
    let (mut server_read, mut server_write) = server.into_split();
    let up = async {
        pattern.send(&mut client_write, total).await;
        client_write.shutdown().await.unwrap();
    };
    let down = async {
        pattern.send(&mut server_write, total).await;
        server_write.shutdown().await.unwrap();
    };
    let ((), (), at_server, at_client) = tokio::join!(
        up,
        down,
        pattern.check_to_end(&mut server_read),
        pattern.check_to_end(&mut client_read)
    );
    assert_eq!((at_server, at_client), (total, total));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_byte_of_64_mib_both_ways_at_once_is_right() {
    let (_relay, client, server) = tunnel(|_| {}).await;
    both_ways(client, server, 64 * MIB).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_copy_loop_carries_the_same_bytes() {
    let (_relay, client, server) = tunnel(|config| config.copy = true).await;
    both_ways(client, server, 16 * MIB).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiny_socket_buffers_only_make_it_slower() {
    let (_relay, client, server) = tunnel(|_| {}).await;
    for socket in [&client, &server] {
        rustix::net::sockopt::set_socket_send_buffer_size(socket, 8192).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(socket, 8192).unwrap();
    }
    both_ways(client, server, MIB / 8).await;
}

/// Writes until nothing more fits anywhere on the way; returns how much did.
async fn fill(stream: &mut TcpStream, pattern: &Pattern) -> usize {
    let mut sent = 0;
    // What fits is bounded by the socket buffers of four ends and one pipe.
    while timeout(Duration::from_millis(500), stream.writable()).await.is_ok() {
        match stream.try_write(pattern.block_at(sent)) {
            Ok(length) => sent += length,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    sent
}

#[tokio::test]
async fn a_reader_that_stops_holds_up_neither_the_other_direction_nor_other_tunnels() {
    let upstream = TcpListener::bind(ANY_PORT).await.unwrap();
    let relay = start(&config(&upstream.local_addr().unwrap().to_string())).await;
    let (mut client, mut server) = (connect(relay.address).await, soon(upstream.accept()).await.unwrap().0);
    let pattern = Pattern::new();
    let sent = fill(&mut client, &pattern).await;

    server.write_all(b"other way").await.unwrap();
    let mut answer = [0; 9];
    soon(client.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"other way");

    let (mut second, mut second_server) = (connect(relay.address).await, soon(upstream.accept()).await.unwrap().0);
    second.write_all(b"other tunnel").await.unwrap();
    drop(second);
    assert_eq!(read_to_end(&mut second_server).await, "other tunnel");

    client.shutdown().await.unwrap();
    assert_eq!(pattern.check_to_end(&mut server).await, sent);
}

#[tokio::test]
async fn a_reset_is_passed_on_as_a_reset() {
    for client_resets in [true, false] {
        let (_relay, client, server) = tunnel(|_| {}).await;
        let (resets, mut suffers) = if client_resets { (client, server) } else { (server, client) };
        reset_on_close(&resets);
        drop(resets);
        let error = soon(suffers.read(&mut [0; 1])).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn silence_after_a_half_close_ends_the_tunnel() {
    let (_relay, mut client, mut server) = tunnel(|config| config.deadlines.linger = Duration::from_millis(200)).await;
    client.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut server).await, "");
    let error = soon(server.read(&mut [0; 1])).await;
    assert!(matches!(error, Ok(0) | Err(_)));
    let error = soon(client.read(&mut [0; 1])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_slow_answer_after_a_half_close_is_not_cut_off() {
    let linger = Duration::from_millis(300);
    let (_relay, mut client, mut server) = tunnel(|config| config.deadlines.linger = linger).await;
    client.shutdown().await.unwrap();
    let mut answer = [0; 1];
    for _ in 0..6 {
        tokio::time::sleep(linger / 2).await;
        server.write_all(b".").await.unwrap();
        soon(client.read_exact(&mut answer)).await.unwrap();
    }
    drop(server);
    assert_eq!(read_to_end(&mut client).await, "");
}

#[tokio::test]
async fn an_upstream_given_by_name_is_looked_up_when_connecting() {
    let upstream = TcpListener::bind(ANY_PORT).await.unwrap();
    let port = upstream.local_addr().unwrap().port();
    let relay = start(&config(&format!("localhost:{port}"))).await;
    let mut client = connect(relay.address).await;
    client.write_all(b"by name").await.unwrap();
    drop(client);
    let (mut server, _) = soon(upstream.accept()).await.unwrap();
    assert_eq!(read_to_end(&mut server).await, "by name");
}
