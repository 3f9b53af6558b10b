//! A TCP link in user space with the delay, jitter, rate and faults of a long path, so that one machine can stand in for two.
//!
//! It has no packets: it delays bytes, so it shows no loss, no congestion window and no slow start.

pub mod admin;
pub mod conditions;
pub mod flow;
pub mod lane;
pub mod timer;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::warn;

use self::conditions::{Conditions, Fault};
use self::flow::{Flow, wait_while_stalled};
use self::lane::Lane;
use self::timer::PreciseTimer;
use crate::admin::{self as admin_port, ACCEPT_BACKOFF};
use crate::config::WanlinkConfig;
use crate::socket;

/// The state of a link, shared by its connections and its admin port.
pub struct Link {
    to: String,
    forward: Lane,
    backward: Lane,
    conditions: watch::Sender<Conditions>,
    fault: watch::Sender<Fault>,
    cuts: watch::Sender<()>,
    connections_open: AtomicUsize,
    connections_total: AtomicUsize,
}

impl Link {
    fn new(config: &WanlinkConfig) -> Self {
        Self {
            to: config.to.clone(),
            forward: Lane::new(1),
            backward: Lane::new(2),
            conditions: watch::Sender::new(config.conditions),
            fault: watch::Sender::default(),
            cuts: watch::Sender::default(),
            connections_open: AtomicUsize::new(0),
            connections_total: AtomicUsize::new(0),
        }
    }

    /// Resets every open connection.
    pub fn cut(&self) {
        self.cuts.send_replace(());
    }

    /// Turns a fault on, or off with [`Fault::None`].
    pub fn set_fault(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// Changes the link for whatever is sent from now on.
    pub fn set_conditions(&self, conditions: Conditions) {
        self.conditions.send_replace(conditions);
    }

    fn delay(&self) -> Duration {
        self.conditions.borrow().delay
    }

    /// Serves one accepted connection until both streams have ended, or something resets it.
    async fn serve(&self, client: TcpStream) {
        self.connections_open.fetch_add(1, Ordering::Relaxed);
        self.connections_total.fetch_add(1, Ordering::Relaxed);
        let mut cuts = self.cuts.subscribe();
        tokio::select! {
            result = self.join(&client) => if result.is_err() { socket::reset_on_close(&client) },
            _ = cuts.changed() => socket::reset_on_close(&client),
        }
        drop(client);
        self.connections_open.fetch_sub(1, Ordering::Relaxed);
    }

    async fn join(&self, client: &TcpStream) -> io::Result<()> {
        let arrived = Instant::now();
        socket::tune(client)?;
        let upstream = self.open(arrived).await?;
        // A cut drops this future where it stands, so the reset is arranged beforehand.
        socket::reset_on_close(&upstream);
        let forward = Flow {
            from: client,
            to: &upstream,
            lane: &self.forward,
            // The sender hears that it is connected one delay after the far end did.
            opens_at: Instant::now() + self.delay(),
            conditions: self.conditions.subscribe(),
            fault: self.fault.subscribe(),
        };
        let backward = Flow {
            from: &upstream,
            to: client,
            lane: &self.backward,
            opens_at: arrived,
            conditions: self.conditions.subscribe(),
            fault: self.fault.subscribe(),
        };
        tokio::try_join!(forward.carry(), backward.carry())?;
        socket::finish_on_close(&upstream);
        Ok(())
    }

    /// Connects the far end one delay after the client connected; a refusal takes one more delay to come back.
    async fn open(&self, arrived: Instant) -> io::Result<TcpStream> {
        let timer = PreciseTimer::new()?;
        timer.wait_until(arrived + self.delay()).await?;
        wait_while_stalled(&mut self.fault.subscribe()).await;
        let refused = *self.fault.borrow() == Fault::Refuse;
        let connected = if refused {
            Err(io::ErrorKind::ConnectionRefused.into())
        } else {
            TcpStream::connect(&self.to).await
        };
        let failed_back_at = Instant::now() + self.delay();
        match connected {
            Ok(upstream) => socket::tune(&upstream).map(|()| upstream),
            Err(error) => {
                timer.wait_until(failed_back_at).await?;
                Err(error)
            }
        }
    }
}

/// A link that is bound but not yet accepting.
pub struct Wanlink {
    listener: TcpListener,
    admin: Option<TcpListener>,
    link: Arc<Link>,
}

impl Wanlink {
    /// Binds the link and, if asked for, its admin port.
    pub async fn bind(config: &WanlinkConfig) -> io::Result<Self> {
        let admin = match config.admin {
            Some(address) => Some(admin_port::bind("wanlink-admin", address).await?),
            None => None,
        };
        Ok(Self {
            listener: admin_port::bind("wanlink", config.listen).await?,
            admin,
            link: Arc::new(Link::new(config)),
        })
    }

    /// Where clients connect.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Where the admin port is, if there is one.
    pub fn admin_address(&self) -> io::Result<Option<SocketAddr>> {
        self.admin.as_ref().map(TcpListener::local_addr).transpose()
    }

    /// The shared state, to switch faults without the admin port.
    pub fn link(&self) -> Arc<Link> {
        Arc::clone(&self.link)
    }

    /// Serves for ever.
    pub async fn run(self) {
        if let Some(admin) = self.admin {
            let link = Arc::clone(&self.link);
            tokio::spawn(admin_port::serve(admin, move |head| {
                let link = Arc::clone(&link);
                async move { admin::answer(&link, &head) }
            }));
        }
        loop {
            match self.listener.accept().await {
                Ok((client, _)) => {
                    let link = Arc::clone(&self.link);
                    tokio::spawn(async move { link.serve(client).await });
                }
                Err(error) => {
                    warn!(%error, "accept failed");
                    sleep(ACCEPT_BACKOFF).await;
                }
            }
        }
    }
}
