//! The relay itself: accept, admit, serve each connection in a task, and drain when told to stop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::admin::{self, ACCEPT_BACKOFF};
use crate::carrier::CarrierPool;
use crate::config::ServeConfig;
use crate::connection::{self, Shared};
use crate::limits::Admission;
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::route::RouteTable;
use crate::shutdown::Shutdown;

/// Clients over the cap that are told so at one time; any more are closed without a word.
const TELL_MAX: usize = 64;

/// A relay that is bound but not yet accepting.
pub struct Relay {
    listener: TcpListener,
    admin: TcpListener,
    admission: Admission,
    tell: Arc<Semaphore>,
    shared: Arc<Shared>,
    drain: Duration,
}

impl Relay {
    /// Binds both ports. Tunnels drain once `shutdown` is raised.
    pub async fn bind(config: &ServeConfig, shutdown: Shutdown) -> io::Result<Self> {
        let metrics = Metrics::default();
        let pool = if config.copy {
            CarrierPool::copying()
        } else {
            CarrierPool::splicing(metrics.pipe_fallbacks.clone())
        };
        let shared = Shared {
            routes: RouteTable::new(&config.routes, |authority| metrics.route(authority)),
            pool: Arc::new(pool),
            metrics,
            deadlines: config.deadlines,
            draining: shutdown,
        };
        Ok(Self {
            listener: admin::bind("relay", config.listen).await?,
            admin: admin::bind("admin", config.admin).await?,
            admission: Admission::new(config.max_connections, config.max_per_ip),
            tell: Arc::new(Semaphore::new(TELL_MAX)),
            shared: Arc::new(shared),
            drain: config.drain,
        })
    }

    /// Where clients connect.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Where `/live`, `/ready` and `/metrics` are.
    pub fn admin_address(&self) -> io::Result<SocketAddr> {
        self.admin.local_addr()
    }

    /// Serves until shutdown is raised and every tunnel has ended or the drain time is over.
    pub async fn run(self) {
        let pages = Arc::clone(&self.shared);
        let admin = tokio::spawn(admin::serve(self.admin, move |head| admin::relay_pages(Arc::clone(&pages), head)));
        let mut connections = JoinSet::new();
        let mut shutdown = self.shared.draining.clone();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((client, peer)) => admit(&self.admission, &self.tell, &self.shared, client, peer, &mut connections),
                    Err(error) => {
                        self.shared.metrics.accept_errors.inc();
                        warn!(%error, "accept failed");
                        sleep(ACCEPT_BACKOFF).await;
                    }
                },
                Some(_) = connections.join_next() => {}
                () = shutdown.raised() => break,
            }
        }
        drop(self.listener);
        drain(connections, self.drain).await;
        admin.abort();
    }
}

fn admit(
    admission: &Admission,
    tell: &Arc<Semaphore>,
    shared: &Arc<Shared>,
    client: TcpStream,
    peer: SocketAddr,
    connections: &mut JoinSet<()>,
) {
    let shared = Arc::clone(shared);
    if let Some(permit) = admission.admit(peer.ip()) {
        connections.spawn(async move {
            connection::serve(&shared, client).await;
            drop(permit);
        });
    } else if let Ok(telling) = Arc::clone(tell).try_acquire_owned() {
        connections.spawn(async move {
            connection::refuse(&shared.metrics, client, &Refusal::AtCapacity).await;
            drop(telling);
        });
    } else {
        shared.metrics.error(Refusal::AtCapacity.status()).inc();
    }
}

async fn drain(mut connections: JoinSet<()>, limit: Duration) {
    let open = connections.len();
    info!(connections = open, limit_s = limit.as_secs_f64(), "draining");
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(limit, all).await.is_ok() {
        info!("drained");
    } else {
        warn!(connections = connections.len(), "drain time over, resetting what is left");
        connections.shutdown().await;
    }
}
