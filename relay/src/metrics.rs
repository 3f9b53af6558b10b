//! What the relay counts, as Prometheus reads it; every name starts with `shardflow_relay_`.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::refusal::STATUSES;
use crate::route::RouteTable;

/// `Content-Type` of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Set-up takes one round trip to the upstream: microseconds inside a rack, hundreds of milliseconds between continents.
const SETUP_BUCKETS_S: [f64; 14] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0,
];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RouteLabel {
    route: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DirectionLabels {
    route: String,
    direction: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SideLabels {
    route: String,
    side: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StatusLabel {
    code: u16,
}

type RoundTrip = Gauge<f64, AtomicU64>;

/// The process's registry and the families in it.
pub struct Metrics {
    registry: Registry,
    /// Bytes could not be spliced and were copied, counted once for each time a buffer had to stand in for a pipe.
    pub pipe_fallbacks: Counter,
    /// Failed `accept` calls.
    pub accept_errors: Counter,
    bytes: Family<DirectionLabels, Counter>,
    tunnels_open: Family<RouteLabel, Gauge>,
    tunnels: Family<RouteLabel, Counter>,
    setup: Family<RouteLabel, Histogram>,
    errors: Family<StatusLabel, Counter>,
    /// Filled at each scrape; the lock keeps two scrapes from seeing each other's half.
    round_trips: Mutex<Family<SideLabels, RoundTrip>>,
}

/// The metrics of one route, looked up once.
#[derive(Clone, Debug)]
pub struct RouteMetrics {
    /// Bytes from the client to the upstream.
    pub bytes_up: Counter,
    /// Bytes from the upstream to the client.
    pub bytes_down: Counter,
    /// Tunnels open now.
    pub tunnels_open: Gauge,
    /// Tunnels ever opened.
    pub tunnels: Counter,
    /// Seconds from a complete CONNECT head to the 200.
    pub setup: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("shardflow_relay"),
            pipe_fallbacks: Counter::default(),
            accept_errors: Counter::default(),
            bytes: Family::default(),
            tunnels_open: Family::default(),
            tunnels: Family::default(),
            setup: Family::new_with_constructor(|| Histogram::new(SETUP_BUCKETS_S)),
            errors: Family::default(),
            round_trips: Mutex::default(),
        };
        metrics.register();
        for status in STATUSES {
            metrics.error(status).inc_by(0);
        }
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        let registry = &mut self.registry;
        registry.register("build", "What is running", build);
        registry.register("bytes", "Bytes carried; up is from client to upstream", self.bytes.clone());
        registry.register("tunnels_open", "Tunnels open now", self.tunnels_open.clone());
        registry.register("tunnels", "Tunnels opened", self.tunnels.clone());
        registry.register("setup_seconds", "From a complete CONNECT head to the 200", self.setup.clone());
        registry.register("errors", "Refused connections by HTTP status", self.errors.clone());
        registry.register("accept_errors", "Failed accept calls", self.accept_errors.clone());
        registry.register(
            "pipe_fallbacks",
            "Times a copy buffer stood in for a pipe",
            self.pipe_fallbacks.clone(),
        );
        registry.register(
            "rtt_seconds",
            "Median kernel round trip (TCP_INFO) of the open tunnels, to the client and to the upstream",
            self.round_trips.lock().clone(),
        );
    }

    /// The metrics of one route; they read 0 from now on.
    pub fn route(&self, authority: &str) -> RouteMetrics {
        let label = RouteLabel {
            route: authority.to_owned(),
        };
        RouteMetrics {
            bytes_up: self.bytes_in(authority, "up"),
            bytes_down: self.bytes_in(authority, "down"),
            tunnels_open: self.tunnels_open.get_or_create_owned(&label),
            tunnels: self.tunnels.get_or_create_owned(&label),
            setup: self.setup.get_or_create_owned(&label),
        }
    }

    fn bytes_in(&self, authority: &str, direction: &'static str) -> Counter {
        self.bytes.get_or_create_owned(&DirectionLabels {
            route: authority.to_owned(),
            direction,
        })
    }

    /// The counter of refusals with this HTTP status.
    pub fn error(&self, status: u16) -> Counter {
        self.errors.get_or_create_owned(&StatusLabel { code: status })
    }

    /// All metrics as text, with the round trips of the tunnels that are open now.
    pub fn render(&self, routes: &RouteTable) -> Result<String, fmt::Error> {
        let round_trips = self.round_trips.lock();
        round_trips.clear();
        for route in routes.iter() {
            let (client, upstream) = route.round_trips();
            for (side, samples) in [("client", client), ("upstream", upstream)] {
                let Some(median) = median(samples) else { continue };
                let labels = SideLabels {
                    route: route.authority.clone(),
                    side,
                };
                round_trips.get_or_create(&labels).set(median.as_secs_f64());
            }
        }
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

fn median(mut samples: Vec<Duration>) -> Option<Duration> {
    samples.sort_unstable();
    samples.get(samples.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_sample() {
        let ms = Duration::from_millis;
        assert_eq!(median(vec![ms(9), ms(1), ms(5)]), Some(ms(5)));
        assert_eq!(median(vec![]), None);
    }

    #[test]
    fn every_series_reads_zero_before_the_first_tunnel() {
        let metrics = Metrics::default();
        let rules = ["a:1=b:1".parse().unwrap()];
        let routes = RouteTable::new(&rules, |authority| metrics.route(authority));
        let text = metrics.render(&routes).unwrap();
        for line in [
            "shardflow_relay_bytes_total{route=\"a:1\",direction=\"up\"} 0",
            "shardflow_relay_bytes_total{route=\"a:1\",direction=\"down\"} 0",
            "shardflow_relay_tunnels_open{route=\"a:1\"} 0",
            "shardflow_relay_tunnels_total{route=\"a:1\"} 0",
            "shardflow_relay_setup_seconds_count{route=\"a:1\"} 0",
            "shardflow_relay_errors_total{code=\"431\"} 0",
            "shardflow_relay_accept_errors_total 0",
            "shardflow_relay_pipe_fallbacks_total 0",
            "shardflow_relay_build_info{version=\"0.1.0\"} 1",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
        }
    }
}
