//! The command line and its environment; every problem found is reported, not just the first.

use std::fmt::Display;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::connection::Deadlines;
use crate::route::RouteRule;
use crate::wanlink::conditions::Conditions;

/// ShardFlow's relay and test link.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Cli {
    /// What to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The things this binary can be.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Join clients to named services: HTTP CONNECT, then spliced in the kernel.
    Serve(ServeArgs),
    /// Be a TCP link with delay, jitter, a rate and faults, for tests and demos.
    Wanlink(WanlinkArgs),
    /// Ask whether the `serve` or `wanlink` with this admin port is ready: exit code 0 if so, else 1.
    Probe {
        /// Its admin port.
        #[arg(value_name = "ADDR")]
        admin: SocketAddr,
    },
}

/// Settings of `serve` as written; [`ServeArgs::check`] reads them.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Where clients connect; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", env = "SHARDFLOW_RELAY_LISTEN", default_value = "127.0.0.1:9000")]
    listen: String,
    /// Where /live, /ready and /metrics are.
    #[arg(long, value_name = "ADDR", env = "SHARDFLOW_RELAY_ADMIN", default_value = "127.0.0.1:9001")]
    admin: String,
    /// A name that clients may ask for and where it leads; may be repeated.
    #[arg(
        long = "route",
        value_name = "NAME:PORT=HOST:PORT",
        env = "SHARDFLOW_RELAY_ROUTES",
        value_delimiter = ','
    )]
    routes: Vec<String>,
    /// Connections at once, over all clients.
    #[arg(long, value_name = "N", env = "SHARDFLOW_RELAY_MAX_CONNECTIONS", default_value = "4096")]
    max_connections: String,
    /// Connections at once from one address.
    #[arg(long, value_name = "N", env = "SHARDFLOW_RELAY_MAX_PER_IP", default_value = "512")]
    max_per_ip: String,
    /// From accept to a complete CONNECT.
    #[arg(long, value_name = "S", env = "SHARDFLOW_RELAY_HANDSHAKE_SECONDS", default_value = "5")]
    handshake_seconds: String,
    /// From a complete CONNECT to a connected upstream.
    #[arg(long, value_name = "S", env = "SHARDFLOW_RELAY_CONNECT_SECONDS", default_value = "5")]
    connect_seconds: String,
    /// Silence allowed to one end after the other has closed.
    #[arg(long, value_name = "S", env = "SHARDFLOW_RELAY_LINGER_SECONDS", default_value = "60")]
    linger_seconds: String,
    /// Time for open tunnels to end after SIGTERM.
    #[arg(long, value_name = "S", env = "SHARDFLOW_RELAY_DRAIN_SECONDS", default_value = "30")]
    drain_seconds: String,
    /// Copy through 64 KiB buffers instead of splicing: the baseline of the benchmark.
    #[arg(long, hide = true)]
    copy: bool,
}

/// Settings of `wanlink` as written; [`WanlinkArgs::check`] reads them.
#[derive(Args, Debug)]
pub struct WanlinkArgs {
    /// Where clients connect; port 0 takes a free one.
    #[arg(long, value_name = "ADDR")]
    listen: String,
    /// Where the link leads.
    #[arg(long, value_name = "HOST:PORT")]
    to: String,
    /// One-way delay of each direction.
    #[arg(long, value_name = "MS", default_value = "0")]
    delay_ms: String,
    /// Extra one-way delay, uniform between 0 and this; order is kept.
    #[arg(long, value_name = "MS", default_value = "0")]
    jitter_ms: String,
    /// Rate of each direction, shared by all connections; 0 is unlimited.
    #[arg(long, value_name = "MBIT", default_value = "0")]
    rate_mbit: String,
    /// Where faults are switched and /stats is.
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
}

/// Checked settings of `serve`.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where the admin pages are.
    pub admin: SocketAddr,
    /// The route table; names are unique.
    pub routes: Vec<RouteRule>,
    /// Connections at once.
    pub max_connections: usize,
    /// Connections at once from one address.
    pub max_per_ip: usize,
    /// Limits on each step of a connection.
    pub deadlines: Deadlines,
    /// Time for open tunnels to end at shutdown.
    pub drain: Duration,
    /// Copy instead of splicing.
    pub copy: bool,
}

