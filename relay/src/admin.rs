//! The relay's admin port: `GET /live`, `GET /ready` (503 while draining), `GET /metrics`.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::connection::Shared;
use crate::http::{self, Answer, Head, HeadError};
use crate::metrics::CONTENT_TYPE;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait when `accept` fails, which is mostly for want of file descriptors.
pub const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Answers one request at a time on each connection to `listener`, for ever.
pub async fn serve<A, F>(listener: TcpListener, answer: A)
where
    A: Fn(Head) -> F + Clone + Send + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(serve_one(stream, answer.clone()));
            }
            Err(error) => {
                warn!(%error, "admin accept failed");
                sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

async fn serve_one<A, F>(mut stream: TcpStream, answer: A)
where
    A: Fn(Head) -> F,
    F: Future<Output = Answer>,
{
    let answer = match timeout(REQUEST_TIMEOUT, http::read_head(&mut stream)).await {
        Ok(Ok(head)) => answer(head).await,
        Ok(Err(HeadError::Silent | HeadError::Io(_))) => return,
        Ok(Err(HeadError::Malformed)) => Answer::text(400, "the request is not HTTP/1.1"),
        Ok(Err(HeadError::TooLarge)) => Answer::text(431, "the request head is too large"),
        Err(_) => Answer::text(408, "the request head took too long"),
    };
    http::answer_and_close(stream, &answer).await;
}

/// The relay's own pages.
pub async fn relay_pages(shared: Arc<Shared>, head: Head) -> Answer {
    match (head.method.as_str(), head.target.as_str()) {
        ("GET", "/live") => Answer::text(200, "live"),
        ("GET", "/ready") if shared.draining.is_raised() => Answer::text(503, "draining"),
        ("GET", "/ready") => Answer::text(200, "ready"),
        ("GET", "/metrics") => metrics_page(&shared),
        _ => Answer::text(404, "try GET /live, /ready or /metrics"),
    }
}

fn metrics_page(shared: &Shared) -> Answer {
    match shared.metrics.render(&shared.routes) {
        Ok(body) => Answer {
            status: 200,
            content_type: CONTENT_TYPE,
            body,
        },
        Err(error) => Answer::text(500, &error.to_string()),
    }
}

/// Binds a listener and says in the log where, so that port 0 is of use to a parent process.
pub async fn bind(role: &'static str, address: std::net::SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    tracing::info!(role, address = %bound, port = bound.port(), "listening");
    Ok(listener)
}
