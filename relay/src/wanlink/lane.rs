//! One direction of the link: decides when each byte arrives. Shared by all connections, since they share the wire.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::conditions::Conditions;

/// The wire of one direction, and what it has delivered.
#[derive(Debug)]
pub struct Lane {
    wire: Mutex<Wire>,
    delivered_bytes: AtomicU64,
}

#[derive(Debug)]
struct Wire {
    /// When the last byte given to the wire has left the sender.
    free_at: Instant,
    random: u64,
}

impl Lane {
    /// An idle wire; `seed` picks its jitter.
    pub fn new(seed: u64) -> Self {
        let wire = Wire {
            free_at: Instant::now(),
            random: seed,
        };
        Self {
            wire: Mutex::new(wire),
            delivered_bytes: AtomicU64::new(0),
        }
    }

    /// When `bytes` handed over at `now` arrive: behind what is on the wire already, then delay, then jitter.
    pub fn arrival(&self, bytes: usize, now: Instant, conditions: &Conditions) -> Instant {
        let mut wire = self.wire.lock();
        let sent = match conditions.rate_bps {
            Some(rate_bps) => wire.free_at.max(now) + Duration::from_secs_f64(bytes as f64 * 8.0 / rate_bps),
            None => now,
        };
        wire.free_at = sent;
        sent + conditions.delay + conditions.jitter.mul_f64(wire.next_fraction())
    }

    /// Counts bytes as delivered.
    pub fn deliver(&self, bytes: usize) {
        self.delivered_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes delivered so far.
    pub fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes.load(Ordering::Relaxed)
    }
}

impl Wire {
    /// Uniform in [0, 1): the splitmix64 generator, so that a run can be repeated.
    fn next_fraction(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(settings: &[(&str, &str)]) -> Conditions {
        Conditions::default().with(settings.iter().copied()).unwrap()
    }

    #[test]
    fn without_a_rate_bytes_arrive_after_the_delay() {
        let (lane, now) = (Lane::new(0), Instant::now());
        let link = conditions(&[("delay_ms", "43")]);
        assert_eq!(lane.arrival(1_000_000, now, &link) - now, Duration::from_millis(43));
        assert_eq!(lane.arrival(1, now, &link) - now, Duration::from_millis(43));
    }

    #[test]
    fn with_a_rate_bytes_queue_behind_each_other() {
        let (lane, now) = (Lane::new(0), Instant::now());
        let link = conditions(&[("delay_ms", "10"), ("rate_mbit", "8")]);
        // 8 Mbit/s is 1000 bytes a millisecond.
        assert_eq!(lane.arrival(5_000, now, &link) - now, Duration::from_millis(15));
        assert_eq!(lane.arrival(1_000, now, &link) - now, Duration::from_millis(16));
    }

    #[test]
    fn jitter_stays_within_its_bounds_and_varies() {
        let (lane, now) = (Lane::new(7), Instant::now());
        let link = conditions(&[("delay_ms", "10"), ("jitter_ms", "4")]);
        let arrivals: Vec<_> = (0..1000).map(|_| lane.arrival(1, now, &link) - now).collect();
        let (earliest, latest) = (arrivals.iter().min().unwrap(), arrivals.iter().max().unwrap());
        assert!(*earliest >= Duration::from_millis(10) && *earliest < Duration::from_micros(10_100));
        assert!(*latest < Duration::from_millis(14) && *latest > Duration::from_micros(13_900));
    }
}