/// Checked settings of `wanlink`.
#[derive(Clone, Debug)]
pub struct WanlinkConfig {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// `host:port` at the far end.
    pub to: String,
    /// Delay, jitter and rate at the start.
    pub conditions: Conditions,
    /// Where faults are switched.
    pub admin: Option<SocketAddr>,
}

/// Everything that is wrong with a configuration, one sentence each.
pub type Problems = Vec<String>;

impl ServeArgs {
    /// Reads every setting.
    ///
    /// # Errors
    /// All problems found.
    pub fn check(&self) -> Result<ServeConfig, Problems> {
        let mut checker = Checker::default();
        let listen = checker.parse("listen", &self.listen);
        let admin = checker.parse("admin", &self.admin);
        let routes = checker.routes(&self.routes);
        let max_connections = checker.count("max-connections", &self.max_connections);
        let max_per_ip = checker.count("max-per-ip", &self.max_per_ip);
        let handshake = checker.seconds("handshake-seconds", &self.handshake_seconds);
        let connect = checker.seconds("connect-seconds", &self.connect_seconds);
        let linger = checker.seconds("linger-seconds", &self.linger_seconds);
        let drain = checker.seconds("drain-seconds", &self.drain_seconds);
        checker.finish(|| {
            Some(ServeConfig {
                listen: listen?,
                admin: admin?,
                routes,
                max_connections: max_connections?,
                max_per_ip: max_per_ip?,
                deadlines: Deadlines {
                    handshake: handshake?,
                    connect: connect?,
                    linger: linger?,
                },
                drain: drain?,
                copy: self.copy,
            })
        })
    }
}

impl WanlinkArgs {
    /// Reads every setting.
    ///
    /// # Errors
    /// All problems found.
    pub fn check(&self) -> Result<WanlinkConfig, Problems> {
        let mut checker = Checker::default();
        let listen = checker.parse("listen", &self.listen);
        let admin = self.admin.as_ref().map(|text| checker.parse("admin", text));
        let conditions = [
            ("delay_ms", self.delay_ms.as_str()),
            ("jitter_ms", self.jitter_ms.as_str()),
            ("rate_mbit", self.rate_mbit.as_str()),
        ];
        let conditions = checker.note("link", Conditions::default().with(conditions));
        checker.note("to", crate::route::check_upstream(&self.to));
        checker.finish(|| {
            Some(WanlinkConfig {
                listen: listen?,
                to: self.to.clone(),
                conditions: conditions?,
                admin: match admin {
                    Some(address) => Some(address?),
                    None => None,
                },
            })
        })
    }
}

/// Reads settings one after another and keeps what is wrong with them.
#[derive(Default)]
struct Checker {
    problems: Problems,
}

impl Checker {
    fn note<T>(&mut self, setting: &str, result: Result<T, impl Display>) -> Option<T> {
        result.map_err(|problem| self.problems.push(format!("{setting}: {problem}"))).ok()
    }

    fn parse<T: FromStr<Err: Display>>(&mut self, setting: &str, text: &str) -> Option<T> {
        self.note(setting, text.parse::<T>().map_err(|error| format!("`{text}`: {error}")))
    }

    fn count(&mut self, setting: &str, text: &str) -> Option<usize> {
        let count = self.parse::<std::num::NonZeroUsize>(setting, text);
        count.map(std::num::NonZeroUsize::get)
    }

    fn seconds(&mut self, setting: &str, text: &str) -> Option<Duration> {
        let seconds: f64 = self.parse(setting, text)?;
        let duration = Duration::try_from_secs_f64(seconds);
        self.note(setting, duration.map_err(|error| format!("`{text}`: {error}")))
    }

    fn routes(&mut self, texts: &[String]) -> Vec<RouteRule> {
        let mut routes: Vec<RouteRule> = Vec::new();
        for text in texts {
            let Some(rule) = self.note("route", text.trim().parse::<RouteRule>()) else {
                continue;
            };
            if routes.iter().any(|known| known.authority == rule.authority) {
                self.problems.push(format!("route: `{}` is given twice", rule.authority));
            }
            routes.push(rule);
        }
        if texts.is_empty() {
            self.problems.push("route: at least one is needed".to_owned());
        }
        routes
    }

    /// The built value, or the problems; `build` is `None` only where a problem was noted.
    fn finish<T>(self, build: impl FnOnce() -> Option<T>) -> Result<T, Problems> {
        if !self.problems.is_empty() {
            return Err(self.problems);
        }
        build().ok_or(self.problems)
    }
}
