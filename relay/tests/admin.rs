//! What the admin port says.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{ANY_PORT, NAME, TestRelay, config, connect_head, exchange, get, read_to_end, soon, start, status, tunnel};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn series(relay: &TestRelay, name: &str) -> Option<f64> {
    let page = get(relay.admin, "/metrics").await;
    let line = page.lines().find(|line| line.split(' ').next() == Some(name))?;
    line.split(' ').nth(1)?.parse().ok()
}

fn of_route(name: &str, label: &str) -> String {
    format!("shardflow_relay_{name}{{route=\"{NAME}\"{label}}}")
}

#[tokio::test]
async fn bytes_and_tunnels_are_counted_exactly() {
    let (relay, mut client, mut server) = tunnel(|_| {}).await;
    client.write_all(&[1; 1000]).await.unwrap();
    soon(server.read_exact(&mut [0; 1000])).await.unwrap();
    server.write_all(&[2; 77]).await.unwrap();
    soon(client.read_exact(&mut [0; 77])).await.unwrap();
    assert_eq!(series(&relay, &of_route("bytes_total", ",direction=\"up\"")).await, Some(1000.0));
    assert_eq!(series(&relay, &of_route("bytes_total", ",direction=\"down\"")).await, Some(77.0));
    assert_eq!(series(&relay, &of_route("tunnels_open", "")).await, Some(1.0));
    assert_eq!(series(&relay, &of_route("setup_seconds_count", "")).await, Some(1.0));
    assert_eq!(series(&relay, "shardflow_relay_pipe_fallbacks_total").await, Some(0.0));

    drop(client);
    assert_eq!(read_to_end(&mut server).await, "");
    drop(server);
    soon(async { while series(&relay, &of_route("tunnels_open", "")).await != Some(0.0) {} }).await;
    assert_eq!(series(&relay, &of_route("tunnels_total", "")).await, Some(1.0));
}

#[tokio::test]
async fn the_kernels_round_trips_are_there_while_a_tunnel_is_open() {
    let (relay, mut client, server) = tunnel(|_| {}).await;
    client.write_all(b"x").await.unwrap();
    soon(server.readable()).await.unwrap();
    for side in ["client", "upstream"] {
        let rtt_s = series(&relay, &of_route("rtt_seconds", &format!(",side=\"{side}\""))).await;
        assert!(rtt_s.is_some_and(|rtt_s| rtt_s > 0.0 && rtt_s < 0.1), "{side}: {rtt_s:?}");
    }
    drop((client, server));
    let name = of_route("rtt_seconds", ",side=\"client\"");
    soon(async { while series(&relay, &name).await.is_some() {} }).await;
}

#[tokio::test]
async fn refusals_are_counted_by_status() {
    let relay = start(&config("127.0.0.1:1")).await;
    for authority in ["a:1", "b:1", "127.0.0.1:1", NAME] {
        exchange(relay.address, &connect_head(authority)).await;
    }
    for (code, count) in [(400, 0.0), (403, 1.0), (404, 2.0), (502, 1.0)] {
        assert_eq!(
            series(&relay, &format!("shardflow_relay_errors_total{{code=\"{code}\"}}")).await,
            Some(count),
            "{code}"
        );
    }
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_no_error() {
    let relay = start(&config("127.0.0.1:1")).await;
    drop(tokio::net::TcpStream::connect(relay.address).await.unwrap());
    exchange(relay.address, &connect_head("a:1")).await;
    let page = get(relay.admin, "/metrics").await;
    let nonzero: Vec<_> = page
        .lines()
        .filter(|line| line.contains("_errors_total") && line.ends_with(" 1"))
        .collect();
    assert_eq!(nonzero, ["shardflow_relay_errors_total{code=\"404\"} 1"]);
}

#[tokio::test]
async fn ready_turns_to_503_while_draining_but_live_does_not() {
    let (relay, client, _server) = tunnel(|_| {}).await;
    assert_eq!(status(&get(relay.admin, "/ready").await), 200);
    relay.trigger.raise();
    assert_eq!(status(&get(relay.admin, "/ready").await), 503);
    assert_eq!(status(&get(relay.admin, "/live").await), 200);
    drop((client, _server));
    soon(relay.task).await.unwrap();
}

#[tokio::test]
async fn other_pages_are_not_found() {
    let relay = start(&config("127.0.0.1:1")).await;
    assert_eq!(status(&get(relay.admin, "/").await), 404);
    assert_eq!(status(&exchange(relay.admin, b"POST /metrics HTTP/1.1\r\n\r\n").await), 404);
    assert_eq!(status(&exchange(relay.admin, b"nonsense\r\n\r\n").await), 400);
}

#[tokio::test]
async fn a_port_that_is_taken_is_an_error_at_start() {
    let taken = tokio::net::TcpListener::bind(ANY_PORT).await.unwrap();
    let mut config = config("127.0.0.1:1");
    config.listen = taken.local_addr().unwrap();
    let (_trigger, shutdown) = shardflow_relay::shutdown::channel();
    assert!(shardflow_relay::serve::Relay::bind(&config, shutdown).await.is_err());
}
