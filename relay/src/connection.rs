//! One client connection: read the CONNECT, reach the upstream, say 200, then be a tunnel.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::carrier::CarrierPool;
use crate::http::{self, Answer, Head, HeadError};
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::route::{Ends, Route, RouteTable};
use crate::shutdown::Shutdown;
use crate::socket;
use crate::tunnel::{Ending, Tunnel};

const GRANTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// How long each step of a connection may take.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// From accept to a complete head.
    pub handshake: Duration,
    /// From a complete head to a connected upstream, the name lookup included.
    pub connect: Duration,
    /// Silence allowed to one end after the other has ended its stream.
    pub linger: Duration,
}

/// What all connections share.
pub struct Shared {
    /// Where tunnels may lead.
    pub routes: RouteTable,
    /// The process's metrics.
    pub metrics: Metrics,
    /// Where tunnels get their pipes from.
    pub pool: Arc<CarrierPool>,
    /// The time limits.
    pub deadlines: Deadlines,
    /// Raised while the relay drains.
    pub draining: Shutdown,
}

/// What the client asked for, and what it sent behind it.
struct Request {
    route: Arc<Route>,
    glued: Vec<u8>,
    since: Instant,
}

/// Serves one accepted connection to its end.
pub async fn serve(shared: &Shared, mut client: TcpStream) {
    match negotiate(shared, &mut client).await {
        Ok(Some((request, upstream))) => carry(shared, request, client, upstream).await,
        Ok(None) => {}
        Err(refusal) => refuse(&shared.metrics, client, &refusal).await,
    }
}

/// Counts the refusal and tells the client.
pub async fn refuse(metrics: &Metrics, client: TcpStream, refusal: &Refusal) {
    let status = refusal.status();
    metrics.error(status).inc();
    let peer = client.peer_addr().ok().map(tracing::field::display);
    warn!(status, peer, ?refusal, "refused");
    http::answer_and_close(client, &Answer::text(status, refusal.explain())).await;
}

/// Reads the request and connects its upstream. `None`: the client left before it asked for anything.
async fn negotiate(shared: &Shared, client: &mut TcpStream) -> Result<Option<(Request, TcpStream)>, Refusal> {
    if socket::tune(&*client).is_err() {
        return Ok(None);
    }
    let Some(head) = read_head(shared, client).await? else {
        return Ok(None);
    };
    let request = Request {
        since: Instant::now(),
        route: route(shared, &head)?,
        glued: head.glued,
    };
    let upstream = connect(&request.route.upstream, shared.deadlines.connect).await?;
    Ok(Some((request, upstream)))
}

async fn read_head(shared: &Shared, client: &mut TcpStream) -> Result<Option<Head>, Refusal> {
    let mut draining = shared.draining.clone();
    let head = tokio::select! {
        head = timeout(shared.deadlines.handshake, http::read_head(client)) => head,
        () = draining.raised() => return Err(Refusal::Draining),
    };
    match head.map_err(|_| Refusal::HandshakeTimeout)? {
        Ok(head) => Ok(Some(head)),
        Err(HeadError::Silent | HeadError::Io(_)) => Ok(None),
        Err(HeadError::Malformed) => Err(Refusal::Malformed("the request is not HTTP/1.1")),
        Err(HeadError::TooLarge) => Err(Refusal::HeadTooLarge),
    }
}

fn route(shared: &Shared, head: &Head) -> Result<Arc<Route>, Refusal> {
    if head.method != "CONNECT" {
        return Err(Refusal::MethodNotAllowed);
    }
    shared.routes.find(&head.target)
}

/// Connects to the address or name that the route table gives; only such names are ever looked up.
async fn connect(upstream: &str, deadline: Duration) -> Result<TcpStream, Refusal> {
    let connected = async {
        let stream = TcpStream::connect(upstream).await?;
        socket::tune(&stream)?;
        io::Result::Ok(stream)
    };
    let result = timeout(deadline, connected).await;
    result.map_err(|_| Refusal::ConnectTimeout)?.map_err(Refusal::from_connect)
}

async fn carry(shared: &Shared, request: Request, mut client: TcpStream, upstream: TcpStream) {
    if client.write_all(GRANTED).await.is_err() {
        return;
    }
    let Request { route, glued, since } = request;
    route.metrics.setup.observe(since.elapsed().as_secs_f64());
    let ends = Ends {
        client: Arc::new(client),
        upstream: Arc::new(upstream),
    };
    let _open = route.open(ends.clone());
    let (bytes_up, bytes_down) = (route.metrics.bytes_up.clone(), route.metrics.bytes_down.clone());
    let mut tunnel = Tunnel::new(ends, glued, Arc::clone(&shared.pool), bytes_up, bytes_down);
    let result = tunnel.run(shared.deadlines.linger).await;
    log_end(&route, since, tunnel.carried(), &result);
}

fn log_end(route: &Route, since: Instant, carried: (u64, u64), result: &io::Result<Ending>) {
    let (bytes_up, bytes_down) = carried;
    let ending = match result {
        Ok(Ending::Finished) => "finished".to_owned(),
        Ok(Ending::Lingered) => "lingered".to_owned(),
        Err(error) => error.kind().to_string(),
    };
    let seconds = since.elapsed().as_secs_f64();
    info!(route = route.authority, bytes_up, bytes_down, seconds, ending, "tunnel ended");
}
