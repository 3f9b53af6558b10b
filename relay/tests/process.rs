//! The binary from outside: exit codes, the ports in its log, signals, and the files it holds.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use common::{ANY_PORT, NAME, Pattern, connect, connect_head, exchange, get, read_to_end, soon, status};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const BINARY: &str = env!("CARGO_BIN_EXE_shardflow-relay");

/// A relay process; killed when dropped.
struct Process {
    child: Child,
    relay: SocketAddr,
    admin: SocketAddr,
    log: BufReader<ChildStdout>,
}

impl Process {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stdout.take().unwrap());
        let (relay, admin) = (listening(&mut log, "relay"), listening(&mut log, "admin"));
        Self { child, relay, admin, log }
    }

    fn serve(upstream: SocketAddr, more: &[&str]) -> Self {
        let mut command = Command::new(BINARY);
        command.args(serve_args(upstream)).args(more);
        Self::start(command)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the process to end by itself; returns how it did and the rest of its log.
    fn finish(mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }

    fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve_args(upstream: SocketAddr) -> Vec<String> {
    [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--route",
        &format!("{NAME}={upstream}"),
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Reads the next log line, which must say where `role` listens.
fn listening(log: &mut impl BufRead, role: &str) -> SocketAddr {
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["message"], &line["role"]), (&"listening".into(), &role.into()));
    let address: SocketAddr = line["address"].as_str().unwrap().parse().unwrap();
    assert_eq!(line["port"], address.port());
    address
}

fn run(args: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String) {
    let output: Output = Command::new(BINARY).args(args).envs(env.iter().copied()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn every_problem_of_a_bad_configuration_is_reported_and_the_exit_code_is_64() {
    let (code, log) = run(
        &[
            "serve",
            "--listen",
            "here",
            "--route",
            "127.0.0.1:1=b:1",
            "--route",
            "a:1=b",
            "--drain-seconds=-1",
            "--max-per-ip",
            "0",
        ],
        &[("SHARDFLOW_RELAY_CONNECT_SECONDS", "soon")],
    );
    assert_eq!(code, Some(64));
    let problems: Vec<_> = log
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .collect();
    let settings: Vec<_> = problems
        .iter()
        .map(|problem| problem["problem"].as_str().unwrap().split(':').next().unwrap())
        .collect();
    assert_eq!(
        settings,
        ["listen", "route", "route", "max-per-ip", "connect-seconds", "drain-seconds"]
    );
}

#[test]
fn a_route_given_twice_or_no_route_is_a_problem() {
    let (code, log) = run(&["serve", "--route", "a:1=b:1,a:1=c:1"], &[]);
    assert_eq!(code, Some(64));
    assert!(log.contains("`a:1` is given twice"), "{log}");
    let (code, log) = run(&["serve"], &[]);
    assert_eq!(code, Some(64));
    assert!(log.contains("at least one is needed"), "{log}");
}

#[test]
fn an_unknown_flag_is_64_and_help_is_0() {
    assert_eq!(run(&["serve", "--rout", "x"], &[]).0, Some(64));
    assert_eq!(
        run(&["wanlink", "--listen", "127.0.0.1:0", "--to", "nowhere", "--delay-ms", "x"], &[]).0,
        Some(64)
    );
    assert_eq!(run(&["--help"], &[]).0, Some(0));
}

#[tokio::test]
async fn routes_and_addresses_come_from_the_environment_too() {
    let upstream = TcpListener::bind(ANY_PORT).await.unwrap();
    let mut command = Command::new(BINARY);
    command.arg("serve").envs([
        ("SHARDFLOW_RELAY_LISTEN", "127.0.0.1:0"),
        ("SHARDFLOW_RELAY_ADMIN", "127.0.0.1:0"),
        (
            "SHARDFLOW_RELAY_ROUTES",
            &format!("other:1=127.0.0.1:1,{NAME}={}", upstream.local_addr().unwrap()),
        ),
    ]);
    let process = Process::start(command);
    connect(process.relay).await;
    assert_eq!(status(&exchange(process.relay, &connect_head("other:1")).await), 502);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_lets_a_transfer_end_and_exits_0() {
    let upstream = TcpListener::bind(ANY_PORT).await.unwrap();
    let process = Process::serve(upstream.local_addr().unwrap(), &[]);
    let mut client = connect(process.relay).await;
    let (mut server, _) = soon(upstream.accept()).await.unwrap();
    let pattern = Pattern::new();
    const TOTAL: usize = 32 * 1024 * 1024;
    let sending = async {
        pattern.send(&mut client, TOTAL / 2).await;
        process.signal(Signal::TERM);
        soon(async { while TcpStream::connect(process.relay).await.is_ok() {} }).await;
        assert_eq!(status(&get(process.admin, "/ready").await), 503);
        pattern.send_from(&mut client, TOTAL / 2, TOTAL).await;
        client.shutdown().await.unwrap();
    };
    let ((), received) = tokio::join!(sending, pattern.check_to_end(&mut server));
    assert_eq!(received, TOTAL);
    drop((client, server));
    let (exit, log) = process.finish();
    assert_eq!(exit.code(), Some(0));
    assert!(log.contains("\"drained\""), "{log}");
}

#[tokio::test]
async fn when_the_drain_time_is_over_tunnels_are_reset_and_the_exit_is_still_0() {
    let upstream = TcpListener::bind(ANY_PORT).await.unwrap();
    let process = Process::serve(upstream.local_addr().unwrap(), &["--drain-seconds", "0.2"]);
    let mut client = connect(process.relay).await;
    let (mut server, _) = soon(upstream.accept()).await.unwrap();
    process.signal(Signal::TERM);
    for stream in [&mut client, &mut server] {
        let error = soon(stream.read(&mut [0; 1])).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    assert_eq!(process.finish().0.code(), Some(0));
}

#[tokio::test]
async fn a_second_signal_ends_the_drain() {
    let upstream = TcpListener::bind(ANY_PORT).await.unwrap();
    let process = Process::serve(upstream.local_addr().unwrap(), &["--drain-seconds", "3600"]);
    let _client = connect(process.relay).await;
    process.signal(Signal::INT);
    soon(async { while status(&get(process.admin, "/ready").await) != 503 {} }).await;
    process.signal(Signal::INT);
    assert_eq!(process.finish().0.code(), Some(0));
}

#[tokio::test]
async fn no_way_of_ending_a_tunnel_leaves_a_file_open() {
    let upstream = TcpListener::bind(ANY_PORT).await.unwrap();
    let process = Process::serve(upstream.local_addr().unwrap(), &["--handshake-seconds", "0.2"]);
    exchange(process.admin, b"GET /live HTTP/1.1\r\n\r\n").await;
    let before = process.open_files();
    for round in 0..40 {
        let mut client = connect(process.relay).await;
        let (mut server, _) = soon(upstream.accept()).await.unwrap();
        client.write_all(&[1; 100_000]).await.unwrap();
        match round % 4 {
            0 => shardflow_relay::socket::reset_on_close(&client),
            1 => shardflow_relay::socket::reset_on_close(&server),
            2 => server.write_all(&[2; 100_000]).await.unwrap(),
            _ => server.shutdown().await.unwrap(),
        }
        exchange(process.relay, &connect_head("unknown:1")).await;
        let _silent = TcpStream::connect(process.relay).await.unwrap();
    }
    // Pipes stay pooled, two files each; nothing ran beside anything else here, so one or two are in the pool.
    soon(async {
        while process.open_files() > before + 4 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn running_out_of_files_is_survived() {
    let upstream = TcpListener::bind(ANY_PORT).await.unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 40; exec \"$@\"", "sh", BINARY])
        .args(serve_args(upstream.local_addr().unwrap()));
    let process = Process::start(command);
    let mut clients = Vec::new();
    for _ in 0..60 {
        let mut client = TcpStream::connect(process.relay).await.unwrap();
        client.write_all(&connect_head(NAME)).await.unwrap();
        clients.push(client);
    }
    drop(clients);
    let servers = tokio::spawn(async move {
        loop {
            drop(upstream.accept().await.unwrap());
        }
    });
    soon(async {
        loop {
            let mut client = TcpStream::connect(process.relay).await.unwrap();
            let head = connect_head(NAME);
            if client.write_all(&head).await.is_ok() && read_to_end(&mut client).await.starts_with("HTTP/1.1 200") {
                break;
            }
        }
    })
    .await;
    servers.abort();
    process.signal(Signal::TERM);
    let (exit, log) = process.finish();
    assert_eq!(exit.code(), Some(0));
    // With one file left a client is told 503, with none it is not accepted.
    assert!(
        log.contains("accept failed") || log.contains("\"status\":503"),
        "the limit was never reached: {log}"
    );
}

#[tokio::test]
async fn a_probe_is_0_while_ready_and_1_while_draining_or_gone() {
    let upstream = TcpListener::bind(ANY_PORT).await.unwrap();
    let process = Process::serve(upstream.local_addr().unwrap(), &["--drain-seconds", "3600"]);
    let _client = connect(process.relay).await;
    let admin = process.admin.to_string();
    assert_eq!(run(&["probe", &admin], &[]), (Some(0), String::new()));

    process.signal(Signal::TERM);
    soon(async { while status(&get(process.admin, "/ready").await) != 503 {} }).await;
    let (code, log) = run(&["probe", &admin], &[]);
    assert_eq!(code, Some(1));
    assert!(log.contains("answered HTTP/1.1 503"), "{log}");

    drop(process);
    assert_eq!(run(&["probe", &admin], &[]).0, Some(1));
}

#[test]
fn a_link_can_be_probed_too() {
    let mut command = Command::new(BINARY);
    command.args([
        "wanlink",
        "--listen",
        "127.0.0.1:0",
        "--to",
        "127.0.0.1:1",
        "--admin",
        "127.0.0.1:0",
    ]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stdout.take().unwrap());
    let admin = listening(&mut log, "wanlink-admin");
    let probed = run(&["probe", &admin.to_string()], &[]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(probed, (Some(0), String::new()));
}
