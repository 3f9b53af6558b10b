//! The route table: which names exist, where each leads, and which tunnels of each are open.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpStream;

use crate::metrics::RouteMetrics;
use crate::refusal::Refusal;
use crate::socket;

/// `NAME:PORT=HOST:PORT` as configured: the authority that clients ask for and the upstream that it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRule {
    /// What a client must ask for, byte for byte.
    pub authority: String,
    /// `host:port` to connect to; a name is looked up at every connect.
    pub upstream: String,
}

impl std::str::FromStr for RouteRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (authority, upstream) = text.split_once('=').ok_or_else(|| format!("`{text}` is not NAME:PORT=HOST:PORT"))?;
        check_authority(authority).map_err(|refusal| format!("`{authority}`: {}", refusal.explain()))?;
        check_upstream(upstream)?;
        Ok(Self {
            authority: authority.to_owned(),
            upstream: upstream.to_owned(),
        })
    }
}

/// Accepts `name:port`, where the name is no address in any notation that a resolver would take for one.
fn check_authority(authority: &str) -> Result<(), Refusal> {
    const MALFORMED: Refusal = Refusal::Malformed("the target is not name:port");
    let (host, port) = authority.rsplit_once(':').ok_or(MALFORMED)?;
    if !matches!(port.parse::<u16>(), Ok(1..)) || port.starts_with('+') {
        return Err(MALFORMED);
    }
    if is_address(host) {
        return Err(Refusal::AddressTarget);
    }
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if host.is_empty() || !host.bytes().all(legal) {
        return Err(MALFORMED);
    }
    Ok(())
}

/// Whether `host` is an address: `::1`, `[::1]`, `127.0.0.1`, but also `127.1`, `2130706433` and `0x7f.1`.
fn is_address(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let last_label = bare.trim_end_matches('.').rsplit('.').next().unwrap_or(bare);
    let hexadecimal = last_label.strip_prefix("0x").or(last_label.strip_prefix("0X"));
    let numeric = !last_label.is_empty() && last_label.bytes().all(|byte| byte.is_ascii_digit());
    host.starts_with('[')
        || bare.parse::<IpAddr>().is_ok()
        || numeric
        || hexadecimal.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Accepts `host:port`, where the host may be a name or an address.
pub fn check_upstream(upstream: &str) -> Result<(), String> {
    let (host, port) = upstream.rsplit_once(':').unwrap_or((upstream, ""));
    if host.is_empty() || !matches!(port.parse::<u16>(), Ok(1..)) {
        return Err(format!("`{upstream}` is not HOST:PORT"));
    }
    Ok(())
}

/// One entry of the table, with its metrics and its open tunnels.
#[derive(Debug)]
pub struct Route {
    /// `name:port`; also the metric label.
    pub authority: String,
    /// `host:port` to connect to.
    pub upstream: String,
    /// This route's counters.
    pub metrics: RouteMetrics,
    open: Mutex<HashMap<u64, Ends>>,
    next_id: AtomicU64,
}

/// The two sockets of a tunnel, shared with whoever samples them.
#[derive(Clone, Debug)]
pub struct Ends {
    /// Towards the client that sent the CONNECT.
    pub client: Arc<TcpStream>,
    /// Towards the service that the route leads to.
    pub upstream: Arc<TcpStream>,
}

/// Keeps a tunnel listed as open until dropped.
#[derive(Debug)]
pub struct OpenTunnel {
    route: Arc<Route>,
    id: u64,
}

impl Route {
    /// Lists a tunnel as open.
    pub fn open(self: &Arc<Self>, ends: Ends) -> OpenTunnel {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.open.lock().insert(id, ends);
        self.metrics.tunnels.inc();
        self.metrics.tunnels_open.inc();
        OpenTunnel {
            route: Arc::clone(self),
            id,
        }
    }

    /// The kernel's round trips over all open tunnels now: to the clients, to the upstreams.
    pub fn round_trips(&self) -> (Vec<Duration>, Vec<Duration>) {
        let open = self.open.lock();
        let client = open.values().filter_map(|ends| socket::round_trip(&ends.client));
        let upstream = open.values().filter_map(|ends| socket::round_trip(&ends.upstream));
        (client.collect(), upstream.collect())
    }
}

impl Drop for OpenTunnel {
    fn drop(&mut self) {
        self.route.open.lock().remove(&self.id);
        self.route.metrics.tunnels_open.dec();
    }
}

/// All routes by authority. The only authority on where a tunnel may lead.
#[derive(Debug)]
pub struct RouteTable {
    routes: HashMap<String, Arc<Route>>,
}

impl RouteTable {
    /// Builds the table; `metrics_of` makes the metrics of each route.
    pub fn new(rules: &[RouteRule], metrics_of: impl Fn(&str) -> RouteMetrics) -> Self {
        let route = |rule: &RouteRule| Route {
            authority: rule.authority.clone(),
            upstream: rule.upstream.clone(),
            metrics: metrics_of(&rule.authority),
            open: Mutex::default(),
            next_id: AtomicU64::new(0),
        };
        let entry = |rule: &RouteRule| (rule.authority.clone(), Arc::new(route(rule)));
        Self {
            routes: rules.iter().map(entry).collect(),
        }
    }

    /// Finds the route for the target of a CONNECT: exact bytes, no lookup, addresses refused before the table is asked.
    pub fn find(&self, target: &str) -> Result<Arc<Route>, Refusal> {
        check_authority(target)?;
        self.routes.get(target).cloned().ok_or(Refusal::UnknownName)
    }

    /// Every route, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(target: &str) -> u16 {
        check_authority(target).map_or_else(|refusal| refusal.status(), |()| 200)
    }

    #[test]
    fn a_name_with_a_port_is_legal() {
        for target in ["verifier-1.region-b:443", "localhost:22", "a_b:1", "0xyz.com:80", "4.example:65535"] {
            assert_eq!(status(target), 200, "{target}");
        }
    }

    #[test]
    fn every_notation_of_an_address_is_forbidden() {
        for host in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.1",
            "0x7f000001",
            "0X7F000001",
            "0177.0.0.1",
            "127.0.0.1.",
            "[::1]",
            "::1",
            "[::ffff:127.0.0.1]",
            "[::]",
            "169.254.169.254",
            "[fe80::1%25lo]",
        ] {
            assert_eq!(status(&format!("{host}:80")), 403, "{host}");
        }
    }

    #[test]
    fn a_target_that_is_not_name_and_port_is_malformed() {
        for target in [
            "",
            ":",
            "a",
            "a:",
            ":1",
            "a:0",
            "a:65536",
            "a:+1",
            "a:b",
            "http://a:1",
            "a@b:1",
            "a b:1",
            "ä:1",
            "a:1/",
        ] {
            assert_eq!(status(target), 400, "{target}");
        }
    }

    #[test]
    fn a_rule_names_an_authority_and_an_upstream() {
        let rule: RouteRule = "shard-1.internal:443=verifier-1:50051".parse().unwrap();
        assert_eq!(rule.authority, "shard-1.internal:443");
        assert_eq!(rule.upstream, "verifier-1:50051");
        assert!("shard-1:443=[::1]:50051".parse::<RouteRule>().is_ok());
    }

    #[test]
    fn a_rule_that_can_not_work_is_refused() {
        for rule in ["a:1", "a=b:1", "a:1=b", "a:1=:1", "a:1=b:0", "127.0.0.1:1=b:1", "=", ""] {
            assert!(rule.parse::<RouteRule>().is_err(), "{rule}");
        }
    }
}
